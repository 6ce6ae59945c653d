## Stores the value of each result to the element of C that its keys select, if the keys are in range.
<%namespace name="c_elements" file="/epilogue/c_elements.mako"/>
<%namespace name="values" file="/epilogue/result_values.mako"/>
<%def name="prepare()"></%def>
<%def name="skip_tile()">${values.skip_tile()}</%def>

<%def name="store_tiles(store_c, math, store_op)">
    .reg .b64 %out;
    .reg .b32 %ld_out;
    mov.b64 %out, %C;
    mov.b32 %ld_out, %ldc;
${setup_slices()}\
${store_c.store_tile(math, store_op, False)}\
</%def>

<%def name="store_vector(registers, at, offset, guard, add_c, row, column)">
${store_value(plan.values, registers, guard, row, column)}\
% if plan.values.mirror is not None:
    // ---- (j, i), from the sum of (i, j)
${store_value(plan.values.mirror, registers, guard, column, row)}\
% endif
</%def>

<%def name="store_value(of, registers, guard, row, column)">
<% (value,), (key_row,), (key_column,) = (of.of(n) for n in range(3)) %>\
    {
    .reg .pred %holds;
    .reg .b64 %element_at, %key_at;
    ${plan.c.declaration}
% for ptx_type, r, zero in plan.c.preinitialised:
    mov.${ptx_type} ${r}, ${zero};
% endfor
${values.declare(of)}\
${values.compute(registers, guard, row, column, of)}\
    setp.lt.u32 %holds, ${key_row}, %group_rows;
    setp.lt.and.u32 %holds, ${key_column}, %group_columns, %holds;
% for condition in of.conditions(0, guard):
    and.pred %holds, %holds, ${condition};
% endfor
    mul.wide.u32 %element_at, ${key_row}, %group_columns;
    cvt.u64.u32 %key_at, ${key_column};
    add.u64 %element_at, %element_at, %key_at;
    mad.lo.u64 %element_at, %element_at, ${plan.c.bytes}, %out_of_keys;
${c_elements.store([value], "%element_at", 0, "@%holds ")}\
    }
</%def>

## Defs of an auxiliary kernel over C: see splitk_kernels.mako.
<%def name="declare_scalars()">${values.declare_scalars()}</%def>
<%def name="load_scalars()">${values.load_scalars()}</%def>
<%def name="setup_slices()">
    .reg .b64 %out_of_keys;
    .reg .b32 %group_rows, %group_columns;
    ld.param.u64 %out_of_keys, [C];
    cvta.to.global.u64 %out_of_keys, %out_of_keys;
    ld.param.u32 %group_rows, [group_rows];  ld.param.u32 %group_columns, [group_columns];
${values.setup()}\
</%def>
<%def name="begin_slices()"></%def>
<%def name="store_slices()">
${store_value(plan.values, [plan.epilogue.vector[0]], "", ("%c_row", 0), ("%c_col", 0))}\
% if plan.values.mirror is not None:
    // ---- (j, i), from the sum of (i, j)
${store_value(plan.values.mirror, [plan.epilogue.vector[0]], "", ("%c_col", 0), ("%c_row", 0))}\
% endif
</%def>
