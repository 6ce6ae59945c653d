## Of a tile that leaves by lines: where a thread is in it, the ends of lines, and what C holds.
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%namespace name="boxes" file="/epilogue/tile_boxes.mako"/>
## Where this thread's first chunk of a strip is: %line, the chunk's number %q, its address in C %to, its place in shared
## memory %near; %left_rows, %left: lines and elements that C has from the strip's first on.
<%def name="begin(s, strip)">
    .reg .b64 %to, %step;
    .reg .b32 %line, %q, %near, %left_rows, %left, %first, %turn, %round;
    .reg .pred %here;
    shr.u32 %line, %member, ${s.lines.shift};
    and.b32 %q, %member, ${s.lines.threads - 1};
    shl.b32 %first, %q, 3;
    add.u32 %t0, ${s.lines.row}, ${strip.row};
    sub.s32 %left_rows, ${plan.m_end}, %t0;
    min.s32 %left_rows, %left_rows, ${s.lines.count};
    add.u32 %t1, ${s.lines.column}, ${strip.column};
    sub.s32 %left, ${plan.n_end}, %t1;
    max.s32 %left, %left, 0;
    add.u32 %t0, %t0, %line;
    mul.wide.u32 %t64, %t0, %ldc;
    add.u32 %t1, %t1, %first;
    cvt.u64.u32 %u64, %t1;
    add.u64 %t64, %t64, %u64;
    mad.lo.u64 %to, %t64, 2, ${plan.item_c};
    mul.wide.u32 %step, %ldc, ${2 * s.lines.across};
    mad.lo.u32 %near, %line, ${s.span}, %staging;
    // a line's chunks change places as the swizzle has it
    shr.u32 %turn, %line, ${s.shift};
    and.b32 %turn, %turn, ${s.mask};
</%def>

<%def name="chunk(into, q)">
    xor.b32 %t0, ${q}, %turn;
    mad.lo.u32 ${into}, %t0, 16, %near;
</%def>

## Of 16 bytes in %o, where C begins %shift elements into them (``first``) or ends there: one, two and four elements.
<%def name="pieces(where, at, first)">
    {
    .reg .b32 %even, %uneven, %pair;
    .reg .b64 %there;
    .reg .pred %piece;
    selp.b32 %even, %o2, %o0, %fours;
    selp.b32 %uneven, %o3, %o1, %fours;
    // the element next to the end
    selp.b32 %pair, %uneven, %even, %twos;
    mov.b32 {%half0, %half1}, %pair;
    mul.wide.u32 %there, %shift, 2;
    add.u64 %there, %there, %to;
    and.pred %piece, ${where}, %odd;
    @%piece st.global.b16 [%there+${at - 2 * (not first)}], ${"%half1" if first else "%half0"};
% if first:
    // two where the next is the second or the fourth pair, four in the second half
    add.u32 %t0, %shift, 1;
    and.b32 %t1, %t0, 2;
    setp.ne.and.u32 %piece, %t1, 0, ${where};
    and.b32 %t0, %t0, 6;
    mul.wide.u32 %there, %t0, 2;
    add.u64 %there, %there, %to;
    @%piece st.global.b32 [%there+${at}], %uneven;
    setp.lt.and.u32 %piece, %shift, 5, ${where};
    @%piece st.global.v2.b32 [%to+${at + 8}], {%o2, %o3};
% else:
    and.b32 %t0, %shift, 4;
    mul.wide.u32 %there, %t0, 2;
    add.u64 %there, %there, %to;
    and.pred %piece, ${where}, %twos;
    @%piece st.global.b32 [%there+${at}], %even;
    and.pred %piece, ${where}, %fours;
    @%piece st.global.v2.b32 [%to+${at}], {%o0, %o1};
% endif
    }
</%def>

## + beta C: an element at a time to where the chunk's boxes have it.
<%def name="fetch(s, c)">
% for n, strip in enumerate(s.lines.strips(c.index)):
    {
    .reg .b32 %own, %i, %o<4>;
${begin(s, strip)}\
${chunk("%own", "%q")}\
    mov.u32 %round, 0;
    .pragma "nounroll";
FETCH${c.index}_${n}:
    setp.lt.s32 %here, %line, %left_rows;
% for box in range(s.lines.boxes):
    add.s32 %i, %first, ${box * s.width};
% for i in range(8):
    add.s32 %t0, %i, ${i};
    setp.lt.and.u32 %p, %t0, %left, %here;
    mov.b16 %half${i % 2}, 0;
    @%p ld.global.b16 %half${i % 2}, [%to+${box * s.span + 2 * i}];
% if i % 2:
    mov.b32 %o${i // 2}, {%half0, %half1};
% endif
% endfor
    setp.lt.u32 %p, %line, ${s.lines.count};
    @%p st.shared.v4.b32 [%own+${strip.offset + box * s.lines.box}], {%o0, %o1, %o2, %o3};
% endfor
    add.u64 %to, %to, %step;
    add.u32 %line, %line, ${s.lines.across};
    add.u32 %own, %own, ${s.lines.across * s.span};
    add.u32 %round, %round, 1;
    setp.lt.u32 %p, %round, ${s.lines.rounds};
    @%p bra.uni FETCH${c.index}_${n};
    }
% endfor
${sync.warpgroup(plan.wg)}\
${boxes.merge(c, s, boxes.weighted)}\
</%def>
