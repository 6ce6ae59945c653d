## Loads and stores of vectors of C, converted to and from the epilogue's type.
<%namespace name="convert" file="/ptx/convert.mako"/>
<%namespace name="pairs" file="/${context['plan'].c.pairs}"/>
<%def name="load(at, offset, guard)">
    ${guard}ld.global.${plan.c.type} ${plan.c.loaded[:]}, [${at}+${offset}];
% if plan.c.is_s8:
  % for q in range(plan.c.vec):
    ${guard}cvt.rn.f32.s32 ${plan.c.values[q]}, ${plan.c.loaded[q]};
  % endfor
% elif plan.c.in_pairs:
  % for word, values in plan.c.word_values:
${pairs.widen(values, word, guard)}\
  % endfor
% elif plan.c.is_16bit:
  % for word, values in plan.c.word_values:
    % if plan.c.vec == 1:
${convert.widen(plan.problem.out, values[0], word, guard)}\
    % else:
${convert.widen_pair(plan.problem.out, values[0], values[1], word, plan.c.half, guard)}\
    % endif
  % endfor
% endif
</%def>

## A guarded conversion of a pair merges with the old halves, which costs instructions: where out-of-bounds sums are
## computed anyway (plan.epilogue.computes_oob), only the store is guarded.
## plan.epilogue.pack_8bit: the packed pair stays in the low half of the first register; the caller stores several pairs at once.
<%def name="store(registers, at, offset, guard)">
<% convert_guard = "" if plan.epilogue.computes_oob else guard %>\
% if plan.epilogue.pack_8bit and plan.c.in_pairs:
${pairs.pack(plan.c.loaded[0], registers[0], registers[1], "")}\
    mov.b32 ${registers[0]}, {${plan.c.loaded[0]}, ${plan.c.loaded[0]}};
% elif plan.epilogue.pack_8bit:
  % for q, r in enumerate(registers):
    cvt.rni.sat.s8.f32 ${plan.c.loaded[q]}, ${r};
  % endfor
    prmt.b32 ${registers[0]}, ${plan.c.loaded[0]}, ${plan.c.loaded[1]}, 0x0040;
% elif plan.c.is_s8:
  % for q, r in enumerate(registers):
    ${guard}cvt.rni.sat.s8.f32 ${plan.c.loaded[q]}, ${r};
  % endfor
    ${guard}st.global${plan.c.store_cache_op}.${plan.c.type} [${at}+${offset}], ${plan.c.loaded[:]};
% elif plan.c.in_pairs:
<% upper = registers[1::2] or [plan.arithmetic.zero] %>\
  % for word, low, high in zip(plan.c.loaded.all, registers[::2], upper):
${pairs.pack(word, low, high, guard)}\
  % endfor
    ${guard}st.global${plan.c.store_cache_op}.${plan.c.type} [${at}+${offset}], ${plan.c.loaded[:]};
% elif plan.c.is_16bit:
  % if plan.c.vec == 1:
    ${guard}cvt.rn.${plan.problem.out}.f32 ${plan.c.loaded[0]}, ${registers[0]};
  % endif
  % for word, low, high in zip(plan.c.loaded.all, registers[::2], registers[1::2]):
    ${convert_guard}cvt.rn.${plan.problem.out}.f32 ${plan.c.half[0]}, ${low};
    ${convert_guard}cvt.rn.${plan.problem.out}.f32 ${plan.c.half[1]}, ${high};
    ${convert_guard}mov.b32 ${word}, ${plan.c.half[:]};
  % endfor
    ${guard}st.global${plan.c.store_cache_op}.${plan.c.type} [${at}+${offset}], ${plan.c.loaded[:]};
% else:
    ${guard}st.global${plan.c.store_cache_op}.${plan.c.type} [${at}+${offset}], ${operand_list(registers)};
% endif
</%def>
