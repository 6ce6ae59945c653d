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
    mov.${plan.mainloop.acc.ptx_type} ${r}, ${plan.mainloop.acc_zero};
% endfor
</%def>

<%def name="multiply(step)">
% for r in plan.mainloop.rounds(step):
  % for u in r.unpacks:
${dict(halves=halves, fp8=fp8, bytes=bytes, transpose=transpose)[u.how](u)}\
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

<%def name="halves(u)">
% if len(u.into) == 1:
${convert.widen(u.dtype, u.into[0], u.words[0])}\
% else:
${convert.widen_pair(u.dtype, u.into[0], u.into[1], u.words[0], ("%half0", "%half1"))}\
% endif
</%def>

## 8-bit floats, by way of f16, which holds all of them exactly.
<%def name="fp8(u)">
% if len(u.into) == 4:
    mov.b32 {%half0, %half1}, ${u.words[0]};
% else:
    mov.b16 %half0, ${u.words[0]};
% endif
% for n, elements in enumerate(u.half_pairs):
    cvt.rn.f16x2.${u.dtype}x2 %pair, %half${n};
    mov.b32 {%half2, %half3}, %pair;
  % for half, r in zip(("%half2", "%half3"), elements):
    cvt.f32.f16 ${r}, ${half};
  % endfor
% endfor
</%def>

<%def name="bytes(u)">
% if len(u.into) == 4:
  % for r, bit in u.byte_places:
    bfe.s32 ${r}, ${u.words[0]}, ${bit}, 8;
  % endfor
% else:
    cvt.u32.u16 %pair, ${u.words[0]};
  % for r, bit in u.byte_places:
    bfe.s32 ${r}, %pair, ${bit}, 8;
  % endfor
% endif
</%def>

## Transpose 4 x 4 bytes: byte n of each word makes word n.
<%def name="transpose(u)">
    prmt.b32 %byte_pair0, ${u.words[0]}, ${u.words[1]}, 0x5140;
    prmt.b32 %byte_pair1, ${u.words[2]}, ${u.words[3]}, 0x5140;
    prmt.b32 %byte_pair2, ${u.words[0]}, ${u.words[1]}, 0x7362;
    prmt.b32 %byte_pair3, ${u.words[2]}, ${u.words[3]}, 0x7362;
    prmt.b32 ${u.into[0]}, %byte_pair0, %byte_pair1, 0x5410;
    prmt.b32 ${u.into[1]}, %byte_pair0, %byte_pair1, 0x7632;
    prmt.b32 ${u.into[2]}, %byte_pair2, %byte_pair3, 0x5410;
    prmt.b32 ${u.into[3]}, %byte_pair2, %byte_pair3, 0x7632;
</%def>

## Lanes that split K add their sums by butterfly shuffles: every lane has the total.
<%def name="reduce_lanes()">
% if plan.mainloop.shuffle_masks:
${lanes.registers(plan.mainloop.acc.ptx_type)}\
% endif
% for lane in plan.mainloop.shuffle_masks:
  % for r in plan.mainloop.acc.all:
${lanes.add_peer(r, lane, plan.mainloop.add_op)}\
  % endfor
% endfor
</%def>

## Row i of the thread's tile, times alpha, into %result.
<%def name="scaled_row(i)">
% for to, sum in zip(plan.epilogue.vector.all, plan.mainloop.row_sums[i]):
  % if plan.arithmetic.s32_to_f32:
    cvt.rn.f32.s32 ${to}, ${sum};
    ${plan.arithmetic.mul} ${to}, ${to}, %alpha;
  % else:
    ${plan.arithmetic.mul} ${to}, ${sum}, %alpha;
  % endif
% endfor
</%def>
