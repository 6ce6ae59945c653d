## One slice of K: C = alpha A B, or + beta C where beta is not zero (else C is not read, whatever is in it).
<%namespace name="ptx" file="/epilogue/c_elements.mako"/>
<%namespace name="fused_ops" file="/${context['plan'].fused_ops}"/>
<%def name="prepare()"></%def>

<%def name="store_tiles(store_c, math, store_op)">
    .reg .b64 %out;
    .reg .b32 %ldo;
    mov.b64 %out, ${plan.c_base};
    mov.b32 %ldo, %ldc;
${fused_ops.setup()}\
    ${plan.setp_ne} %p, %beta, ${plan.zero};
    @%p bra.uni WITH_BETA;
${store_c.store_tile(math, store_op, False)}\
    bra.uni STORED;
WITH_BETA:
${store_c.store_tile(math, store_op, True)}\
STORED:
</%def>

<%def name="store_vector(registers, at, offset, guard, add, row, column)">
    {
    ${plan.c_declaration}
% for kind, r, zero in plan.preinitialised:
    mov.${kind} ${r}, ${zero};
% endfor
${fused_ops.scale_product(registers, at, offset, guard, row, column)}\
% if add:
${ptx.load(at, offset, guard)}\
% for q, r in enumerate(registers):
    ${guard}${plan.fma} ${r}, %beta, ${plan.c_values[q]}, ${r};
% endfor
% endif
${fused_ops.finish(registers, at, offset, guard, row, column)}\
${ptx.store(registers, at, offset, guard)}\
    }
</%def>
