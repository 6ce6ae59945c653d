## Windows over images, whose pixels K runs over: a column is a channel of a tap, which a tile settles for all its boxes.
<%namespace name="ptx" file="/addr/mixed_radix.mako"/>
<%def name="setup()">
<% n, boxes = len(plan.axes), len(plan.images.boxes) %>\
    // K's place %k as a pixel: digits %at0 (%at1 ...) and %image; %far: digits of a stage's depth
    .reg .b32 %c<${boxes}>, %pixel<${n}>, %at<${n}>, %far<${n + 1}>, %image, %channels, %taps;
    .reg .b16 %offset<${boxes * n}>;
    .reg .pred %carry;
    ld.param.u32 %channels, [channels];  ld.param.u32 %taps, [taps];
${ptx.axes()}\
${digits(str(plan.config.u), "%far", f"%far{n}")}\
</%def>

<%def name="digits(number, to, last)">
    {
    .reg .b32 %left, %next, %t;
    mov.u32 %left, ${number};
${ptx.digits("%left", to)}\
    mov.u32 ${last}, %left;
    }
</%def>

<%def name="begin()">
    mov.u32 %k, %k0;
${digits("%k0", "%at", "%image")}\
${pixel()}\
    {
    .reg .b32 %first, %column, %tap, %next, %t, %off<${len(plan.axes)}>;
% if plan.images.shared:
    mad.lo.u32 %first, ${plan.images.shared.mine}, ${plan.images.share}, %${plan.images.role}0;
% else:
    mov.u32 %first, %${plan.images.role}0;
% endif
% for n, column in enumerate(plan.images.columns):
    add.u32 %column, %first, ${column};
${ptx.divide("%tap", "%column", "channels")}\
    mul.lo.u32 %t, %tap, %channels;
    sub.u32 %c${n}, %column, %t;
    // past the last tap channels are out of bounds: zeros
    setp.ge.u32 %carry, %tap, %taps;
    @%carry mov.u32 %c${n}, %channels;
${ptx.offsets("%tap", "%off")}\
% for a in plan.axes:
    cvt.u16.u32 %offset${n * len(plan.axes) + a}, %off${a};
% endfor
% endfor
    }
</%def>

<%def name="pixel()">
% for a in plan.axes:
    mad.lo.u32 %pixel${a}, %at${a}, %steps${a}, %lower${a};
% endfor
</%def>

## A stage's depth further.
<%def name="step()">
    add.u32 %k, %k, ${plan.config.u};
    setp.ne.u32 %carry, %k, %k;
% for a in plan.axes:
    add.u32 %at${a}, %at${a}, %far${a};
    @%carry add.u32 %at${a}, %at${a}, 1;
    setp.ge.u32 %carry, %at${a}, %places${a};
    @%carry sub.u32 %at${a}, %at${a}, %places${a};
% endfor
    add.u32 %image, %image, %far${len(plan.axes)};
    @%carry add.u32 %image, %image, 1;
${pixel()}\
</%def>
