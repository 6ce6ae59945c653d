## The pixels that tiled maps load. The rows of a box are adjacent along axis 0, which no tap moves.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="radix" file="/addr/mixed_radix.mako"/>
<%def name="tap_registers()"></%def>

## The first pixel of each box of this block's slice of rows.
<%def name="first()">
    {
    .reg .b32 %first_row, %flat_index, %quotient, %tmp;
<% images = plan.images %>\
% if images.multicast:
    mad.lo.u32 %first_row, ${images.multicast.rank}, ${images.slice_extent}, %${images.role}0;
% else:
    mov.u32 %first_row, %${images.role}0;
% endif
% for n, row in enumerate(images.first_rows):
${constants.add("%flat_index", "%first_row", row)}\
${radix.digits("%flat_index", f"%box{n}_pixel")}\
  % for a in images.outer:
    mad.lo.u32 %box${n}_pixel${a}, %box${n}_pixel${a}, %stride${a}, %lower_corner${a};
  % endfor
    mov.u32 %image${n}, %flat_index;
% endfor
    }
</%def>

## A copy adds the pixels of its tap.
<%def name="tap_offsets(axes)"></%def>
