## The pixels that an im2col map loads: the first pixel of a block's slice of rows, and the offsets of a tap.
<%namespace name="radix" file="/addr/mixed_radix.mako"/>
<%def name="tap_registers()">
    .reg .b16 %im2col_offset<${len(plan.loads.axes)}>;
</%def>

## The first pixel of this block's slice of rows.
<%def name="first()">
    {
    .reg .b32 %flat_index, %quotient, %tmp;
<% images = plan.images %>\
% if images.multicast:
    mad.lo.u32 %flat_index, ${images.multicast.rank}, ${images.slice_extent}, %${images.role}0;
% else:
    mov.u32 %flat_index, %${images.role}0;
% endif
${radix.digits("%flat_index", "%pixel")}\
% for a in plan.loads.axes:
    mad.lo.u32 %pixel${a}, %pixel${a}, %stride${a}, %lower_corner${a};
% endfor
    mov.u32 %image, ${plan.loads.image};
    }
</%def>

## The operands of copies that follow from a tap.
<%def name="tap_offsets(axes)">
% for a in axes:
    cvt.u16.u32 %im2col_offset${a}, %tap_pixel${a};
% endfor
</%def>
