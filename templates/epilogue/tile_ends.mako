## Of a tile that leaves by lines: where a thread is in it, and the ends of lines.
## Of a strip: %left_rows, lines that C has from its first on, %end, elements of a line; the address of its first in C.
<%def name="place(s, strip)">
    .reg .b64 %to, %from, %step;
    .reg .b32 %line, %q, %first, %near, %turn, %ahead, %left_rows, %end, %round;
    add.u32 %t0, ${s.lines.row}, ${strip.row};
    sub.s32 %left_rows, %M, %t0;
    min.s32 %left_rows, %left_rows, ${s.lines.count};
    add.u32 %t1, ${s.lines.column}, ${strip.column};
    sub.s32 %end, %N, %t1;
    max.s32 %end, %end, 0;
    min.s32 %end, %end, ${s.lines.width};
    mul.wide.u32 %from, %t0, %ldc;
    cvt.u64.u32 %t64, %t1;
    add.u64 %from, %from, %t64;
    mad.lo.u64 %from, %from, 2, ${plan.item_c};
</%def>

## Of %line: its address in C %to, how far %step on the next of this thread is, its place in the strip's first box %first;
## its elements ahead of C's next whole 16 bytes, the same of all lines of this thread; how a line's chunks change places.
<%def name="line(s, step=None)">
    mul.wide.u32 %to, %line, %ldc;
    mad.lo.u64 %to, %to, 2, %from;
    mul.wide.u32 %step, %ldc, ${2 * (step or s.lines.step)};
    cvt.u32.u64 %ahead, %to;
    shr.u32 %ahead, %ahead, 1;
    neg.s32 %ahead, %ahead;
    and.b32 %ahead, %ahead, 7;
    shr.u32 %turn, %line, ${s.shift};
    and.b32 %turn, %turn, ${s.mask};
    mad.lo.u32 %first, %line, ${s.span}, %staging;
</%def>

## The address of chunk ``q`` of this thread's first line.
<%def name="chunk(s, into, q)">
% if s.mask + 1 < s.lines.threads * s.lines.groups:
    shr.u32 %t0, ${q}, ${s.lines.boxed};
    mad.lo.u32 %t2, %t0, ${s.lines.box}, %first;
    and.b32 %t0, ${q}, ${s.mask};
    xor.b32 %t0, %t0, %turn;
    mad.lo.u32 ${into}, %t0, 16, %t2;
% else:
    xor.b32 %t0, ${q}, %turn;
    mad.lo.u32 ${into}, %t0, 16, %first;
% endif
</%def>

## What lines have ahead of whole 16 bytes, and behind them: eight threads a line, an element each.
<%def name="ends(s, strip, label)">
<% k = s.lines.tips %>\
    {
    .reg .b64 %behind;
    .reg .b32 %after;
    .reg .b16 %head<${k.several}>, %tail<${k.several}>;
    .reg .pred %heads, %tails;
    shr.u32 %line, %member, 3;
    and.b32 %q, %member, 7;
${line(s, k.step)}\
    // this thread's element behind whole 16 bytes
    sub.s32 %t1, %end, %ahead;
    max.s32 %t1, %t1, 0;
    and.b32 %t1, %t1, ${-8 & 0xFFFFFFFF};
    add.u32 %after, %t1, %ahead;
    add.u32 %after, %after, %q;
    setp.lt.s32 %tails, %after, %end;
    setp.lt.s32 %heads, %q, %ahead;
    setp.lt.and.s32 %heads, %q, %end, %heads;
    mul.wide.u32 %t64, %after, 2;
    add.u64 %behind, %to, %t64;
    mul.wide.u32 %t64, %q, 2;
    add.u64 %to, %to, %t64;
    // where it is none, the line's first is read
    selp.b32 %after, %after, 0, %tails;
    shr.u32 %t1, %after, 3;
${chunk(s, "%t1", "%t1")}\
    and.b32 %after, %after, 7;
    mad.lo.u32 %after, %after, 2, %t1;
    mad.lo.u32 %t1, %turn, 16, %first;
    mad.lo.u32 %near, %q, 2, %t1;
    mov.u32 %round, 0;
    .pragma "nounroll";
ENDS${label}:
% if k.uneven:
    setp.lt.s32 %p, %line, %left_rows;
    @!%p bra END${label};
% endif
% for n in range(k.several):
<% at = strip.offset + n * k.step * s.span %>\
    ld.shared.b16 %head${n}, [%near+${at}];
    ld.shared.b16 %tail${n}, [%after+${at}];
% endfor
% for n in range(k.several):
    add.u32 %t0, %line, ${n * k.step};
    setp.lt.and.s32 %p, %t0, %left_rows, %heads;
    @%p st.global.b16 [%to], %head${n};
    setp.lt.and.s32 %p, %t0, %left_rows, %tails;
    @%p st.global.b16 [%behind], %tail${n};
    add.u64 %to, %to, %step;
    add.u64 %behind, %behind, %step;
% endfor
END${label}:
    add.u32 %line, %line, ${k.several * k.step};
    add.u32 %near, %near, ${k.several * k.step * s.span};
    add.u32 %after, %after, ${k.several * k.step * s.span};
    add.u32 %round, %round, ${k.several};
    setp.lt.u32 %p, %round, ${k.rounds};
    @%p bra.uni ENDS${label};
    }
</%def>
