## Windows over images: K is taps times channels, in units of channels of a tap; rows are pixels. Nothing is divided but
## where a tile begins.
<%namespace name="ptx" file="/addr/mixed_radix.mako"/>
<%def name="setup()">
<% n = len(plan.axes) %>\
    // the unit: channel %c of tap %tap, which is %off0 (%off1 ...) pixels from the filter's first; axes innermost first
    .reg .b32 %c, %tap, %pixel<${n}>, %image, %off<${n}>, %channels, %taps;
% if plan.flipped:
    .reg .b32 %last, %back;
% endif
    .reg .b16 %offset<${n}>;
    .reg .pred %carry;
    ld.param.u32 %channels, [channels];  ld.param.u32 %taps, [taps];
% if plan.slices_k:
    // units of a tap
    .reg .b32 %each;
    ld.param.u32 %each, [each];
% endif
% if plan.flipped:
    // taps of the filter run backwards
    sub.u32 %last, %taps, 1;
% endif
${ptx.axes()}\
</%def>

<%def name="begin()">
${pixel()}\
% if plan.slices_k:
    {
    .reg .b32 %left, %next, %t;
    div.u32 %left, %k0, ${plan.unit};
${ptx.divide("%tap", "%left", "each")}\
    mul.lo.u32 %t, %tap, %each;
    sub.u32 %c, %left, %t;
    mul.lo.u32 %c, %c, ${plan.unit};
    mov.u32 %left, %tap;
${ptx.offsets("%left", "%off")}\
    }
% else:
    mov.u32 %c, 0;
    mov.u32 %tap, 0;
% for a in plan.axes:
    mov.u32 %off${a}, 0;
% endfor
% endif
${found()}\
</%def>

## The first pixel of this block's rows.
<%def name="pixel()">
    {
    .reg .b32 %left, %next, %t;
% if plan.images.shared:
    mad.lo.u32 %left, ${plan.images.shared.mine}, ${plan.images.share}, %${plan.images.role}0;
% else:
    mov.u32 %left, %${plan.images.role}0;
% endif
${ptx.digits("%left", "%pixel")}\
% for a in plan.axes:
    mad.lo.u32 %pixel${a}, %pixel${a}, %steps${a}, %lower${a};
% endfor
    mov.u32 %image, %left;
    }
</%def>

## What a unit's copies need of its tap.
<%def name="found()">
% for a in plan.axes:
    cvt.u16.u32 %offset${a}, %off${a};
% endfor
% if plan.flipped:
    sub.u32 %back, %last, %tap;
% endif
</%def>

## The next unit. Past the last tap channels are out of bounds: zeros.
<%def name="step()">
    add.u32 %c, %c, ${plan.unit};
    setp.ge.u32 %carry, %c, %channels;
    @%carry mov.u32 %c, 0;
    @%carry add.u32 %tap, %tap, 1;
% for a in plan.axes:
    @%carry add.u32 %off${a}, %off${a}, %dilation${a};
    setp.ge.and.u32 %carry, %off${a}, %wide${a}, %carry;
    @%carry mov.u32 %off${a}, 0;
% endfor
    setp.ge.u32 %carry, %tap, %taps;
    @%carry mov.u32 %c, %channels;
${found()}\
</%def>
