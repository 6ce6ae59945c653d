## The results of each column are added: each thread adds its rows, lanes add the sums of the columns that they share, and the
## first of them stores the sums in the workspace [part][column]. An auxiliary kernel adds the parts.
<%namespace name="rows" file="/epilogue/row_reduce.mako"/>
<%def name="begin()">
    .reg .b64 %states;
    .reg .b32 %state_part, %result;
% for line in plan.states.halves:
    ${line}
% endfor
    .reg .pred %stores, %stored;
${rows.declare()}\
${rows.clear()}\
</%def>

<%def name="end()">
    // ---- sums of columns: of the rows of this warp
    div.u32 %state_part, %c_row, ${plan.states.part_rows};
${place("%c_col", "%N")}\
% for column in plan.states.columns:
    add.u32 %result, %c_col, ${column};
    setp.lt.and.u32 %stored, %result, %N, %stores;
${store(column)}\
% endfor
</%def>

## %stores: this is the first of the lanes with the same columns. %state_addr: where the sum of its first column is stored.
<%def name="place(column, columns)">
    and.b32 %tmp0, %thread, ${plan.states.lane_mask};
    setp.eq.u32 %stores, %tmp0, 0;
    ld.param.u64 %states, [sink_offset];
    add.u64 %states, %states, %workspace;
    mul.wide.u32 %state_addr, %state_part, ${columns};
    cvt.u64.u32 %tmp64, ${column};
    add.u64 %state_addr, %state_addr, %tmp64;
    mad.lo.u64 %state_addr, %state_addr, ${plan.states.result_bytes}, %states;
</%def>

## Adds the sums of a column that other lanes have, and stores the sum if %stored is true.
<%def name="store(column)">
% for line in plan.states.across_lanes[column]:
    ${line}
% endfor
    @%stored st.global.${plan.states.reduction.type} [%state_addr+${plan.states.offsets[column]}], ${plan.states.of_column[column]};
</%def>
