## Windows over images: K is taps times channels, in units of channels of a tap; rows are pixels. Nothing is divided but
## where a tile begins.
<%def name="setup()">
<% n = len(plan.axes) %>\
    // the unit: channel %c of tap %tap, which is %off0 (%off1 ...) pixels from the filter's first; axes innermost first
    .reg .b32 %c, %tap, %pixel<${n}>, %image, %off<${n}>, %channels, %taps;
% if plan.flipped:
    .reg .b32 %last, %back;
% endif
    .reg .b32 %places<${n}>, %lower<${n}>, %steps<${n}>, %wide<${n}>, %dilation<${n}>;
    .reg .b16 %offset<${n}>;
    .reg .pred %carry;
    ld.param.u32 %channels, [channels];  ld.param.u32 %taps, [taps];
% if plan.flipped:
    // taps of the filter run backwards
    sub.u32 %last, %taps, 1;
% endif
% for a in plan.axes:
    ld.param.u32 %places${a}, [places${a}];  ld.param.u32 %lower${a}, [lower${a}];  ld.param.u32 %steps${a}, [steps${a}];
    ld.param.u32 %wide${a}, [wide${a}];  ld.param.u32 %dilation${a}, [dilation${a}];
% endfor
</%def>

<%def name="begin()">
${pixel()}\
% if plan.slices_k:
    {
    .reg .b32 %each, %left;
    add.u32 %each, %channels, ${plan.unit - 1};
    div.u32 %each, %each, ${plan.unit};
    div.u32 %left, %k0, ${plan.unit};
    div.u32 %tap, %left, %each;
    mul.lo.u32 %each, %each, %tap;
    sub.u32 %c, %left, %each;
    mul.lo.u32 %c, %c, ${plan.unit};
    mov.u32 %left, %tap;
% for a in plan.axes:
    // wide: dilation times taps along the axis
    div.u32 %each, %wide${a}, %dilation${a};
    rem.u32 %off${a}, %left, %each;
    div.u32 %left, %left, %each;
    mul.lo.u32 %off${a}, %off${a}, %dilation${a};
% endfor
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
% if plan.images.role == "y" and plan.cluster > 1:
    mad.lo.u32 %left, %rank, ${plan.y.share}, %y0;
% else:
    mov.u32 %left, %${plan.images.role}0;
% endif
% for a in plan.axes:
    div.u32 %next, %left, %places${a};
    mul.lo.u32 %t, %next, %places${a};
    sub.u32 %t, %left, %t;
    mad.lo.u32 %pixel${a}, %t, %steps${a}, %lower${a};
    mov.u32 %left, %next;
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
