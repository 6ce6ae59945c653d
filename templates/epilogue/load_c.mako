## What C holds, to a tile that leaves by lines.
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%namespace name="boxes" file="/epilogue/tma_store.mako"/>
<%namespace name="ends" file="/epilogue/row_tails.mako"/>
## + beta C: an element at a time to where the chunk's boxes have it.
<%def name="fetch(s, c)">
<% k = s.lines %>\
% for n, strip in enumerate(k.strips(c.index)):
    {
    .reg .b32 %w;
    .reg .pred %here, %mine;
${ends.place(s, strip)}\
    shl.b32 %q, %lane, 1;
    mul.wide.u32 %t64, %q, 2;
    add.u64 %to, %to, %t64;
    setp.lt.u32 %mine, %lane, ${k.last};
    .pragma "nounroll";
FETCH${c.index}_${n}:
% for row, part in k.batch:
<% last = part == k.parts - 1 %>\
    add.u32 %t0, %line, ${4 * row};
    setp.lt.s32 %here, %t0, %left_rows;
% for i in range(2):
    add.u32 %t0, %q, ${64 * part + i};
    setp.lt.and.s32 %p, %t0, %end, %here;
    mov.b16 %half${i}, 0;
    @%p ld.global.b16 %half${i}, [%to+${128 * part + 2 * i}];
% endfor
    mov.b32 %w, {%half0, %half1};
    ${"@%mine " if last else ""}st.shared.b32 [${k.near(strip, row, part)}], %w;
% if last:
    add.u64 %to, %to, %step;
% endif
% endfor
${ends.on(s, f"FETCH{c.index}_{n}")}\
    }
% endfor
${sync.warpgroup(plan.wg)}\
${boxes.merge(c, s, boxes.weighted)}\
</%def>
