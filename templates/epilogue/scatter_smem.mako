## Boxes of a tile by threads, into a C whose columns lie in runs, which a multiplication tells apart: a thread has two
## neighbours of every few lines, many of them at once.
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%namespace name="boxes" file="/epilogue/tma_store.mako"/>
<%namespace name="apart" file="/epilogue/store_scatter.mako"/>
<%def name="early()"></%def>
<%def name="finish()"></%def>
<%def name="free(s)">${sync.warpgroup(plan.wg)}</%def>

<%def name="send(s, c)">
${sync.warpgroup(plan.wg)}\
% for b in s.pairs.walked(c):
    {
${begin(s, b, f"SEND{c.index}")}\
% for lines in s.pairs.batches:
% for n, line in enumerate(lines):
    ld.shared.b32 %pair${n}, [${near(s, line)}];
% endfor
% for n, line in enumerate(lines):
${inside(s, line)}\
% if plan.paired:
    @%p st.global.b32 [%at], %pair${n};
% else:
    mov.b32 {%half0, %half1}, %pair${n};
    @%p st.global.b16 [%at], %half0;
    and.pred %p, %p, %second;
    @%p st.global.b16 [%next], %half1;
% endif
${on()}\
% endfor
% endfor
${end(s, c, f"SEND{c.index}")}\
    }
% endfor
</%def>

## + beta C: what it holds goes to where the chunk's boxes have it.
<%def name="fetch(s, c)">
% for b in s.pairs.walked(c):
    {
${begin(s, b, f"FETCH{c.index}")}\
% for lines in s.pairs.batches:
% for n, line in enumerate(lines):
${inside(s, line)}\
% if plan.paired:
    mov.b32 %pair${n}, 0;
    @%p ld.global.b32 %pair${n}, [%at];
% else:
    mov.b16 %half0, 0;
    mov.b16 %half1, 0;
    @%p ld.global.b16 %half0, [%at];
    and.pred %p, %p, %second;
    @%p ld.global.b16 %half1, [%next];
    mov.b32 %pair${n}, {%half0, %half1};
% endif
${on()}\
% endfor
% for n, line in enumerate(lines):
    st.shared.b32 [${near(s, line)}], %pair${n};
% endfor
% endfor
${end(s, c, f"FETCH{c.index}")}\
    }
% endfor
${sync.warpgroup(plan.wg)}\
${boxes.merge(c, s, boxes.weighted)}\
</%def>

## Where a thread's two columns of a box's first line are: %at and %next in C, %near in the box; %left: rows that C has
## from there on. Of many boxes ptxas would find all places at once, and spill: they are walked over.
<%def name="begin(s, b, label)">
<%
    rows, columns = plan.sides
    row, column = (b.y, b.x) if s.transposed else (b.x, b.y)
    walked = ("%ahead_x", "%ahead_y", "%box")
    first_row, first_column, staging = walked if s.pairs.walks else (s.lines.row, s.lines.column, "%staging")
%>\
    .reg .b64 %at, %high, %next, %hop;
    .reg .b32 %line, %q, %of, %of_next, %of_row, %left, %near, %turned, %pair<${s.pairs.at_once}>, ${", ".join(f"%{n}" for n in rows.parameters + columns.parameters)};
    .reg .pred %first, %second;
% if s.pairs.walks:
    .reg .b32 %ahead_x, %ahead_y, %box, %boxes;
    mov.b32 %ahead_x, ${s.lines.row};  mov.b32 %ahead_y, ${s.lines.column};
    mov.b32 %box, %staging;  mov.u32 %boxes, 0;
    .pragma "nounroll";
${label}:
% endif
% for name in rows.parameters + columns.parameters:
    ld.param.u32 %${name}, [${name}];
% endfor
    shr.u32 %line, %member, ${s.pairs.shift};
    and.b32 %q, %member, ${s.pairs.threads - 1};
    mad.lo.u32 %t2, %q, 2, ${first_column};
${apart.lies(columns, "%of", "%t2", column)}\
${apart.lies(columns, "%of_next", "%t2", column + 1)}\
    add.u32 %t2, %t2, ${column};
    setp.lt.u32 %first, %t2, %N;
    add.u32 %t2, %t2, 1;
    setp.lt.u32 %second, %t2, %N;
    add.u32 %t2, ${first_row}, %line;
${apart.lies(rows, "%of_row", "%t2", row)}\
    add.u32 %t2, %t2, ${row};
    sub.s32 %left, %M, %t2;
    add.s32 %t1, %of_row, %of;
    mad.wide.s32 %at, %t1, 2, ${plan.c_base};
    add.s32 %t1, %of_row, %of_next;
    mad.wide.s32 %next, %t1, 2, ${plan.c_base};
    mul.wide.u32 %hop, %step_${rows.name}, ${2 * s.pairs.across};
    // a line's chunks change places as the swizzle has it
    shr.u32 %t0, %line, ${s.shift};
    and.b32 %t0, %t0, ${s.mask};
    shr.u32 %t1, %q, 2;
    xor.b32 %t0, %t0, %t1;
    and.b32 %t1, %q, 3;
    mad.lo.u32 %t0, %t0, 4, %t1;
    mad.lo.u32 %near, %line, ${s.span // 4}, %t0;
    mad.lo.u32 %near, %near, 4, ${staging};
    add.u32 %near, %near, ${b.offset};
    xor.b32 %turned, %near, ${s.pairs.turn};
</%def>

<%def name="end(s, c, label)">
% if s.pairs.walks:
    add.u32 %box, %box, ${c.stores[1].offset - c.stores[0].offset};
    add.u32 %boxes, %boxes, 1;  add.u32 %ahead_y, %ahead_y, ${s.width};
% if s.mi > 1:
    // from the last box of 64 rows to the first of the next
    rem.u32 %t0, %boxes, ${s.columns // s.width};
    setp.eq.u32 %p, %t0, 0;
    @%p add.u32 %ahead_x, %ahead_x, 64;
    @%p sub.u32 %ahead_y, %ahead_y, ${s.columns};
% endif
    setp.lt.u32 %p, %boxes, ${len(c.stores)};
    @%p bra.uni ${label};
% endif
</%def>

<%def name="near(s, line)">%${"turned" if line % 2 else "near"}+${line * s.pairs.across * s.span}</%def>

<%def name="inside(s, line)">
    setp.gt.and.s32 %p, %left, ${line * s.pairs.across}, %first;
</%def>

<%def name="on()">
    add.u64 %at, %at, %hop;
% if not plan.paired:
    add.u64 %next, %next, %hop;
% endif
</%def>
