## A word of 16 bits that holds two 8-bit floats.
<%namespace name="convert" file="/ptx/convert.mako"/>
<%def name="widen(values, word, guard)">
${convert.widen_fp8(plan.problem.out, values, word, plan.c.pair[0], plan.c.half, guard)}\
</%def>

<%def name="pack(word, low, high, guard)">
    ${guard}cvt.rn.satfinite.${plan.problem.out}x2.f32 ${word}, ${high}, ${low};
</%def>
