## One element of C is a word, which a gated activation makes from two adjacent sums. C is not read, because beta is 0.
<%namespace name="fused_step" file="/epilogue/fused_step.mako"/>
<%def name="widen(values, word, guard)">
% for r in values:
    mov.f32 ${r}, 0f00000000;
% endfor
</%def>

## Without the guard: guarded instructions keep the registers' values of the tile before, and ptxas spills.
<%def name="pack(word, low, high, guard)">
    {
    .reg .f32 %elem;
    .reg .pred %is_negative;
% for line in plan.fused_ops.declarations:
    ${line}
% endfor
% for step in plan.fused_ops.gates:
${fused_step.on(step, low, high)}\
% endfor
% if plan.c.pair_type == "f32":
    mov.b32 ${word}, ${low};
% else:
    cvt.rn.${plan.c.pair_type}.f32 ${word}, ${low};
% endif
    }
</%def>
