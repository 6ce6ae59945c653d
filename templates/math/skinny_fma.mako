## Scalar multiply-adds, or dp4a on four bytes, from registers.
<%namespace name="convert" file="/ptx/convert.mako"/>
<%namespace name="lanes" file="/math/lane_sum.mako"/>
<%def name="clear_accumulators()">
    .reg .b16 %half<4>;
    .reg .b32 %pair, %byte_pair<4>;
% for x in (plan.mainloop.elements_x, plan.mainloop.elements_y):
  % if not x.used_directly:
    ${x.tile.declaration}
  % endif
% endfor
% for r in plan.mainloop.acc.all:
    mov.${plan.mainloop.acc.kind} ${r}, ${plan.mainloop.acc_zero};
% endfor
</%def>

<%def name="multiply(step)">
% for r in plan.mainloop.rounds(step):
  % for u in r.unpacks:
${dict(halves=halves, fp8=fp8, bytes=bytes, transpose=transpose)[u.how](u.into, u.words)}\
  % endfor
  % for s, x, y in r.products:
    % if plan.mainloop.dp4a:
    dp4a.s32.s32 ${s}, ${x}, ${y}, ${s};
    % else:
    ${plan.mainloop.fma_op} ${s}, ${x}, ${y}, ${s};
    % endif
  % endfor
% endfor
</%def>

<%def name="products(step)">
${multiply(step)}\
</%def>

<%def name="halves(into, words)">
% if len(into) == 1:
${convert.widen(plan.problem.dtype, into[0], words[0])}\
% else:
${convert.widen_pair(plan.problem.dtype, into[0], into[1], words[0], ("%half0", "%half1"))}\
% endif
</%def>

## 8-bit floats, by way of f16, which holds all of them exactly.
<%def name="fp8(into, words)">
% if len(into) == 4:
    mov.b32 {%half0, %half1}, ${words[0]};
% else:
    mov.b16 %half0, ${words[0]};
% endif
% for n in range(0, len(into), 2):
    cvt.rn.f16x2.${plan.problem.dtype}x2 %pair, %half${n // 2};
    mov.b32 {%half2, %half3}, %pair;
    cvt.f32.f16 ${into[n]}, %half2;
  % if n + 1 < len(into):
    cvt.f32.f16 ${into[n + 1]}, %half3;
  % endif
% endfor
</%def>

<%def name="bytes(into, words)">
% if len(into) < 4:
    cvt.u32.u16 %pair, ${words[0]};
% endif
% for n, r in enumerate(into):
    bfe.s32 ${r}, ${"%pair" if len(into) < 4 else words[0]}, ${8 * n}, 8;
% endfor
</%def>

## Transpose 4 x 4 bytes: byte n of each word makes word n.
<%def name="transpose(into, words)">
    prmt.b32 %byte_pair0, ${words[0]}, ${words[1]}, 0x5140;
    prmt.b32 %byte_pair1, ${words[2]}, ${words[3]}, 0x5140;
    prmt.b32 %byte_pair2, ${words[0]}, ${words[1]}, 0x7362;
    prmt.b32 %byte_pair3, ${words[2]}, ${words[3]}, 0x7362;
% for n, r in enumerate(into):
    prmt.b32 ${r}, %byte_pair${n // 2 * 2}, %byte_pair${n // 2 * 2 + 1}, ${"0x7632" if n % 2 else "0x5410"};
% endfor
</%def>

## Lanes that split K add their sums by butterfly shuffles: every lane has the total.
<%def name="reduce_lanes()">
% if plan.mainloop.shuffle_masks:
${lanes.registers(plan.mainloop.acc.kind)}\
% endif
% for lane in plan.mainloop.shuffle_masks:
  % for r in plan.mainloop.acc.all:
${lanes.add_peer(r, lane, plan.mainloop.add_op)}\
  % endfor
% endfor
</%def>

## Row i of the thread's tile, times alpha, into %result.
<%def name="scaled_row(i)">
% for j in range(plan.mainloop.ns):
  % if plan.arithmetic.s32_to_f32:
    cvt.rn.f32.s32 ${plan.epilogue.vector[j]}, ${plan.mainloop.sum_at(i, j)};
    ${plan.arithmetic.mul} ${plan.epilogue.vector[j]}, ${plan.epilogue.vector[j]}, %alpha;
  % else:
    ${plan.arithmetic.mul} ${plan.epilogue.vector[j]}, ${plan.mainloop.sum_at(i, j)}, %alpha;
  % endif
% endfor
</%def>
