## im2col loads: rows are pixels; K is taps times channels, in units of channels of one tap. Only the start of a tile needs
## divisions.
<%namespace name="pixels" file="/${context['plan'].loads.pixels}"/>
<%namespace name="radix" file="/addr/mixed_radix.mako"/>
<%def name="setup()">
<% n = len(plan.loads.axes) %>\
    // a unit of K: channel %channel of tap %tap, %tap_pixel0 (%tap_pixel1 ...) pixels from the filter's first tap; the innermost axis first
    .reg .b32 %channel, %tap, ${plan.images.pixel_registers}, %tap_pixel<${n}>, %channels, %taps;
% if plan.loads.flipped:
    .reg .b32 %last_tap, %filter_tap;
% endif
${pixels.tap_registers()}\
    .reg .pred %carry;
    ld.param.u32 %channels, [channels];  ld.param.u32 %taps, [taps];
% if plan.scheduler.splits_k:
    .reg .b32 %units_per_tap;
    ld.param.u32 %units_per_tap, [units_per_tap];
% endif
% if plan.loads.flipped:
    // the filter is flipped: taps are in reverse order
    sub.u32 %last_tap, %taps, 1;
% endif
${radix.parameters()}\
</%def>

<%def name="begin()">
${pixels.first()}\
% if plan.scheduler.splits_k:
    {
    .reg .b32 %flat_index, %quotient, %tmp;
    div.u32 %flat_index, %k0, ${plan.loads.unit};
${radix.divide("%tap", "%flat_index", "units_per_tap")}\
    mul.lo.u32 %tmp, %tap, %units_per_tap;
    sub.u32 %channel, %flat_index, %tmp;
    mul.lo.u32 %channel, %channel, ${plan.loads.unit};
    mov.u32 %flat_index, %tap;
${radix.offsets("%flat_index", "%tap_pixel")}\
    }
% else:
    mov.u32 %channel, 0;
    mov.u32 %tap, 0;
  % for a in plan.loads.axes:
    mov.u32 %tap_pixel${a}, 0;
  % endfor
% endif
${tap_offsets()}\
</%def>

## The operands of a unit's copies that follow from its tap.
<%def name="tap_offsets()">
${pixels.tap_offsets(plan.loads.axes)}\
% for line in plan.loads.reversed_tap:
    ${line}
% endfor
</%def>

## The next unit. Past the last tap channels are out of bounds: zeros.
<%def name="step()">
    add.u32 %channel, %channel, ${plan.loads.unit};
    setp.ge.u32 %carry, %channel, %channels;
    @%carry mov.u32 %channel, 0;
    @%carry add.u32 %tap, %tap, 1;
% for a in plan.loads.axes:
    @%carry add.u32 %tap_pixel${a}, %tap_pixel${a}, %dilation${a};
    setp.ge.and.u32 %carry, %tap_pixel${a}, %filter_extent${a}, %carry;
    @%carry mov.u32 %tap_pixel${a}, 0;
% endfor
    setp.ge.u32 %carry, %tap, %taps;
    @%carry mov.u32 %channel, %channels;
${tap_offsets()}\
</%def>
