## im2col loads of weight gradients: K is pixels, and a column is a channel of one tap. The taps of a tile are the same in all
## its stages.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="radix" file="/addr/mixed_radix.mako"/>
<%def name="setup()">
<% n, boxes = len(plan.loads.axes), len(plan.images.boxes) %>\
    // %k as a pixel: digits %k_digit0 (%k_digit1 ...) and %image; %depth_digit: the digits of a stage's depth
    .reg .b32 %channel<${boxes}>, %pixel<${n}>, %k_digit<${n}>, %depth_digit<${plan.loads.digit_count}>, %image, %channels, %taps;
    .reg .b16 %im2col_offset<${plan.images.offset_count}>;
    .reg .pred %carry;
    ld.param.u32 %channels, [channels];  ld.param.u32 %taps, [taps];
${radix.parameters()}\
${digits(str(plan.config.u), "%depth_digit", f"%depth_digit{n}")}\
</%def>

<%def name="digits(number, to, last)">
    {
    .reg .b32 %flat_index, %quotient, %tmp;
    mov.u32 %flat_index, ${number};
${radix.digits("%flat_index", to)}\
    mov.u32 ${last}, %flat_index;
    }
</%def>

<%def name="begin()">
    mov.u32 %k, %k0;
${digits("%k0", "%k_digit", "%image")}\
% if plan.loads.im2col.groups:
    mov.u32 %image, ${plan.loads.image};
% endif
${pixel()}\
${columns()}\
</%def>

## The channels of the tile's columns, and the pixel offsets of their taps.
<%def name="columns()">
    {
    .reg .b32 %first_column, %column, %tap, %quotient, %tmp, %tap_pixel<${len(plan.loads.axes)}>;
<% images = plan.images %>\
% if images.multicast:
    mad.lo.u32 %first_column, ${images.multicast.rank}, ${images.slice_extent}, %${images.role}0;
% else:
    mov.u32 %first_column, %${images.role}0;
% endif
% for n, column in enumerate(plan.images.columns):
${constants.add("%column", "%first_column", column)}\
${radix.divide("%tap", "%column", "channels")}\
    mul.lo.u32 %tmp, %tap, %channels;
    sub.u32 %channel${n}, %column, %tmp;
    // past the last tap channels are out of bounds: zeros
    setp.ge.u32 %carry, %tap, %taps;
    @%carry mov.u32 %channel${n}, %channels;
${radix.offsets("%tap", "%tap_pixel")}\
  % for a, offset in enumerate(plan.images.offsets[n]):
    cvt.u16.u32 ${offset}, %tap_pixel${a};
  % endfor
% endfor
    }
</%def>

<%def name="pixel()">
% for a in plan.loads.axes:
    mad.lo.u32 %pixel${a}, %k_digit${a}, %stride${a}, %lower_corner${a};
% endfor
</%def>

## The pixels of the next stage.
<%def name="step()">
    add.u32 %k, %k, ${plan.config.u};
    setp.ne.u32 %carry, %k, %k;
% for a in plan.loads.axes:
    add.u32 %k_digit${a}, %k_digit${a}, %depth_digit${a};
    @%carry add.u32 %k_digit${a}, %k_digit${a}, 1;
    setp.ge.u32 %carry, %k_digit${a}, %positions${a};
    @%carry sub.u32 %k_digit${a}, %k_digit${a}, %positions${a};
% endfor
    add.u32 %image, %image, %depth_digit${len(plan.loads.axes)};
    @%carry add.u32 %image, %image, 1;
${pixel()}\
</%def>
