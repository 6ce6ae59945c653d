## Lines of a tile by threads, where rows of C are not whole 16 bytes but boxes are 64 elements wide: a warp has a line, of
## each box a word a thread. All its lines begin at a multiple of four bytes, or all at two bytes behind one.
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%namespace name="ends" file="/epilogue/tile_ends.mako"/>
<%namespace name="held" file="/epilogue/tile_held.mako"/>
<%def name="early()"></%def>
<%def name="finish()"></%def>

<%def name="free(s)">${sync.warpgroup(plan.wg)}</%def>

<%def name="fetch(s, c)">${held.fetch(s, c)}</%def>

<%def name="send(s, c)">
<% k = s.lines.words %>\
${sync.warpgroup(plan.wg)}\
% for n, strip in enumerate(s.lines.strips(c.index)):
    {
    .reg .b32 %own<2>, %next<2>, %final<2>, %w<${k.words}>, %v<${k.words}>;
    .reg .pred %whole<${s.lines.boxes}>, %odd;
${ends.place(s, strip)}\
    mul.wide.u32 %to, %quarter, %ldc;
    mad.lo.u64 %to, %to, 2, %from;
    mul.wide.u32 %step, %ldc, 8;
    // an element ahead of the first word
    cvt.u32.u64 %ahead, %to;
    shr.u32 %ahead, %ahead, 1;
    and.b32 %ahead, %ahead, 1;
    setp.ne.u32 %odd, %ahead, 0;
    mad.lo.u32 %q, %lane, 2, %ahead;
% for box in range(s.lines.boxes):
    add.u32 %t0, %q, ${box * s.width + 1};
    setp.lt.s32 %whole${box}, %t0, %end;
% endfor
    mul.wide.u32 %t64, %q, 2;
    add.u64 %to, %to, %t64;
    mov.u32 %line, %quarter;
    mad.lo.u32 %near, %quarter, ${s.span}, %staging;
    // this thread's word of a box, and the one behind it, of the line and the one four further on
    setp.eq.u32 %p, %lane, 31;
% for half in range(2):
    shl.b32 %turn, %quarter, 4;
    xor.b32 %turn, %turn, ${64 * half};
    shl.b32 %t0, %lane, 2;
    xor.b32 %t0, %t0, %turn;
    add.u32 %own${half}, %near, %t0;
    shl.b32 %t0, %lane, 2;
    add.u32 %t0, %t0, 4;
    selp.b32 %t0, 0, %t0, %p;
    xor.b32 %t0, %t0, %turn;
    add.u32 %next${half}, %near, %t0;
    selp.b32 %final${half}, %own${half}, %next${half}, %p;
    @%p add.u32 %next${half}, %next${half}, ${s.lines.box};
% endfor
    mov.u32 %round, 0;
    @%odd bra ODD${c.index}_${n};
${lines(s, c, n, strip, False)}\
    bra WORDS${c.index}_${n};
${lines(s, c, n, strip, True)}\
WORDS${c.index}_${n}:
${tips(s, c, n, strip)}\
    }
% endfor
</%def>

<%def name="lines(s, c, n, strip, odd)">
<% k, last = s.lines.words, s.lines.boxes - 1 %>\
    .pragma "nounroll";
${"ODD" if odd else "EVEN"}${c.index}_${n}:
% for i, (row, box) in enumerate(k.batch):
<% at = strip.offset + row * 4 * s.span + box * s.lines.box %>\
    ld.shared.b32 %w${i}, [%own${row % 2}+${at}];
% if odd:
    ld.shared.b32 %v${i}, [${"%final" if box == last else "%next"}${row % 2}+${at}];
% endif
% endfor
% for i, (row, box) in enumerate(k.batch):
% if odd:
    prmt.b32 %w${i}, %w${i}, %v${i}, 0x5432;
% endif
    add.u32 %t0, %line, ${4 * row};
    setp.lt.and.s32 %p, %t0, %left_rows, %whole${box};
    @%p st.global.b32 [%to+${box * s.span}], %w${i};
% if box == last:
    add.u64 %to, %to, %step;
% endif
% endfor
    add.u32 %line, %line, ${4 * k.rows};
% for r in ("own", "next", "final"):
    add.u32 %${r}0, %${r}0, ${4 * k.rows * s.span};
    add.u32 %${r}1, %${r}1, ${4 * k.rows * s.span};
% endfor
    add.u32 %round, %round, 1;
    setp.lt.u32 %p, %round, ${k.rounds};
    @%p bra.uni ${"ODD" if odd else "EVEN"}${c.index}_${n};
</%def>

## The element ahead of a line's words, and the one behind them: two threads a line.
<%def name="tips(s, c, n, strip)">
    {
    .reg .b16 %tip;
    .reg .pred %there, %behind;
    and.b32 %t0, %lane, 1;
    setp.ne.u32 %behind, %t0, 0;
    sub.u32 %t1, %end, %ahead;
    and.b32 %t1, %t1, 1;
    selp.b32 %t1, %t1, %ahead, %behind;
    setp.ne.u32 %there, %t1, 0;
    setp.gt.and.s32 %there, %end, 0, %there;
    sub.u32 %q, %end, 1;
    selp.b32 %q, %q, 0, %behind;
    selp.b32 %q, %q, 0, %there;
    shr.u32 %line, %lane, 1;
    mad.lo.u32 %line, %line, 4, %quarter;
% for first in range(0, s.lines.count, 64):
% if first:
    add.u32 %line, %line, 64;
% endif
    setp.lt.and.s32 %p, %line, %left_rows, %there;
    @!%p bra TIP${c.index}_${n}_${first};
    mul.wide.u32 %to, %line, %ldc;
    cvt.u64.u32 %t64, %q;
    add.u64 %to, %to, %t64;
    mad.lo.u64 %to, %to, 2, %from;
    mad.lo.u32 %near, %line, ${s.span}, %staging;
    shr.u32 %t0, %q, 6;
    mad.lo.u32 %near, %t0, ${s.lines.box}, %near;
    shr.u32 %t0, %q, 3;
    xor.b32 %t0, %t0, %line;
    and.b32 %t0, %t0, 7;
    mad.lo.u32 %near, %t0, 16, %near;
    and.b32 %t0, %q, 7;
    mad.lo.u32 %near, %t0, 2, %near;
    ld.shared.b16 %tip, [%near+${strip.offset}];
    st.global.b16 [%to], %tip;
TIP${c.index}_${n}_${first}:
% endfor
    }
</%def>
