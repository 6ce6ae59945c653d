## Rows and columns of C in runs of constant stride. The number of the run is computed by multiplication by a reciprocal.
<%namespace name="constants" file="/ptx/constants.mako"/>
## Elements from the start of C to a row or a column.
<%def name="offset(run, to, first, plus)">
${constants.add("%tmp0", first, plus)}\
    mul.lo.u32 ${to}, %tmp0, %step_${run.name};
% if run.has_gaps:
    mul.wide.u32 %product, %tmp0, %magic_${run.name};
    shr.u64 %product, %product, %shift_${run.name};
    cvt.u32.u64 %tmp0, %product;
    mad.lo.u32 ${to}, %tmp0, %run_gap_${run.name}, ${to};
% endif
</%def>

## The same of a column: no column is between the pixels of two rows.
<%def name="column_offset(run, to, inside, first, plus)">${offset(run, to, first, plus)}</%def>
<%def name="predicates(names)"></%def>
<%def name="and_inside(predicate, *inside)"></%def>

## The same, and whether the row or column is in C: it is if it is one of ``rem``, counted from ``first``.
<%def name="registers()"></%def>
<%def name="same_block(row, column)"></%def>
<%def name="locate(run, to, inside, rem, first, plus, block='')">
    setp.gt.s32 ${inside}, ${rem}, ${plus};
${offset(run, to, first, plus)}\
</%def>
