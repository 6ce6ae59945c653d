## Combines the data loaded to the boxes of a subtile (C or an elementwise operand) with the sums in registers.
<%namespace name="convert" file="/ptx/convert.mako"/>
<%namespace name="fused_step" file="/epilogue/fused_step.mako"/>
## ``step``: of a fused operation, with the elements as its operand; None: beta times the elements are added.
<%def name="add(s, c, step)">
% for stmatrix in c.stmatrices:
${combine(s, stmatrix, step, stmatrix.registers, ("%c_val0", "%c_val1"))}\
% endfor
</%def>

## A step on the registers ``pairs`` and the elements of one stmatrix; ``wide``: two registers for elements in f32.
<%def name="combine(s, stmatrix, step, pairs, wide)">
    ldmatrix.sync.aligned.m8n8.x${len(stmatrix.registers)}${s.trans}.shared.b16 ${stmatrix.words}, [%stmatrix_row${stmatrix.variant}+${stmatrix.offset}];
% for n, (low, high) in enumerate(pairs):
${convert.widen_pair(plan.problem.out, *wide, f"%word{n}", ("%half0", "%half1"))}\
  % for r, element in zip((low, high), wide):
    % if step is None:
    fma.rn.f32 ${r}, ${element}, %beta, ${r};
    % else:
${fused_step.on(step, r, element)}\
    % endif
  % endfor
% endfor
</%def>
