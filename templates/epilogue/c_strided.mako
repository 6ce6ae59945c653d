## Addresses of C, or of partial sums: rows at a leading dimension.
## at: the register that receives the address; row, column: registers with the element's row and column.
<%def name="element(at, row, column, base, ld, size)">
    mul.wide.u32 %tmp64, ${row}, ${ld};
    cvt.u64.u32 %tmp64b, ${column};
    add.u64 %tmp64, %tmp64, %tmp64b;
    mad.lo.u64 ${at}, %tmp64, ${size}, ${base};
</%def>

## The column as 64 bits in %tmp64b, where ``element`` has put it.
<%def name="column(column)"></%def>

## Several columns of several rows: ``columns`` sets up the columns, ``next_row`` advances by a row, ``column_address`` is the
## address of column n, ``offset`` its byte offset from that address.
<%def name="columns(at, row, column, base, ld, size)">${element(at, row, column, base, ld, size)}</%def>
<%def name="next_row(at, row, row_offset, step, ld, size)">
% if step:
    mad.wide.u32 ${at}, ${ld}, ${step * size}, ${at};
% endif
</%def>
<%def name="column_address(at, n, base, size)"></%def>
<%def name="offset(column, size)"><% return column * size %></%def>
