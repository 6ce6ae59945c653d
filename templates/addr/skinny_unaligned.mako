## Rows that nothing aligns: from each, whole chunks of 16 bytes; element by element what lies before and behind them.
<%namespace name="streamed" file="/addr/skinny.mako"/>
<%namespace name="places" file="/${context['plan'].lane_places}"/>
<%def name="setup()">
<% x, y, own = plan.x, plan.y, "%col" if plan.config.transposed_mma else "%row" %>\
    .reg .b32 %head, %k_end, %k_thread;
${places.lanes()}\
    sub.u32 %k_thread, %k_pos, %k0;
    // ${x.upper}: ${len(x.rows)} rows along K; past the last, this thread's first
    .reg .b64 %ptr_${x.name}<${len(x.rows)}>;
    add.u32 %t1, %${x.extent.lower()}0, ${own};
    sub.u32 %t2, %${x.extent}, 1;
    min.u32 %t1, %t1, %t2;
    mul.wide.u32 %t64, %t1, %ld${x.name};
    mad.lo.u64 %ptr_${x.name}0, %t64, ${x.size}, %${x.upper};
% for n, row in enumerate(x.rows[1:], 1):
    add.u32 %t0, %t1, ${row};
    setp.lt.u32 %p, %t0, %${x.extent};
    selp.b32 %t0, %t0, %t1, %p;
    mul.wide.u32 %t64, %t0, %ld${x.name};
    mad.lo.u64 %ptr_${x.name}${n}, %t64, ${x.size}, %${x.upper};
% endfor
% if x.paired:
    // %head: elements before the first vector that is cut from two chunks
    mov.u32 %head, ${x.vec};
    .reg .b32 %within, %bits, %near<6>;
    .reg .pred %two, %one;
    // %within: bytes from a chunk's first to where these rows begin; of which whole words, and bits
    cvt.u32.u64 %within, %ptr_${x.name}0;
    and.b32 %within, %within, 15;
    and.b32 %t0, %within, 8;
    setp.ne.u32 %two, %t0, 0;
    and.b32 %t0, %within, 4;
    setp.ne.u32 %one, %t0, 0;
    and.b32 %bits, %within, 3;
    shl.b32 %bits, %bits, 3;
% else:
    // %head: elements before the first whole chunk, of all these rows
    cvt.u32.u64 %t0, %ptr_${x.name}0;
    neg.s32 %t0, %t0;
    and.b32 %t0, %t0, 15;
    shr.u32 %head, %t0, ${plan.log2_size};
% endif
    add.u32 %k_pos, %k_pos, %head;
    cvt.u64.u32 %t64, %k_pos;
% for n in range(len(x.rows)):
    mad.lo.u64 %ptr_${x.name}${n}, %t64, ${x.size}, %ptr_${x.name}${n};
% if x.paired:
    and.b64 %ptr_${x.name}${n}, %ptr_${x.name}${n}, -16;
% endif
% endfor
    // %k_end: where this slice's share ends
    add.u32 %k_end, %k0, %k_len;
    add.u32 %k_end, %k_end, %head;
    min.u32 %k_end, %k_end, %K;
    // whole passes of all threads, wherever their rows begin
    sub.s32 %t0, %K, %k0;
    sub.s32 %t0, %t0, ${plan.slack};
    min.s32 %k_len, %k_len, %t0;
    max.s32 %k_len, %k_len, 0;
${streamed.pointers(y, plan.own_y)}\
</%def>

## Where the last whole vector ends, at most.
<%def name="last(to)">
% if plan.reserve:
    sub.s32 ${to}, %K, ${plan.reserve};
    min.s32 ${to}, ${to}, %k_end;
% else:
    mov.u32 ${to}, %k_end;
% endif
</%def>

<%def name="rest()">
    add.u32 %k_pos, %k_pos, %t0;
${last("%t0")}\
    sub.s32 %t0, %t0, ${plan.x.vec - 1};
    max.s32 %t0, %t0, 0;
</%def>

## Fewer elements than a vector: those behind by the first threads along K, those before by the next.
<%def name="ragged(math)">
<% x, y = plan.x, plan.y %>\
    .reg .b32 %start, %stop;
    .reg .b16 %elem<4>;
    .reg .pred %in<${x.vec}>;
${last("%t1")}\
    add.u32 %t0, %k0, %head;
    sub.s32 %t1, %t1, %t0;
    max.s32 %t1, %t1, 0;
    and.b32 %t1, %t1, -${x.vec};
    add.u32 %start, %t0, %t1;
    add.u32 %start, %start, %k_thread;
    setp.lt.u32 %p, %k_thread, ${plan.tails * plan.depth};
    selp.b32 %stop, %k_end, 0, %p;
    setp.eq.u32 %p, %k_thread, ${plan.tails * plan.depth};
    selp.b32 %start, 0, %start, %p;
    setp.eq.and.u32 %p, %k0, 0, %p;
    min.u32 %t1, %head, %K;
    selp.b32 %stop, %t1, %stop, %p;
    // from where pointers are, the beginning of the last pass
    sub.u32 %t0, %k_pos, ${plan.reach * plan.steps};
    sub.s32 %t0, %start, %t0;
    mul.wide.s32 %t64, %t0, ${x.size};
% for n in range(len(y.rows)):
    add.s64 %ptr_${y.name}${n}, %ptr_${y.name}${n}, %t64;
% endfor
% if x.paired:
    cvt.u64.u32 %u64, %within;
    add.s64 %t64, %t64, %u64;
% endif
% for n in range(len(x.rows)):
    add.s64 %ptr_${x.name}${n}, %ptr_${x.name}${n}, %t64;
% endfor
% for i in range(x.vec):
    add.u32 %t0, %start, ${i};
    setp.lt.u32 %in${i}, %t0, %stop;
% endfor
% for o, pieces in plan.single:
% for pointer, parts, word, first in pieces:
% for i, part in enumerate(parts, first):
    mov.${"b16" if len(parts) > 1 else o.raw.kind} ${part}, ${"0" if len(parts) > 1 else o.nothing};
    @%in${i} ld.global.nc.${o.single} ${part}, [${pointer}+${i * o.size}];
% endfor
% if len(parts) == 2:
    mov.b32 ${word}, {${", ".join(parts)}};
% elif len(parts) == 4:
    mov.b32 %t1, {${", ".join(parts[:2])}};
    mov.b32 %t2, {${", ".join(parts[2:])}};
    prmt.b32 ${word}, %t1, %t2, 0x6420;
% endif
% endfor
% endfor
${math.products(0)}\
</%def>
