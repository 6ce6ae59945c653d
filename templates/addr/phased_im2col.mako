## im2col loads of strided input gradients: rows are the pixels of a phase, K is the taps of the phase times channels. The taps
## of a phase and their offsets follow from its row in the table of phases.
<%namespace name="pixels" file="/${context['plan'].loads.pixels}"/>
<%namespace name="radix" file="/addr/mixed_radix.mako"/>
<%def name="setup()">
<% n = len(plan.loads.axes) %>\
    // a unit of K: channel %channel of tap %tap of the phase, which is tap %filter_tap of the filter, %tap_pixel0 (%tap_pixel1 ...)
    // pixels from the first position; the innermost axis first
    .reg .b32 %channel, %tap, %filter_tap, ${plan.images.pixel_registers}, %channels, %taps_of_phase;
    .reg .b32 %tap_pixel<${n}>, %first_tap_pixel<${n}>, %end_tap_pixel<${n}>, %tap_step<${n}>, %tap_span<${n}>;
${pixels.tap_registers()}\
    .reg .pred %carry;
    ld.param.u32 %channels, [channels];
% for a in plan.loads.axes:
    ld.param.u32 %tap_step${a}, [tap_step${a}];
% endfor
${radix.parameters()}\
</%def>

<%def name="begin()">
${pixels.first()}\
    // the first tap of the phase
    ld.global.nc.v2.u32 {%filter_tap, %taps_of_phase}, [%phase_row+8];
% for a in plan.loads.axes:
    ld.global.nc.u32 %first_tap_pixel${a}, [%phase_row+${plan.batch.tap_offsets[a]}];
    ld.global.nc.v2.u32 {%end_tap_pixel${a}, %tap_span${a}}, [%phase_row+${plan.batch.step_offsets[a]}];
    mov.u32 %tap_pixel${a}, %first_tap_pixel${a};
% endfor
    mov.u32 %tap, 0;
    mov.u32 %channel, 0;
${pixels.tap_offsets(plan.loads.axes)}\
</%def>

## The next unit: taps of the filter run backwards. Past the last tap channels are out of bounds: zeros.
<%def name="step()">
    add.u32 %channel, %channel, ${plan.loads.unit};
    setp.ge.u32 %carry, %channel, %channels;
    @%carry mov.u32 %channel, 0;
    @%carry add.u32 %tap, %tap, 1;
% for a in plan.loads.axes:
    @%carry add.u32 %tap_pixel${a}, %tap_pixel${a}, %dilation${a};
    @%carry sub.u32 %filter_tap, %filter_tap, %tap_step${a};
    setp.ge.and.u32 %carry, %tap_pixel${a}, %end_tap_pixel${a}, %carry;
    @%carry mov.u32 %tap_pixel${a}, %first_tap_pixel${a};
    @%carry add.u32 %filter_tap, %filter_tap, %tap_span${a};
% endfor
    setp.ge.u32 %carry, %tap, %taps_of_phase;
    @%carry mov.u32 %channel, %channels;
${pixels.tap_offsets(plan.loads.axes)}\
</%def>
