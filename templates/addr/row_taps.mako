## im2col loads of stages with taps of a filter row: K is rows of taps times channels. A stage has whole units, so no unit is
## past the last row. With a stride, a row has several parts, whose first taps are adjacent.
<%namespace name="pixels" file="/addr/im2col_pixels.mako"/>
<%namespace name="radix" file="/addr/mixed_radix.mako"/>
<%def name="setup()">
<% n = len(plan.loads.axes) %>\
% if plan.loads.filter_row:
    // a stage: channel %channel of the taps of filter row %filter_tap from tap %tap_pixel0 on, %tap_pixel1 (%tap_pixel2) pixels from
    // the filter's first row; %box_tap: the tap of a box
% else:
    // a stage: channel %channel of the row that begins with tap %filter_tap, %tap_pixel1 (%tap_pixel2) pixels from the filter's first
    // row; %box_tap: the tap of a box
% endif
    .reg .b32 %channel, %channels, %filter_tap, %box_tap, %pixel<${n}>, %image, %tap_pixel<${n}>, %tap_step<${n}>;
${pixels.tap_registers()}\
    .reg .pred %carry;
    ld.param.u32 %channels, [channels];
% for a in plan.loads.stepped_axes:
    ld.param.u32 %tap_step${a}, [tap_step${a}];
% endfor
% if not plan.loads.filter_row:
    mov.b16 %im2col_offset0, 0;
% endif
${radix.parameters()}\
</%def>

<%def name="begin()">
${pixels.first()}\
    ld.global.nc.u32 %filter_tap, [%phase_row+8];
    mov.u32 %channel, 0;
% for a in plan.loads.stepped_axes:
    mov.u32 %tap_pixel${a}, 0;
% endfor
${pixels.tap_offsets(plan.loads.stepped_axes)}\
</%def>

## The next channels, or the next row of taps.
<%def name="step()">
    add.u32 %channel, %channel, ${plan.loads.unit};
    setp.ge.u32 %carry, %channel, %channels;
    @%carry mov.u32 %channel, 0;
% for a in plan.loads.stepped_axes:
    @%carry add.u32 %tap_pixel${a}, %tap_pixel${a}, %dilation${a};
    @%carry sub.u32 %filter_tap, %filter_tap, %tap_step${a};
  % if a < plan.loads.axes[-1]:
    setp.ge.and.u32 %carry, %tap_pixel${a}, %filter_extent${a}, %carry;
    @%carry mov.u32 %tap_pixel${a}, 0;
    @%carry mad.lo.u32 %filter_tap, %taps${a}, %tap_step${a}, %filter_tap;
  % endif
% endfor
${pixels.tap_offsets(plan.loads.stepped_axes)}\
</%def>
