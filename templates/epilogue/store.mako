## One slice of K: C = alpha A B, or + beta C where beta is not zero (else C is not read, whatever is in it).
<%namespace name="ptx" file="/epilogue/c_elements.mako"/>
<%namespace name="after" file="/${context['plan'].after}"/>
<%def name="prepare()"></%def>

<%def name="leaving(leave, math, put)">
    .reg .b64 %out;
    .reg .b32 %ldo;
    mov.b64 %out, ${plan.item_c};
    mov.b32 %ldo, %ldc;
${after.setup()}\
    ${plan.differs} %p, %beta, ${plan.zero};
    @%p bra.uni ADD;
${leave.leave(math, put, False)}\
    bra.uni DONE;
ADD:
${leave.leave(math, put, True)}\
DONE:
</%def>

<%def name="vector(registers, at, offset, guard, add, row, column)">
    {
    ${plan.elements_declaration}
% for kind, r, zero in plan.begun:
    mov.${kind} ${r}, ${zero};
% endfor
${after.scaled(registers, at, offset, guard, row, column)}\
% if add:
${ptx.load(at, offset, guard)}\
% for q, r in enumerate(registers):
    ${guard}${plan.fma} ${r}, %beta, ${plan.wide_c[q]}, ${r};
% endfor
% endif
${after.finish(registers, at, offset, guard, row, column)}\
${ptx.store(registers, at, offset, guard)}\
    }
</%def>
