## Loads of adjacent pixels of images or results, converted to the accumulators' type.
<%namespace name="convert" file="/ptx/convert.mako"/>
## %skip: the pixel with coordinates %at_word is outside the image; %t64: the address of the pixel at offset %at_x.
## (ptxas 13.0 crashes on a lop3 that setp.eq compares with 0; setp.ne is safe.)
<%def name="locate()">
    sub.u32 %t2, %high, %at_word;
    lop3.b32 %t1, %at_word, %t2, %guard, ${plan.OUT_OF_IMAGE_LUT};
    setp.ne.u32 %skip, %t1, 0;
    mad.wide.s32 %t64, %at_x, ${plan.size}, ${plan.images};
</%def>

<%def name="load(at, guard)">
<% loaded = plan.words if plan.size == 2 else plan.pixels %>\
% for r in loaded.all:
    mov.${loaded.kind} ${r}, ${"0" if plan.size == 2 else plan.zero};
% endfor
    ${guard}ld.global.nc.${plan.load_kind} ${plan.loaded}, [${at}];
% if plan.size == 2 and plan.vec == 1:
${convert.widen(plan.problem.dtype, plan.pixels[0], plan.words[0])}\
% elif plan.size == 2:
% for v in range(0, plan.vec, 2):
${convert.widen_pair(plan.problem.dtype, plan.pixels[v], plan.pixels[v + 1], plan.words[v // 2], plan.halves)}\
% endfor
% endif
</%def>
