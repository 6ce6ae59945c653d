## C = the value of an expression: of the sum, of elements with the same row and column, of scalars.
<%namespace name="c_elements" file="/epilogue/c_elements.mako"/>
<%namespace name="values" file="/epilogue/result_values.mako"/>
<%def name="prepare()"></%def>
<%def name="skip_tile()">${values.skip_tile()}</%def>

<%def name="store_tiles(store_c, math, store_op)">
    .reg .b64 %out;
    .reg .b32 %ld_out;
    mov.b64 %out, ${plan.batch.c_base};
    mov.b32 %ld_out, %ldc;
${values.setup()}\
${store_c.store_tile(math, store_op, False)}\
</%def>

<%def name="store_vector(registers, at, offset, guard, add_c, row, column)">
    {
    ${plan.c.declaration}
% for ptx_type, r, zero in plan.c.preinitialised:
    mov.${ptx_type} ${r}, ${zero};
% endfor
${values.declare()}\
${values.compute(registers, guard, row, column)}\
% if plan.problem.sink.guard is not None:
    .reg .pred %holds;
    ${plan.values.holds(0, guard)}
${c_elements.store(plan.values.of(0), at, offset, "@%holds ")}\
% else:
${c_elements.store(plan.values.of(0), at, offset, guard)}\
% endif
    }
</%def>

## Defs of an auxiliary kernel over C: see splitk_kernels.mako.
<%def name="declare_scalars()">${values.declare_scalars()}</%def>
<%def name="load_scalars()">${values.load_scalars()}</%def>
<%def name="setup_slices()">${values.setup()}</%def>
<%def name="begin_slices()"></%def>
<%def name="store_slices()">
${store_vector([plan.epilogue.vector[q] for q in range(plan.c.vec)], "%c_addr", 0, "", False, ("%c_row", 0), ("%c_col", 0))}\
</%def>
