## Loads and stores of vectors of C, converted to and from the epilogue's type.
<%namespace name="convert" file="/ptx/convert.mako"/>
<%def name="load(at, offset, guard)">
    ${guard}ld.global.${plan.c_type} ${plan.loaded_c.vector(0, n=plan.loaded_c.size)}, [${at}+${offset}];
% if plan.is_s8:
% for q in range(plan.vec_c):
    ${guard}cvt.rn.f32.s32 ${plan.c_values[q]}, ${plan.loaded_c[q]};
% endfor
% elif plan.is_fp8:
% for q in range(0, plan.vec_c, 2):
${convert.widen_fp8(plan.problem.out, plan.c_values.all[q:q + 2], plan.loaded_c[q // 2], plan.pair_c[0], plan.half_c, guard)}\
% endfor
% elif plan.is_16bit:
% for q in range(0, plan.vec_c, 2):
% if plan.vec_c == 1:
${convert.widen(plan.problem.out, plan.c_values[0], plan.loaded_c[0], guard)}\
% else:
${convert.widen_pair(plan.problem.out, plan.c_values[q], plan.c_values[q + 1], plan.loaded_c[q // 2], plan.half_c, guard)}\
% endif
% endfor
% endif
</%def>

## A guarded conversion of a pair merges with the old halves, which costs instructions: where out-of-bounds sums are
## computed anyway (plan.computes_oob), only the store is guarded.
## plan.pack_8bit: the packed pair stays in the low half of the first register; the caller stores several pairs at once.
<%def name="store(registers, at, offset, guard)">
<% convert_guard = "" if plan.computes_oob else guard %>\
% if plan.pack_8bit and plan.is_fp8:
    cvt.rn.satfinite.${plan.problem.out}x2.f32 ${plan.loaded_c[0]}, ${registers[1]}, ${registers[0]};
    mov.b32 ${registers[0]}, {${plan.loaded_c[0]}, ${plan.loaded_c[0]}};
% elif plan.pack_8bit:
% for q, r in enumerate(registers):
    cvt.rni.sat.s8.f32 ${plan.loaded_c[q]}, ${r};
% endfor
    prmt.b32 ${registers[0]}, ${plan.loaded_c[0]}, ${plan.loaded_c[1]}, 0x0040;
% elif plan.is_s8:
% for q, r in enumerate(registers):
    ${guard}cvt.rni.sat.s8.f32 ${plan.loaded_c[q]}, ${r};
% endfor
    ${guard}st.global${plan.store_cache_op}.${plan.c_type} [${at}+${offset}], ${plan.loaded_c.vector(0, n=plan.loaded_c.size)};
% elif plan.is_fp8:
% for q in range(0, plan.vec_c, 2):
    ${guard}cvt.rn.satfinite.${plan.problem.out}x2.f32 ${plan.loaded_c[q // 2]}, ${registers[q + 1] if plan.vec_c > 1 else plan.zero}, ${registers[q]};
% endfor
    ${guard}st.global${plan.store_cache_op}.${plan.c_type} [${at}+${offset}], ${plan.loaded_c.vector(0, n=plan.loaded_c.size)};
% elif plan.is_16bit:
% for q in range(0, plan.vec_c, 2):
% if plan.vec_c == 1:
    ${guard}cvt.rn.${plan.problem.out}.f32 ${plan.loaded_c[0]}, ${registers[0]};
% else:
    ${convert_guard}cvt.rn.${plan.problem.out}.f32 ${plan.half_c[0]}, ${registers[q]};
    ${convert_guard}cvt.rn.${plan.problem.out}.f32 ${plan.half_c[1]}, ${registers[q + 1]};
    ${convert_guard}mov.b32 ${plan.loaded_c[q // 2]}, {${plan.half_c[0]}, ${plan.half_c[1]}};
% endif
% endfor
    ${guard}st.global${plan.store_cache_op}.${plan.c_type} [${at}+${offset}], ${plan.loaded_c.vector(0, n=plan.loaded_c.size)};
% else:
    ${guard}st.global${plan.store_cache_op}.${plan.c_type} [${at}+${offset}], ${plan.operand_list(registers)};
% endif
</%def>
