## Boxes of a tile by threads, where rows of C are not whole 16 bytes: each thread puts together, of two neighbouring chunks
## of a line, the 16 bytes that C has at one address, several times at once; then come the ends of lines.
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%namespace name="ends" file="/epilogue/tile_ends.mako"/>
<%namespace name="held" file="/epilogue/tile_held.mako"/>
<%def name="early()"></%def>
<%def name="finish()"></%def>

<%def name="free(s)">${sync.warpgroup(plan.wg)}</%def>

<%def name="fetch(s, c)">${held.fetch(s, c)}</%def>

<%def name="send(s, c)">
${sync.warpgroup(plan.wg)}\
% for n, strip in enumerate(s.lines.strips(c.index)):
    {
${ends.place(s, strip)}\
% for turn in range(s.lines.turns):
${whole(s, strip, turn, f"{c.index}_{n}_{turn}")}\
% endfor
${ends.ends(s, strip, f"{c.index}_{n}")}\
    }
% endfor
% if c.last and plan.config.persistent:
    // no sum is kept for the next tile, which ptxas would not know
% for r in plan.into.all:
    mov.b32 ${r}, 0;
% endfor
% endif
</%def>

## The whole 16 bytes of lines that share a place in 16 bytes.
<%def name="whole(s, strip, turn, label)">
<% k = s.lines %>\
    {
    .reg .b32 %other, %final, %select, %a<6>, %b<5>, %o<4>;
    ${k.chunks.declaration}
    .reg .pred %fours, %twos, %odd, %last, %whole<${k.groups}>;
    shr.u32 %line, %member, ${k.shift};
    and.b32 %q, %member, ${k.threads - 1};
% if turn:
    add.u32 %line, %line, ${turn * k.across};
% endif
${ends.line(s)}\
${ends.chunk(s, "%near", "%q")}\
    add.u32 %t1, %q, 1;
${ends.chunk(s, "%other", "%t1")}\
    // behind a line's last chunk there is none, and none is needed
    setp.eq.u32 %last, %q, ${k.threads - 1};
    selp.b32 %final, %near, %other, %last;
    shl.b32 %q, %q, 3;
    add.u32 %q, %q, %ahead;
    mul.wide.u32 %t64, %q, 2;
    add.u64 %to, %to, %t64;
    sub.s32 %t1, %end, 8;
% for g in range(k.groups):
    add.u32 %t0, %q, ${g * k.threads * 8};
    setp.le.s32 %whole${g}, %t0, %t1;
% endfor
    and.b32 %t0, %ahead, 4;
    setp.ne.u32 %fours, %t0, 0;
    and.b32 %t0, %ahead, 2;
    setp.ne.u32 %twos, %t0, 0;
    and.b32 %t0, %ahead, 1;
    setp.ne.u32 %odd, %t0, 0;
    selp.b32 %select, 0x5432, 0x3210, %odd;
    mov.u32 %round, 0;
    .pragma "nounroll";
LINES${label}:
% if k.uneven:
    setp.lt.s32 %p, %line, %left_rows;
    @!%p bra LINE${label};
% endif
% for n, (round, g) in enumerate(k.batch):
<% at = strip.offset + g * k.hop + round * k.step * s.span %>\
    ld.shared.v4.b32 ${k.chunks.vector(n, 0, n=4)}, [%near+${at}];
    ld.shared.v4.b32 ${k.chunks.vector(n, 4, n=4)}, [${"%final" if g == k.groups - 1 else "%other"}+${at}];
% endfor
% for n, (round, g) in enumerate(k.batch):
% for i in range(6):
    selp.b32 %a${i}, ${k.chunks[n, i + 2]}, ${k.chunks[n, i]}, %fours;
% endfor
% for i in range(5):
    selp.b32 %b${i}, %a${i + 1}, %a${i}, %twos;
% endfor
% for i in range(4):
    prmt.b32 %o${i}, %b${i}, %b${i + 1}, %select;
% endfor
    add.u32 %t0, %line, ${round * k.step};
    setp.lt.and.s32 %p, %t0, %left_rows, %whole${g};
    @%p st.global.v4.b32 [%to+${g * k.threads * 16}], {%o0, %o1, %o2, %o3};
% if g == k.groups - 1:
    add.u64 %to, %to, %step;
% endif
% endfor
LINE${label}:
    add.u32 %line, %line, ${k.several * k.step};
% for r in ("%near", "%other", "%final"):
    add.u32 ${r}, ${r}, ${k.several * k.step * s.span};
% endfor
    add.u32 %round, %round, ${k.several};
    setp.lt.u32 %p, %round, ${k.rounds};
    @%p bra.uni LINES${label};
    }
</%def>
