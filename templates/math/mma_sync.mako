## mma.sync: a warp multiplies 16 x 8 tiles; fragments are loaded by ldmatrix or vector loads.
<%namespace name="matrix" file="/math/matrix_product.mako"/>
<%def name="clear_accumulators()">
% for x in plan.mainloop.operands:
    .reg .b32 ${x.swizzled_ptr};
% endfor
% if plan.mainloop.packed:
    .reg .b16 %half0, %half1;
% endif
% for r in plan.mainloop.acc.all:
    mov.${plan.mainloop.acc.kind} ${r}, ${plan.arithmetic.zero if plan.mainloop.acc.kind == plan.arithmetic.type else 0};
% endfor
</%def>

<%def name="read(x, k, buffer, part, guard='')">
% for r in plan.mainloop.fragment_loads(x, k, buffer, part):
  % if r.swizzle and not r.same_swizzle:
    xor.b32 ${x.swizzled_ptr}, ${x.fragment_ptrs[0]}, ${r.swizzle};
  % endif
  % if r.kind in ("x2", "x4"):
    ${guard}ldmatrix.sync.aligned.m8n8.${r.kind}${"" if x.kmajor else ".trans"}.shared.b16 ${r.registers}, [${x.address(r)}];
  % else:
    ${guard}ld.shared.${r.kind} ${r.registers}, [${x.address(r)}];
  % endif
% endfor
</%def>

<%def name="multiply(k, part)">
% for x in plan.mainloop.operands:
  % for to, low, high, selector in x.byte_permutes(x.buffer(k)):
    prmt.b32 ${to}, ${low}, ${high}, ${selector};
  % endfor
  % if plan.mainloop.rounding:
    % for n in range(x.tiles // part.of(x.name)):
      % for r in range(x.registers):
    ${plan.mainloop.rounding} ${x.fragment[x.buffer(k), n, r]}, ${x.fragment[x.buffer(k), n, r]};
      % endfor
    % endfor
  % endif
% endfor
% for to, register in plan.mainloop.inversions(k, part):
    not.b32 ${to}, ${register};
% endfor
% for sums, a, b in plan.mainloop.issued(k, part):
${matrix.product(plan.mainloop.instruction, sums, a, b)}\
% endfor
</%def>

## Row i of the lane's sums, scaled, into %result.
<%def name="scaled_row(i)">
% if plan.mainloop.packed:
  % for j in range(0, plan.mainloop.ns, 2):
    mov.b32 {%half0, %half1}, ${plan.mainloop.sum_at(i, j)};
    cvt.f32.f16 ${plan.epilogue.vector[j]}, %half0;
    cvt.f32.f16 ${plan.epilogue.vector[j + 1]}, %half1;
  % endfor
  % for j in range(plan.mainloop.ns):
    ${plan.epilogue.scaled(plan.epilogue.vector[j], plan.epilogue.vector[j])}
  % endfor
% else:
  % for j in range(plan.mainloop.ns):
    % if plan.arithmetic.s32_to_f32:
    cvt.rn.f32.s32 ${plan.epilogue.vector[j]}, ${plan.mainloop.sum_at(i, j)};
    % endif
    ${plan.epilogue.scaled(plan.epilogue.vector[j], plan.epilogue.vector[j] if plan.arithmetic.s32_to_f32 else plan.mainloop.sum_at(i, j))}
  % endfor
% endif
</%def>
