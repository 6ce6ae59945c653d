## C = the value of an expression; the results for which another one holds are counted.
<%namespace name="values" file="/epilogue/result_values.mako"/>
<%namespace name="c_elements" file="/epilogue/c_elements.mako"/>
<%def name="prepare()"></%def>
<%def name="skip_tile()"></%def>

<%def name="store_tiles(store_c, math, store_op)">
    .reg .b64 %out, %near;
    .reg .b32 %ld_out;
    mov.b64 %out, ${plan.batch.c_base};
    mov.b32 %ld_out, %ldc;
${setup()}\
${store_c.store_tile(math, store_op, False)}\
</%def>

<%def name="setup()">
${values.setup()}\
    ld.param.u64 %near, [near];
    cvta.to.global.u64 %near, %near;
</%def>

<%def name="store_vector(registers, at, offset, guard, add_c, row, column)">
    {
    ${plan.c.declaration}
${values.declare()}\
${values.compute(registers, guard, row, column)}\
${c_elements.store(plan.values.of(0), at, offset, guard)}\
    .reg .pred %counted;
% for near in plan.values.of(1):
% if guard:
    and.pred %counted, ${near}, ${guard.strip().removeprefix("@")};
    @%counted red.global.add.u64 [%near], 1;
% else:
    @${near} red.global.add.u64 [%near], 1;
% endif
% endfor
    }
</%def>

## Defs of an auxiliary kernel over C: see splitk_kernels.mako.
<%def name="declare_scalars()">${values.declare_scalars()}</%def>
<%def name="load_scalars()">${values.load_scalars()}</%def>
<%def name="setup_slices()">
    .reg .b64 %near;
${setup()}\
</%def>
<%def name="begin_slices()"></%def>
<%def name="store_slices()">
${store_vector([plan.epilogue.vector[q] for q in range(plan.c.vec)], "%c_addr", 0, "", False, ("%c_row", 0), ("%c_col", 0))}\
</%def>
