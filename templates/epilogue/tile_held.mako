## What C holds, to a tile that leaves by lines.
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%namespace name="boxes" file="/epilogue/tile_boxes.mako"/>
<%namespace name="ends" file="/epilogue/tile_ends.mako"/>
## + beta C: an element at a time to where the chunk's boxes have it.
<%def name="fetch(s, c)">
<% k = s.lines %>\
% for n, strip in enumerate(s.lines.strips(c.index)):
% for turn in range(k.turns):
    {
    .reg .b32 %i, %o<4>;
    .reg .pred %here;
${ends.place(s, strip)}\
    shr.u32 %line, %member, ${k.shift};
    and.b32 %q, %member, ${k.threads - 1};
% if turn:
    add.u32 %line, %line, ${turn * k.across};
% endif
${ends.line(s)}\
${ends.chunk(s, "%near", "%q")}\
    shl.b32 %q, %q, 3;
    mul.wide.u32 %t64, %q, 2;
    add.u64 %to, %to, %t64;
    mov.u32 %round, 0;
    .pragma "nounroll";
FETCH${c.index}_${n}_${turn}:
    setp.lt.s32 %here, %line, %left_rows;
% for g in range(k.groups):
    add.s32 %i, %q, ${g * k.threads * 8};
% for i in range(8):
    add.s32 %t0, %i, ${i};
    setp.lt.and.s32 %p, %t0, %end, %here;
    mov.b16 %half${i % 2}, 0;
    @%p ld.global.b16 %half${i % 2}, [%to+${g * k.threads * 16 + 2 * i}];
% if i % 2:
    mov.b32 %o${i // 2}, {%half0, %half1};
% endif
% endfor
    setp.lt.u32 %p, %line, ${k.count};
    @%p st.shared.v4.b32 [%near+${strip.offset + g * k.hop}], {%o0, %o1, %o2, %o3};
    // or ptxas would ask for many boxes at once, and spill
    bar.warp.sync 0xffffffff;
% endfor
    add.u64 %to, %to, %step;
    add.u32 %line, %line, ${k.step};
    add.u32 %near, %near, ${k.step * s.span};
    add.u32 %round, %round, 1;
    setp.lt.u32 %p, %round, ${k.rounds};
    @%p bra.uni FETCH${c.index}_${n}_${turn};
    }
% endfor
% endfor
${sync.warpgroup(plan.wg)}\
${boxes.merge(c, s, boxes.weighted)}\
</%def>
