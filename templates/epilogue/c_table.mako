## Addresses of C by offset tables: the sum of a row's offset and a column's offset, in elements.
## at: the register that receives the address; row, column: registers with the element's row and column.
<%def name="element(at, row, column, base, ld, size)">
    {
    .reg .b64 %table;
    .reg .b32 %row_offset, %col_offset;
${look_up("%row_offset", "rows_c", row, 0)}\
${look_up("%col_offset", "columns_c", column, 0)}\
    add.s32 %row_offset, %row_offset, %col_offset;
    mad.wide.s32 ${at}, %row_offset, ${size}, ${base};
    }
</%def>

<%def name="look_up(into, table, number, ahead)">
    ld.param.u64 %table, [${table}];
    cvta.to.global.u64 %table, %table;
    mad.wide.u32 %table, ${number}, 4, %table;
    ld.global.nc.b32 ${into}, [%table+${4 * ahead}];
</%def>

## The column as 64 bits in %tmp64b.
<%def name="column(column)">
    cvt.u64.u32 %tmp64b, ${column};
</%def>

## Several columns of several rows: ``columns`` sets up the columns, ``next_row`` advances by a row, ``column_address`` is the
## address of column n, ``offset`` its byte offset from that address.
<%def name="columns(at, row, column, base, ld, size)">
    .reg .b64 %table;
    .reg .b32 %row_offset, %col_offset<${len(plan.epilogue.columns)}>;
% for n, ahead in enumerate(plan.epilogue.columns):
${look_up(f"%col_offset{n}", "columns_c", column, ahead)}\
% endfor
</%def>
<%def name="next_row(at, row, row_offset, step, ld, size)">
${look_up("%row_offset", "rows_c", row, row_offset)}\
</%def>
<%def name="column_address(at, n, base, size)">
    add.s32 %tmp0, %row_offset, %col_offset${n};
    mad.wide.s32 ${at}, %tmp0, ${size}, ${base};
</%def>
<%def name="offset(column, size)"><% return 0 %></%def>
