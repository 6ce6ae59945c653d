## Where elements of C are: at the sum of two offsets, a row's and a column's, that tables hold.
## at: the register for the address; row, column: numbers of an element.
<%def name="one(at, row, column, base, ld, size)">
    {
    .reg .b64 %table;
    .reg .b32 %of_row, %of_column;
${looked("%of_row", "rows_c", row, 0)}\
${looked("%of_column", "columns_c", column, 0)}\
    add.s32 %of_row, %of_row, %of_column;
    mad.wide.s32 ${at}, %of_row, ${size}, ${base};
    }
</%def>

<%def name="looked(into, table, number, ahead)">
    ld.param.u64 %table, [${table}];
    cvta.to.global.u64 %table, %table;
    mad.wide.u32 %table, ${number}, 4, %table;
    ld.global.nc.b32 ${into}, [%table+${4 * ahead}];
</%def>

## A column's number in %u64, after ``one``.
<%def name="column(column)">
    cvt.u64.u32 %u64, ${column};
</%def>

## Several of a row, row after row: which columns, the next row, the address and an offset to it of a column's element.
<%def name="columns(at, row, column, base, ld, size)">
    .reg .b64 %table;
    .reg .b32 %of_row, %of_column<${len(plan.columns)}>;
% for n, ahead in enumerate(plan.columns):
${looked(f"%of_column{n}", "columns_c", column, ahead)}\
% endfor
</%def>
<%def name="next(at, row, ahead, step, ld, size)">
${looked("%of_row", "rows_c", row, ahead)}\
</%def>
<%def name="of(at, n, base, size)">
    add.s32 %t0, %of_row, %of_column${n};
    mad.wide.s32 ${at}, %t0, ${size}, ${base};
</%def>
<%def name="offset(column, size)"><% return 0 %></%def>
