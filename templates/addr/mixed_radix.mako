## Mixed-radix digits along the axes of images, the innermost first. Divisors are parameters of the launch, so that a
## division is a multiplication and a shift; numbers are below 2^31.
<%def name="parameters()">
<% n = len(plan.loads.axes) %>\
    .reg .b32 %positions<${n}>, %lower_corner<${n}>, %stride<${n}>, %taps<${n}>, %filter_extent<${n}>, %dilation<${n}>;
    .reg .b64 %product;
% for a in plan.loads.axes:
    ld.param.u32 %positions${a}, [positions${a}];  ld.param.u32 %lower_corner${a}, [lower_corner${a}];  ld.param.u32 %stride${a}, [stride${a}];
    ld.param.u32 %taps${a}, [taps${a}];  ld.param.u32 %filter_extent${a}, [filter_extent${a}];  ld.param.u32 %dilation${a}, [dilation${a}];
% endfor
% for name in plan.loads.dividers:
    .reg .b32 %magic_${name}, %shift_${name};
    ld.param.u32 %magic_${name}, [magic_${name}];  ld.param.u32 %shift_${name}, [shift_${name}];
% endfor
</%def>

<%def name="divide(to, number, divisor)">
    mul.wide.u32 %product, ${number}, %magic_${divisor};
    shr.u64 %product, %product, %shift_${divisor};
    cvt.u32.u64 ${to}, %product;
</%def>

## The digits of a pixel's number; ``rest`` becomes the number of the image. Needs %quotient and %tmp.
<%def name="digits(rest, to)">
% for a in plan.loads.axes:
${divide("%quotient", rest, f"positions{a}")}\
    mul.lo.u32 %tmp, %quotient, %positions${a};
    sub.u32 ${to}${a}, ${rest}, %tmp;
    mov.u32 ${rest}, %quotient;
% endfor
</%def>

## The pixels from the filter's first tap to tap ``rest``. Needs %quotient and %tmp.
<%def name="offsets(rest, to)">
% for a in plan.loads.axes[:-1]:
${divide("%quotient", rest, f"taps{a}")}\
    mul.lo.u32 %tmp, %quotient, %taps${a};
    sub.u32 %tmp, ${rest}, %tmp;
    mul.lo.u32 ${to}${a}, %tmp, %dilation${a};
    mov.u32 ${rest}, %quotient;
% endfor
    mul.lo.u32 ${to}${plan.loads.axes[-1]}, ${rest}, %dilation${plan.loads.axes[-1]};
</%def>
