## Rows that nothing aligns: from each, whole chunks of 16 bytes; element by element what lies before and behind them.
<%namespace name="streamed" file="/addr/streamed.mako"/>
<%def name="setup()">
<% x, y, own = plan.x, plan.y, ("%col", "%row") if plan.config.swap else ("%row", "%col") %>\
    .reg .b32 %head, %end, %turn;
${streamed.lanes()}\
    sub.u32 %turn, %kt, %k0;
    // ${x.upper}: ${len(x.rows)} rows along K; past the last, this thread's first
    .reg .b64 %ptr_${x.name}<${len(x.rows)}>;
    add.u32 %t1, %${x.extent.lower()}0, ${own[0]};
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
    // %head: elements before the first whole chunk, of all these rows; %end: where this slice's share ends
    cvt.u32.u64 %t0, %ptr_${x.name}0;
    neg.s32 %t0, %t0;
    and.b32 %t0, %t0, 15;
    shr.u32 %head, %t0, ${plan.log2_size};
    add.u32 %kt, %kt, %head;
    cvt.u64.u32 %t64, %kt;
% for n in range(len(x.rows)):
    mad.lo.u64 %ptr_${x.name}${n}, %t64, ${x.size}, %ptr_${x.name}${n};
% endfor
    add.u32 %end, %k0, %length;
    add.u32 %end, %end, %head;
    min.u32 %end, %end, %K;
    // whole passes of all threads, wherever their rows begin
    sub.s32 %t0, %K, %k0;
    sub.s32 %t0, %t0, ${x.vec - 1};
    min.s32 %length, %length, %t0;
    max.s32 %length, %length, 0;
${streamed.pointers(y, own[1])}\
</%def>

<%def name="rest()">
    add.u32 %kt, %kt, %t0;
    sub.s32 %t0, %end, ${plan.x.vec - 1};
    max.s32 %t0, %t0, 0;
</%def>

## Fewer elements than a chunk: those behind by the first thread along K, those before by the second.
<%def name="ragged(math)">
<% x, y = plan.x, plan.y %>\
    .reg .b32 %start, %stop;
    .reg .b16 %piece<4>;
    .reg .pred %in<${x.vec}>;
    add.u32 %t0, %k0, %head;
    sub.s32 %t1, %end, %t0;
    max.s32 %t1, %t1, 0;
    and.b32 %t1, %t1, -${x.vec};
    add.u32 %start, %t0, %t1;
    setp.eq.u32 %p, %turn, 0;
    selp.b32 %stop, %end, 0, %p;
    setp.eq.u32 %p, %turn, ${plan.depth};
    selp.b32 %start, 0, %start, %p;
    setp.eq.and.u32 %p, %k0, 0, %p;
    min.u32 %t1, %head, %K;
    selp.b32 %stop, %t1, %stop, %p;
    // from where pointers are, the beginning of the last pass
    sub.u32 %t0, %kt, ${plan.config.u};
    sub.s32 %t0, %start, %t0;
    mul.wide.s32 %t64, %t0, ${x.size};
% for o in (x, y):
% for n in range(len(o.rows)):
    add.s64 %ptr_${o.name}${n}, %ptr_${o.name}${n}, %t64;
% endfor
% endfor
% for i in range(x.vec):
    add.u32 %t0, %start, ${i};
    setp.lt.u32 %in${i}, %t0, %stop;
% endfor
% for o in (x, y):
% for pointer, parts, word, first in o.pieces():
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
${math.multiply(0)}\
</%def>
