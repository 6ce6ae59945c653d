## mma.sync: a warp multiplies 16 x 8 tiles; fragments are loaded by ldmatrix or vector loads.
<%namespace name="scales" file="/${context['plan'].scales.template}"/>
<%def name="clear_accumulators()">
% for x in plan.mainloop.operands:
    .reg .b32 ${x.swizzled_ptr};
% endfor
% if plan.mainloop.packed:
    .reg .b16 %half0, %half1;
% endif
% for r in plan.mainloop.acc.all:
    mov.${plan.mainloop.acc.ptx_type} ${r}, ${plan.mainloop.acc_zero};
% endfor
${scales.setup()}\
</%def>

<%def name="read(x, k, buffer, part, guard='')">
% for r in plan.mainloop.fragment_loads(x, k, buffer, part):
  % if r.swizzle and not r.same_swizzle:
    xor.b32 ${x.swizzled_ptr}, ${x.fragment_ptrs[0]}, ${r.swizzle};
  % endif
  % if r.ptx_type in ("x2", "x4"):
    ${guard}ldmatrix.sync.aligned.m8n8.${r.ptx_type}${x.trans}.shared.b16 ${r.registers}, [${r.address}];
  % else:
    ${guard}ld.shared.${r.ptx_type} ${r.registers}, [${r.address}];
  % endif
% endfor
</%def>

<%def name="multiply(k, part)">
${scales.begin_step(k)}\
% for x in plan.mainloop.operands:
  % for to, low, high, selector in x.byte_permutes(x.buffer(k)):
    prmt.b32 ${to}, ${low}, ${high}, ${selector};
  % endfor
  % if plan.mainloop.rounding:
    % for r in plan.mainloop.rounded(x, k, part):
    ${plan.mainloop.rounding} ${r}, ${r};
    % endfor
  % endif
% endfor
% for line in plan.mainloop.inversions(k, part):
    ${line}
% endfor
% for sums, a, b in plan.mainloop.issued(k, part):
${scales.product(plan.mainloop.instruction, sums, a, b)}\
% endfor
</%def>

## Row i of the lane's sums, scaled, into %result.
<%def name="scaled_row(i)">
% if plan.mainloop.packed:
  % for sums, (low, high) in zip(plan.mainloop.row_sums[i], plan.epilogue.vector_pairs):
    mov.b32 {%half0, %half1}, ${sums};
    cvt.f32.f16 ${low}, %half0;
    cvt.f32.f16 ${high}, %half1;
  % endfor
  % for line in plan.epilogue.scaled_row():
    ${line}
  % endfor
% elif plan.arithmetic.s32_to_f32:
  % for to, sum, line in zip(plan.epilogue.vector.all, plan.mainloop.row_sums[i], plan.epilogue.scaled_row()):
    cvt.rn.f32.s32 ${to}, ${sum};
    ${line}
  % endfor
% else:
  % for line in plan.epilogue.scaled_row(plan.mainloop.row_sums[i]):
    ${line}
  % endfor
% endif
</%def>
