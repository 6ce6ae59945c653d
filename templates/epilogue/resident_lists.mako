## Lists of the values of selected pairs: each warp appends sums, rows and columns of its pairs to a queue in shared memory. A
## queue with enough entries is emptied: its warp reserves adjacent elements of the lists by one atomic addition, and
## stores the values of its entries there.
<%namespace name="values" file="/epilogue/result_values.mako"/>
<%namespace name="select" file="/epilogue/select_values.mako"/>
<%namespace name="ptx" file="/ptx/banner.mako"/>
<%def name="declare()">
    .reg .b32 %queue, %queued, %lanes_before;
</%def>

<%def name="begin()">
    shr.u32 %queue, %thread, 5;
    mov.u32 %tmp0, smem;
    add.u32 %tmp0, %tmp0, ${plan.taken.start};
    mad.lo.u32 %queue, %queue, ${plan.taken.queue_bytes}, %tmp0;
    mov.u32 %queued, 0;
    mov.u32 %lanes_before, %lanemask_lt;
</%def>

<%def name="declare_group()">
    .reg .pred %any;
    mov.pred %any, 0;
</%def>

## %any: a pair of this lane is selected
<%def name="take_row(group, row)">
    {
${values.declare(row.values.condition)}\
${values.compute(row.sums, "", (row.index, 0), ("%column", 0), row.values.condition)}\
% for q in range(group.columns):
    or.pred %any, %any, ${row.values.condition.tiles[0][q]};
% endfor
    }
</%def>

## Appends the selected pairs to the queue.
<%def name="take(group)">
    vote.sync.any.pred %any, %any, 0xffffffff;
    @!%any bra.uni ${group.prefix}NONE_SELECTED;
    {
    .reg .b32 %ballot, %rank, %entry;
    .reg .pred %holds;
% for row in group.rows:
${append(row)}\
% endfor
    }
${empty_full(group)}\
${group.prefix}NONE_SELECTED:
</%def>

## Appends the selected pairs of a row to the queue.
<%def name="append(row)">
    {
    setp.lt.u32 %in_bounds, ${row.index}, %M;
${values.declare(row.values.condition)}\
${values.compute(row.sums, "", (row.index, 0), ("%column", 0), row.values.condition)}\
% for q, sum in enumerate(row.sums):
    {
    and.pred %holds, ${row.values.condition.tiles[0][q]}, %in_bounds;
    vote.sync.ballot.b32 %ballot, %holds, 0xffffffff;
    setp.eq.u32 %p, %ballot, 0;
    @%p bra.uni NOT_SELECTED;
    and.b32 %rank, %ballot, %lanes_before;
    popc.b32 %rank, %rank;
    add.u32 %rank, %rank, %queued;
    mad.lo.u32 %entry, %rank, ${plan.taken.sum_bytes}, %queue;
    @%holds st.shared.${plan.taken.sum_type} [%entry], ${sum};
    mad.lo.u32 %entry, %rank, 4, %queue;
    @%holds st.shared.u32 [%entry+${plan.taken.row_offset}], ${row.index};
    add.u32 %rank, %column, ${q};
    @%holds st.shared.u32 [%entry+${plan.taken.column_offset}], %rank;
    popc.b32 %ballot, %ballot;
    add.u32 %queued, %queued, %ballot;
NOT_SELECTED:
    }
% endfor
    }
</%def>

## Empties a queue with enough entries.
<%def name="empty_full(group)">
% if not group.last:
    setp.lt.u32 %p, %queued, ${plan.taken.full};
    @%p bra.uni ${group.prefix}NONE_SELECTED;
${empty()}\
% endif
</%def>

## Appends the values of the entries of the queue to the lists.
<%def name="empty()">
    {
    .reg .b64 %count, %position, ${plan.taken.operand};
    .reg .b32 %selected, %lanes_below, %lane, %first, %entry, %sum_entry, %ballot, %queued_row, %queued_column;
    .reg .${plan.taken.sum_type} %queued_sum;
    .reg .pred %holds;
    and.b32 %lane, %thread, 31;
    setp.eq.u32 %p, %lane, 0;
    selp.b32 %selected, %queued, 0, %p;
${select.reserve()}\
    mov.u32 %first, 0;
    // ---- wait: all lanes have written their entries
    bar.warp.sync 0xffffffff;
NEXT_ENTRIES:
    add.u32 %entry, %first, %lane;
    setp.lt.u32 %holds, %entry, %queued;
    vote.sync.ballot.b32 %ballot, %holds, 0xffffffff;
    mov.${plan.taken.sum_type} %queued_sum, ${plan.taken.zero};
    mov.u32 %queued_row, 0;
    mov.u32 %queued_column, 0;
    mad.lo.u32 %sum_entry, %entry, ${plan.taken.sum_bytes}, %queue;
    @%holds ld.shared.${plan.taken.sum_type} %queued_sum, [%sum_entry];
    mad.lo.u32 %entry, %entry, 4, %queue;
    @%holds ld.shared.u32 %queued_row, [%entry+${plan.taken.row_offset}];
    @%holds ld.shared.u32 %queued_column, [%entry+${plan.taken.column_offset}];
${select.append(plan.values, ["%queued_sum"], "@%holds ", ("%queued_row", 0), ("%queued_column", 0))}\
    add.u32 %first, %first, 32;
    setp.lt.u32 %p, %first, %queued;
    @%p bra.uni NEXT_ENTRIES;
    mov.u32 %queued, 0;
    // ---- wait: all lanes have read their entries
    bar.warp.sync 0xffffffff;
    }
</%def>

<%def name="finish()">
${ptx.banner("the pairs that are left in the queue")}\
    setp.eq.u32 %p, %queued, 0;
    @%p bra.uni QUEUE_EMPTY;
${empty()}\
QUEUE_EMPTY:
</%def>
