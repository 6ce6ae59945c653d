## Boxes of a tile by threads, where rows of C are not whole 16 bytes: each thread puts together, of two neighbouring chunks
## of a line, the 16 bytes that C has at one address; what is left at a line's ends goes an element at a time.
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%namespace name="ends" file="/epilogue/tile_ends.mako"/>
<%def name="early()"></%def>
<%def name="finish()"></%def>

<%def name="free(s)">${sync.warpgroup(plan.wg)}</%def>

<%def name="fetch(s, c)">${ends.fetch(s, c)}</%def>

<%def name="send(s, c)">
${sync.warpgroup(plan.wg)}\
% for n, strip in enumerate(s.lines.strips(c.index)):
    {
    .reg .b32 %shift, %select, %own, %other, %other0, %edge, %i, %a<6>, %b<5>, %o<4>, %w<8>;
    .reg .pred %fours, %twos, %odd, %leads, %ends, %whole;
    .reg .b32 %end;
${ends.begin(s, strip)}\
${ends.chunk("%own", "%q")}\
    // the chunk before: of a box's first, the last of the box before
    sub.u32 %t1, %q, 1;
    and.b32 %t1, %t1, ${s.lines.threads - 1};
${ends.chunk("%other", "%t1")}\
    setp.eq.u32 %leads, %q, 0;
    selp.b32 %other0, %own, %other, %leads;
    @!%leads add.u32 %other, %other, ${s.lines.box};
    // %shift elements from where 16 bytes of C begin to this thread's chunk
    cvt.u32.u64 %shift, %to;
    bfe.u32 %shift, %shift, 1, 3;
    mul.wide.u32 %t64, %shift, 2;
    sub.u64 %to, %to, %t64;
    sub.s32 %first, %first, %shift;
    sub.s32 %edge, %left, 8;
    and.b32 %t0, %shift, 4;
    setp.ne.u32 %fours, %t0, 0;
    and.b32 %t0, %shift, 2;
    setp.ne.u32 %twos, %t0, 0;
    and.b32 %t0, %shift, 1;
    setp.ne.u32 %odd, %t0, 0;
    selp.b32 %select, 0x5432, 0x7654, %odd;
    setp.ne.and.u32 %ends, %shift, 0, %leads;
    min.s32 %end, %left, ${s.lines.boxes * s.width};
    mov.u32 %round, 0;
    .pragma "nounroll";
LINES${c.index}_${n}:
    setp.lt.s32 %here, %line, %left_rows;
    @!%here bra LINE${c.index}_${n};
% for box in range(s.lines.boxes):
${window(s, strip, box, f"{c.index}_{n}_{box}")}\
% endfor
    @!%ends bra LINE${c.index}_${n};
${window(s, strip, s.lines.boxes, f"{c.index}_{n}_{s.lines.boxes}")}\
LINE${c.index}_${n}:
    add.u64 %to, %to, %step;
    add.u32 %line, %line, ${s.lines.across};
% for r in ("%own", "%other", "%other0"):
    add.u32 ${r}, ${r}, ${s.lines.across * s.span};
% endfor
    add.u32 %round, %round, 1;
    setp.lt.u32 %p, %round, ${s.lines.rounds};
    @%p bra.uni LINES${c.index}_${n};
    }
% endfor
</%def>

## 16 bytes of C that lie in box ``box`` and the one before; of the first box, and behind the last, a line's end.
<%def name="window(s, strip, box, label)">
<%
    at, last = strip.offset + box * s.lines.box, box == s.lines.boxes
    before, before_at = ("%other", at - s.lines.box) if box else ("%other0", at)
    to = f"%to+{box * s.span}"
%>\
    ld.shared.v4.b32 {%w0, %w1, %w2, %w3}, [${before}+${before_at}];
% if last:
% for i in range(4, 8):
    mov.b32 %w${i}, 0;
% endfor
% else:
    ld.shared.v4.b32 {%w4, %w5, %w6, %w7}, [%own+${at}];
% endif
% for i in range(6):
    selp.b32 %a${i}, %w${i}, %w${i + 2}, %fours;
% endfor
% for i in range(5):
    selp.b32 %b${i}, %a${i}, %a${i + 1}, %twos;
% endfor
% for i in range(4):
    prmt.b32 %o${i}, %b${i}, %b${i + 1}, %select;
% endfor
    add.s32 %i, %first, ${box * s.width};
    setp.le.s32 %whole, %i, %edge;
% if last:
    setp.ge.s32 %whole, %left, ${box * s.width};
${ends.pieces("%whole", box * s.span, False)}\
% else:
% if not box:
    and.pred %p, %whole, %ends;
${ends.pieces("%p", 0, True)}\
    @%p bra WHOLE${label};
    setp.ge.and.s32 %whole, %i, 0, %whole;
% endif
    @%whole st.global.v4.b32 [${to}], {%o0, %o1, %o2, %o3};
% endif
    @%whole bra WHOLE${label};
% for i in range(8):
% if i % 2 == 0:
    mov.b32 {%half0, %half1}, %o${i // 2};
% endif
    add.s32 %t0, %i, ${i};
    setp.lt.u32 %p, %t0, %end;
    @%p st.global.b16 [%to+${box * s.span + 2 * i}], %half${i % 2};
% endfor
WHOLE${label}:
</%def>
