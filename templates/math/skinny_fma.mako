## Products of single elements, or of four bytes: an operand in registers by another.
<%namespace name="convert" file="/ptx/convert.mako"/>
<%def name="clear()">
    .reg .b16 %half<4>;
    .reg .b32 %pair, %k_thread<4>;
% for x in (plan.elements_x, plan.elements_y):
% if not x.plain:
    ${x.tile.declaration}
% endif
% endfor
% for r in plan.acc.all:
    mov.${plan.acc.kind} ${r}, ${plan.nothing};
% endfor
</%def>

<%def name="multiply(step)">
% for r in plan.rounds(step):
% for u in r.unpacks:
${dict(halves=halves, floats=floats, bytes=bytes, turn=turn)[u.how](u.into, u.words)}\
% endfor
% for s, x, y in r.products:
% if plan.quads:
    dp4a.s32.s32 ${s}, ${x}, ${y}, ${s};
% else:
    ${plan.grow} ${s}, ${x}, ${y}, ${s};
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

## Floating-point numbers of 8 bits: f16 holds them all.
<%def name="floats(into, words)">
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

## Four words of four bytes: byte n of each makes word n.
<%def name="turn(into, words)">
    prmt.b32 %turn0, ${words[0]}, ${words[1]}, 0x5140;
    prmt.b32 %turn1, ${words[2]}, ${words[3]}, 0x5140;
    prmt.b32 %turn2, ${words[0]}, ${words[1]}, 0x7362;
    prmt.b32 %turn3, ${words[2]}, ${words[3]}, 0x7362;
% for n, r in enumerate(into):
    prmt.b32 ${r}, %k_thread${n // 2 * 2}, %k_thread${n // 2 * 2 + 1}, ${"0x7632" if n % 2 else "0x5410"};
% endfor
</%def>

## Lanes that share K add their sums: all of them get all.
<%def name="meet()">
% if plan.partners:
    .reg .b32 %low, %high, %far_low, %far_high;
    .reg .${plan.acc.kind} %far;
% endif
% for lane in plan.partners:
% for r in plan.acc.all:
% if plan.epilogue_bytes == 8:
    mov.b64 {%low, %high}, ${r};
    shfl.sync.bfly.b32 %far_low, %low, ${lane}, 31, 0xffffffff;
    shfl.sync.bfly.b32 %far_high, %high, ${lane}, 31, 0xffffffff;
    mov.b64 %far, {%far_low, %far_high};
% else:
    shfl.sync.bfly.b32 %far, ${r}, ${lane}, 31, 0xffffffff;
% endif
    ${plan.join} ${r}, ${r}, %far;
% endfor
% endfor
</%def>

## Row i of the thread's tile, times alpha, into the registers e.
<%def name="row(i)">
% for j in range(plan.ns):
% if plan.s32_to_f32:
    cvt.rn.f32.s32 ${plan.row[j]}, ${plan.sum_at(i, j)};
    ${plan.mul} ${plan.row[j]}, ${plan.row[j]}, %alpha;
% else:
    ${plan.mul} ${plan.row[j]}, ${plan.sum_at(i, j)}, %alpha;
% endif
% endfor
</%def>
