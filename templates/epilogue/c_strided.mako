## Where elements of C are: it has rows at a leading dimension.
## at: the register for the address; row, column: numbers of an element.
<%def name="one(at, row, column, base, ld, size)">
    mul.wide.u32 %t64, ${row}, ${ld};
    cvt.u64.u32 %u64, ${column};
    add.u64 %t64, %t64, %u64;
    mad.lo.u64 ${at}, %t64, ${size}, ${base};
</%def>

## A column's number in %u64, after ``one``.
<%def name="column(column)"></%def>

## Several of a row, row after row: which columns, the next row, the address and an offset to it of a column's element.
<%def name="columns(at, row, column, base, ld, size)">${one(at, row, column, base, ld, size)}</%def>
<%def name="next(at, row, ahead, step, ld, size)">
% if step:
    mad.wide.u32 ${at}, ${ld}, ${step * size}, ${at};
% endif
</%def>
<%def name="of(at, n, base, size)"></%def>
<%def name="offset(column, size)"><% return column * size %></%def>
