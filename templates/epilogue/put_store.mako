## One slice of K: C = alpha A B, or + beta C where beta is not zero (else C is not read, whatever is in it).
<%namespace name="ptx" file="/epilogue/elements.mako"/>
<%def name="prepare()"></%def>

<%def name="leaving(leave, math, put)">
    .reg .b64 %out;
    .reg .b32 %ldo;
    mov.b64 %out, %C;
    mov.b32 %ldo, %ldc;
    ${plan.differs} %p, %beta, ${plan.zero};
    @%p bra.uni ADD;
${leave.leave(math, put, False)}\
    bra.uni DONE;
ADD:
${leave.leave(math, put, True)}\
DONE:
</%def>

<%def name="vector(registers, at, offset, guard, add)">
    {
    ${plan.elements_declaration}
% for kind, r, zero in plan.begun:
    mov.${kind} ${r}, ${zero};
% endfor
% if add:
${ptx.load(at, offset, guard)}\
% for q, r in enumerate(registers):
    ${guard}${plan.fma} ${r}, %beta, ${plan.wide_c[q]}, ${r};
% endfor
% endif
${ptx.store(registers, at, offset, guard)}\
    }
</%def>
