## Vectors of C between memory and the type that sums have.
<%def name="load(at, offset, guard)">
    ${guard}ld.global.${plan.c_type} ${plan.got_c.vector(0, n=plan.got_c.size)}, [${at}+${offset}];
% if plan.narrows:
% for q in range(0, plan.vec_c, 2):
% if plan.vec_c == 1:
    ${guard}cvt.f32.f16 ${plan.wide_c[0]}, ${plan.got_c[0]};
% else:
    ${guard}mov.b32 {${plan.half_c[0]}, ${plan.half_c[1]}}, ${plan.got_c[q // 2]};
    ${guard}cvt.f32.f16 ${plan.wide_c[q]}, ${plan.half_c[0]};
    ${guard}cvt.f32.f16 ${plan.wide_c[q + 1]}, ${plan.half_c[1]};
% endif
% endfor
% endif
</%def>

<%def name="store(registers, at, offset, guard)">
% if plan.narrows:
% for q in range(0, plan.vec_c, 2):
% if plan.vec_c == 1:
    ${guard}cvt.rn.f16.f32 ${plan.got_c[0]}, ${registers[0]};
% else:
    ${guard}cvt.rn.f16.f32 ${plan.half_c[0]}, ${registers[q]};
    ${guard}cvt.rn.f16.f32 ${plan.half_c[1]}, ${registers[q + 1]};
    ${guard}mov.b32 ${plan.got_c[q // 2]}, {${plan.half_c[0]}, ${plan.half_c[1]}};
% endif
% endfor
    ${guard}st.global${plan.stream}.${plan.c_type} [${at}+${offset}], ${plan.got_c.vector(0, n=plan.got_c.size)};
% else:
    ${guard}st.global${plan.stream}.${plan.c_type} [${at}+${offset}], ${plan.braced(registers)};
% endif
</%def>
