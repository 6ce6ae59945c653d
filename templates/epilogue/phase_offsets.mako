## Rows of C in a phase of a strided input gradient: a row is an image and a position along each axis, and the positions of
## the phase have pixels of C.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="runs" file="/epilogue/run_offsets.mako"/>
<%namespace name="radix" file="/addr/mixed_radix.mako"/>
<%def name="locate(run, to, inside, rem, first, plus)">
% if run.name == "columns":
${runs.locate(run, to, inside, rem, first, plus)}\
% else:
    {
    .reg .b32 %rest, %next, %position;
    setp.gt.s32 ${inside}, ${rem}, ${plus};
${constants.add("%rest", first, plus)}\
    mov.u32 ${to}, 0;
% for a in run.axes:
${radix.divide("%next", "%rest", f"positions{a}")}\
    mul.lo.u32 %position, %next, %positions${a};
    sub.u32 %position, %rest, %position;
    setp.lt.and.u32 ${inside}, %position, %phase_pixels${a}, ${inside};
    mad.lo.u32 ${to}, %position, %step_${run.name}${a}, ${to};
    mov.u32 %rest, %next;
% endfor
    mad.lo.u32 ${to}, %rest, %image_step_${run.name}, ${to};
    }
% endif
</%def>
