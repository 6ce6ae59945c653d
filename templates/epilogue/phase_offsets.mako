## Offsets of rows or columns of C that are pixels of a phase of a strided input gradient. Their number consists of an image and
## a position along each axis. Positions past the last pixel of the phase are out of bounds.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="runs" file="/epilogue/run_offsets.mako"/>
<%namespace name="radix" file="/addr/mixed_radix.mako"/>
<%def name="registers()"></%def>
<%def name="same_block(row, column)"></%def>
<%def name="locate(run, to, inside, rem, first, plus, block='')">
% if not run.axes:
${runs.locate(run, to, inside, rem, first, plus)}\
% else:
    {
    .reg .b32 %flat_index, %quotient, %position;
    setp.gt.s32 ${inside}, ${rem}, ${plus};
${constants.add("%flat_index", first, plus)}\
${position(run, to, inside)}\
    }
% endif
</%def>

## Elements from the start of C to a column; ``inside``: the predicate that the column is one of the pixels.
<%def name="column_offset(run, to, inside, first, plus)">
    {
    .reg .b32 %flat_index, %quotient, %position;
${constants.add("%flat_index", first, plus)}\
    setp.lt.u32 ${inside}, %flat_index, %N;
${position(run, to, inside)}\
    }
</%def>
<%def name="predicates(names)">
    .reg .pred ${names};
</%def>
<%def name="and_inside(predicate, *inside)">
% for other in inside:
    and.pred ${predicate}, ${predicate}, ${other};
% endfor
</%def>

## Elements from the start of C to position %flat_index; ``inside`` becomes false if it is past the last pixel along an axis.
<%def name="position(run, to, inside)">
    mov.u32 ${to}, 0;
% for a in run.axes:
${radix.divide("%quotient", "%flat_index", f"positions{a}")}\
    mul.lo.u32 %position, %quotient, %positions${a};
    sub.u32 %position, %flat_index, %position;
    setp.lt.and.u32 ${inside}, %position, %phase_pixels${a}, ${inside};
    mad.lo.u32 ${to}, %position, %step_${run.name}${a}, ${to};
    mov.u32 %flat_index, %quotient;
% endfor
    mad.lo.u32 ${to}, %flat_index, %image_step_${run.name}, ${to};
</%def>
