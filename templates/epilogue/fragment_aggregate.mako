## Values of the results in wgmma's fragments are reduced into the elements of C that their keys select. A warp takes 8 columns
## along Y at a time. If these have one key, lanes reduce them first; if all of its rows along X have one key, lanes reduce these.
## What is left is written by atomic instructions, unless it is the identity.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="fragments" file="/epilogue/fragment_values.mako"/>
<%namespace name="groups" file="/epilogue/aggregate.mako"/>
<%def name="store_tiles(store_c, math, store_op)">
    {
    .reg .b32 %c_x, %c_y;
${groups.load_groups()}\
${declare()}\
${constants.mad("%c_x", "%wg", plan.mainloop.wg_rows, "%x0")}\
    mov.b32 %c_y, %y0;
${fragments.setup()}\
% for batch in plan.values.batches(range(plan.epilogue.y_columns // 8)):
    {
${fragments.begin_batch(batch)}\
% for n, j in enumerate(batch):
    {
    // columns past the end of C are skipped
    sub.s32 %tmp0, ${plan.scheduler.y_extent}, %c_y;
    setp.le.s32 %p, %tmp0, ${8 * j};
    @%p bra.uni GROUP_DONE;
${take_group(n, j)}\
% if not plan.groups.sink.ordered:
${reduce_group()}\
% endif
GROUP_DONE:
    }
% endfor
    }
% endfor
    }
</%def>

<%def name="declare()">
<% g = plan.groups %>\
    .reg .b64 %group_addr, %group_index, %one;
    .reg .b32 %half<2>, %first, %c_row, %c_col;
    .reg .pred %take<4>, %within, %emit, %reject, %same, %is_nan, %plus, %minus, %rows_same, %columns_same, %first_lane;
    .reg .${g.kind} %emitted, %received, %seen, %next;
    .reg .${g.bits_type} %bits, %seen_bits, %next_bits;
    ${g.run.declaration}
    ${g.x_keys.declaration}
    ${g.y_keys.declaration}
% for line in g.declarations:
    ${line}
% endfor
    mov.u64 %one, 1;
</%def>

## The values of group j of columns, number n of the batch, or the identity in place of those that are not reduced.
<%def name="take_group(n, j)">
<% g, v = plan.groups, plan.values %>\
% for e in range(2):
    setp.gt.s32 %in_y${e}, %y_rem, ${8 * j + e};
% endfor
% for m in range(g.mi):
    {
${fragments.declare()}\
${fragments.compute(m, j, n, plan.epilogue.fragment(m, j))}\
% for q in range(4):
<% h, e = q // 2, q % 2 %>\
    and.pred %within, %in_x${2 * m + h}, %in_y${e};
% for line in g.take(q, "@%within "):
    ${line}
% endfor
    @%reject red.global.add.u64 [%rejected], %one;
    mov.${g.kind} ${g.run[m, q]}, ${g.identity};
    @%take${q} mov.${g.kind} ${g.run[m, q]}, ${v.of(0)[q]};
% if e == 0:
    mov.b32 ${g.x_keys[2 * m + h]}, ${v.of(g.sides[0])[q]};
% endif
% if m == h == 0:
    mov.b32 ${g.y_keys[e]}, ${v.of(g.sides[1])[q]};
% endif
% if g.sink.ordered:
${store_value(m, j, h, e)}\
% endif
% endfor
    }
% endfor
</%def>

## Reduces what the warp has of 8 columns.
<%def name="reduce_group()">
<% g = plan.groups %>\
    // %columns_same, %rows_same: all lanes have one key along Y, or along X
    shfl.sync.idx.b32 %first, ${g.y_keys[0]}, 0, 31, 0xffffffff;
    setp.eq.u32 %same, %first, ${g.y_keys[0]};
    setp.eq.and.u32 %same, %first, ${g.y_keys[1]}, %same;
    vote.sync.all.pred %columns_same, %same, 0xffffffff;
    shfl.sync.idx.b32 %first, ${g.x_keys[0]}, 0, 31, 0xffffffff;
    setp.eq.u32 %same, %first, ${g.x_keys[0]};
% for r in g.x_keys.all[1:]:
    setp.eq.and.u32 %same, %first, ${r}, %same;
% endfor
    vote.sync.all.pred %rows_same, %same, 0xffffffff;
    @!%columns_same bra.uni COLUMNS_DIFFER;
% for m in range(g.mi):
% for h in range(2):
${join(g.run[m, 2 * h], g.run[m, 2 * h + 1])}\
% endfor
% endfor
    @!%rows_same bra.uni ROWS_DIFFER;
    // all results of the warp are of one group
${join_rows(0)}\
${join_lanes(g.run[0, 0], (16, 8, 4, 2, 1))}\
    setp.eq.u32 %first_lane, %lane, 0;
${emit(g.run[0, 0], g.x_keys[0], g.y_keys[0], "%first_lane")}\
    bra.uni GROUP_DONE;
ROWS_DIFFER:
    // four lanes have the columns of a row
    and.b32 %first, %lane, 3;
    setp.eq.u32 %first_lane, %first, 0;
% for m in range(g.mi):
% for h in range(2):
${join_lanes(g.run[m, 2 * h], (1, 2))}\
${emit(g.run[m, 2 * h], g.x_keys[2 * m + h], g.y_keys[0], "%first_lane")}\
% endfor
% endfor
    bra.uni GROUP_DONE;
COLUMNS_DIFFER:
    @!%rows_same bra.uni ALL_DIFFER;
    // eight lanes have the rows of a column
    setp.lt.u32 %first_lane, %lane, 4;
% for e in range(2):
${join_rows(e)}\
${join_lanes(g.run[0, e], (4, 8, 16))}\
${emit(g.run[0, e], g.x_keys[0], g.y_keys[e], "%first_lane")}\
% endfor
    bra.uni GROUP_DONE;
ALL_DIFFER:
% for m in range(g.mi):
% for q in range(4):
${emit(g.run[m, q], g.x_keys[2 * m + q // 2], g.y_keys[q % 2], "")}\
% endfor
% endfor
</%def>

## Joins a thread's rows of column e.
<%def name="join_rows(e)">
<% g = plan.groups %>\
% for m in range(g.mi):
% for h in range(2):
% if m or h:
${join(g.run[0, e], g.run[m, 2 * h + e])}\
% endif
% endfor
% endfor
</%def>

<%def name="join(into, other)">
% for line in plan.groups.join(into, other):
    ${line}
% endfor
</%def>

<%def name="join_lanes(value, distances)">
% for distance in distances:
% for line in plan.groups.exchange("%received", value, distance):
    ${line}
% endfor
${join(value, "%received")}\
% endfor
</%def>

## Reduces a value in memory, where a lane has one that changes its element. Keys out of range have no values.
<%def name="emit(value, x_key, y_key, lanes)">
<%
    g = plan.groups
    row, column = g.key_pair(x_key, y_key)
%>\
    {
    ${g.differs} %emit, ${value}, ${g.identity};
% if lanes:
    and.pred %emit, %emit, ${lanes};
% endif
    mov.${g.kind} %emitted, ${value};
    mul.wide.u32 %group_index, ${row}, %group_columns;
    cvt.u64.u32 %group_addr, ${column};
    add.u64 %group_index, %group_index, %group_addr;
    mad.lo.u64 %group_addr, %group_index, ${g.bytes}, %C;
${groups.emit()}\
    }
</%def>

## Stores a value, or the identity in its place, in the workspace [M][N].
<%def name="store_value(m, j, h, e)">
<%
    g = plan.groups
    x, y = ("%c_col", "%c_row") if plan.epilogue.transposed else ("%c_row", "%c_col")
%>\
${constants.add(x, "%first_x", plan.epilogue.row_offset(2 * m + h))}\
${constants.add(y, "%first_y", 8 * j + e)}\
    mul.wide.u32 %group_index, %c_row, %N;
    cvt.u64.u32 %group_addr, %c_col;
    add.u64 %group_index, %group_index, %group_addr;
    mad.lo.u64 %group_addr, %group_index, ${g.bytes}, %ordered;
    @%within st.global.${g.type} [%group_addr], ${g.run[m, 2 * h + e]};
</%def>
