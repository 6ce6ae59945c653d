## Of a tile that leaves by lines: where a thread is in it, and the ends of lines.
## Of a strip: %left_rows, lines that C has from its first on, %end, elements of a line, where its first is in C, %from. Of
## the warp's %line, whose next is four further on: where it is in C, %to, and how far the next, %step; this thread's word of
## it in shared memory, %own, and the one behind, %next, of the last 64 elements %ending and %final. Of the next line's the
## swizzle inverts a bit: those are the second registers.
<%def name="place(s, strip)">
<% k = s.lines %>\
    .reg .b64 %to, %from, %step;
    .reg .b32 %line, %q, %near, %turn, %left_rows, %end, %round, ${", ".join(f"%{r}<2>" for r in k.places)};
    add.u32 %t0, ${k.row}, ${strip.row};
    sub.s32 %left_rows, %M, %t0;
    min.s32 %left_rows, %left_rows, ${k.count};
    add.u32 %t1, ${k.column}, ${strip.column};
    sub.s32 %end, %N, %t1;
    max.s32 %end, %end, 0;
    min.s32 %end, %end, ${k.width};
    mul.wide.u32 %from, %t0, %ldc;
    cvt.u64.u32 %t64, %t1;
    add.u64 %from, %from, %t64;
    mad.lo.u64 %from, %from, 2, ${plan.c_base};
    mov.u32 %line, %quarter;
    mul.wide.u32 %to, %line, %ldc;
    mad.lo.u64 %to, %to, 2, %from;
    mul.wide.u32 %step, %ldc, 8;
    mad.lo.u32 %near, %line, ${s.span}, %staging;
    shr.u32 %turn, %line, ${s.shift};
    and.b32 %turn, %turn, ${s.mask};
    shl.b32 %turn, %turn, 4;
    add.u32 %q, %lane, 1;
${word(s, "%own", "%lane")}\
${word(s, "%next", "%q")}\
    // a line's words may end before those of a warp, and those behind them do
% if "ending" in k.places:
    setp.lt.u32 %p, %lane, ${k.last};
    selp.b32 %t1, %lane, 0, %p;
${word(s, "%ending", "%t1")}\
% endif
    setp.lt.u32 %p, %q, ${k.last};
    selp.b32 %t1, %q, 0, %p;
${word(s, "%final", "%t1")}\
    mov.u32 %round, 0;
</%def>

## The address of word ``q`` of this warp's first line, and of its second line's.
<%def name="word(s, into, q)">
    shr.u32 %t0, ${q}, ${s.lines.shift};
    mad.lo.u32 ${into}0, %t0, ${s.lines.box}, %near;
    and.b32 %t0, ${q}, ${(1 << s.lines.shift) - 1};
    shl.b32 %t0, %t0, 2;
    xor.b32 %t0, %t0, %turn;
    add.u32 ${into}0, ${into}0, %t0;
    xor.b32 ${into}1, ${into}0, ${s.lines.inverted};
</%def>

## On to a warp's next lines.
<%def name="on(s, label)">
<% k = s.lines %>\
    add.u32 %line, %line, ${4 * k.rows};
% for r in k.places:
    add.u32 %${r}0, %${r}0, ${4 * k.rows * s.span};
    add.u32 %${r}1, %${r}1, ${4 * k.rows * s.span};
% endfor
    add.u32 %round, %round, 1;
    setp.lt.u32 %p, %round, ${k.rounds};
    @%p bra.uni ${label};
</%def>

## The element ahead of a line's words, and the one behind them: two threads a line.
<%def name="tips(s, strip, label)">
<% k = s.lines %>\
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
    shr.u32 %line, %lane, 1;
    mad.lo.u32 %line, %line, 4, %quarter;
% for first in range(0, k.count, 64):
% if first:
    add.u32 %line, %line, 64;
% endif
    setp.lt.and.s32 %p, %line, %left_rows, %there;
    @!%p bra TIP${label}_${first};
    mul.wide.u32 %to, %line, %ldc;
    cvt.u64.u32 %t64, %q;
    add.u64 %to, %to, %t64;
    mad.lo.u64 %to, %to, 2, %from;
    mad.lo.u32 %near, %line, ${s.span}, %staging;
    shr.u32 %t0, %q, ${k.shift + 1};
    mad.lo.u32 %near, %t0, ${k.box}, %near;
    shr.u32 %turn, %line, ${s.shift};
    shr.u32 %t0, %q, 3;
    xor.b32 %t0, %t0, %turn;
    and.b32 %t0, %t0, ${s.mask};
    mad.lo.u32 %near, %t0, 16, %near;
    and.b32 %t0, %q, 7;
    mad.lo.u32 %near, %t0, 2, %near;
    ld.shared.b16 %tip, [%near+${strip.offset}];
    st.global.b16 [%to], %tip;
TIP${label}_${first}:
% endfor
    }
</%def>
