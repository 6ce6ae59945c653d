## Epilogue of one K slice: C = alpha A B, or alpha A B + beta C if beta is not zero. If beta is zero, C is not read, because it
## may hold NaN.
<%namespace name="c_elements" file="/epilogue/c_elements.mako"/>
<%namespace name="fused_ops" file="/${context['plan'].fused_ops.template}"/>
<%namespace name="slice_ops" file="/${context['plan'].slice_ops}"/>
## Defs of an auxiliary kernel over C: see splitk_kernels.mako.
<%def name="declare_scalars()">
% for group in plan.scalars_after_sums:
    .reg .${group.type} ${group.registers};
% endfor
</%def>
<%def name="load_scalars()">
% for group in plan.scalars_after_sums:
    ${group.load}
% endfor
</%def>
<%def name="setup_slices()">
${slice_ops.setup()}\
</%def>
<%def name="begin_slices()">
% for line in plan.arithmetic.set_has_beta:
    ${line}
% endfor
</%def>
<%def name="store_slices()">
${slice_ops.scale_product(plan.epilogue.stored, "%c_addr", 0, "", ("%c_row", 0), ("%c_col", 0))}\
${c_elements.load("%c_addr", 0, "@%has_beta ")}\
% for line in plan.epilogue.slices_plus_beta_c:
    ${line}
% endfor
${slice_ops.finish(plan.epilogue.stored, "%c_addr", 0, "", ("%c_row", 0), ("%c_col", 0))}\
${c_elements.store(plan.epilogue.stored, "%c_addr", 0, "")}\
</%def>

<%def name="prepare()"></%def>
<%def name="skip_tile()"></%def>

<%def name="store_tiles(store_c, math, store_op)">
    .reg .b64 %out;
    .reg .b32 %ld_out;
    mov.b64 %out, ${plan.batch.c_base};
    mov.b32 %ld_out, %ldc;
${fused_ops.setup()}\
% for line in plan.arithmetic.set_p_if_beta:
    ${line}
% endfor
    @%p bra.uni WITH_BETA;
    // ---- epilogue, beta = 0: C is not read
${store_c.store_tile(math, store_op, False)}\
    bra.uni STORED;
WITH_BETA:
    // ---- epilogue, beta != 0
${store_c.store_tile(math, store_op, True)}\
STORED:
</%def>

<%def name="store_vector(registers, at, offset, guard, add_c, row, column)">
    {
    ${plan.c.declaration}
% for ptx_type, r, zero in plan.c.preinitialised:
    mov.${ptx_type} ${r}, ${zero};
% endfor
${fused_ops.scale_product(registers, at, offset, guard, row, column)}\
% if add_c:
${c_elements.load(at, offset, guard)}\
  % for line in plan.arithmetic.multiply_add(registers, "beta", plan.c.values.all, guard):
    ${line}
  % endfor
% endif
${fused_ops.finish(registers, at, offset, guard, row, column)}\
${c_elements.store(registers, at, offset, guard)}\
    }
</%def>
