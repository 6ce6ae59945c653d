## Combines what was loaded to the boxes of a subtile, C or an elementwise operand, with the sums in registers.
<%namespace name="convert" file="/ptx/convert.mako"/>
<%def name="add(s, c, operation)">
% for stmatrix in c.stmatrices:
${combine(s, stmatrix, operation, stmatrix.registers, ("%c_val0", "%c_val1"))}\
% endfor
</%def>

## operation(register, element) for the elements of one stmatrix and the registers ``pairs``; ``wide``: two registers for
## elements in f32.
<%def name="combine(s, stmatrix, operation, pairs, wide)">
    ldmatrix.sync.aligned.m8n8.x${len(stmatrix.registers)}${s.trans}.shared.b16 ${s.words(stmatrix)}, [%stmatrix_row${stmatrix.variant}+${stmatrix.offset}];
% for n, (low, high) in enumerate(pairs):
${convert.widen_pair(plan.problem.out, *wide, f"%word{n}", ("%half0", "%half1"))}\
${operation(low, wide[0])}\
${operation(high, wide[1])}\
% endfor
</%def>

<%def name="beta_c(r, element)">
    fma.rn.f32 ${r}, ${element}, %beta, ${r};
</%def>

<%def name="residual(r, element)">
    add.rn.f32 ${r}, ${r}, ${element};
</%def>
