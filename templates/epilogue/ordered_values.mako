## Values go to the workspace; an auxiliary kernel reduces them in a fixed order.
<%def name="load()">
    .reg .b64 %ordered;
    ld.param.u64 %ordered, [sink_offset];
    add.u64 %ordered, %ordered, %workspace;
</%def>
<%def name="skip_tile()"></%def>

## Stores the values, or the identity in their place, in the workspace [M][N].
<%def name="take(of, guard)">
    mul.wide.u32 %group_index, %c_row, %N;
    cvt.u64.u32 %group_addr, %c_col;
    add.u64 %group_index, %group_index, %group_addr;
    mad.lo.u64 %group_addr, %group_index, ${plan.groups.bytes}, %ordered;
% for q, (value, offset) in enumerate(zip(plan.values.tiles[0].all, plan.groups.offsets)):
    mov.${plan.groups.ptx_type} %emitted, ${plan.groups.identity};
    @%take${q} mov.${plan.groups.ptx_type} %emitted, ${value};
    ${guard}st.global.${plan.groups.type} [%group_addr+${offset}], %emitted;
% endfor
</%def>
<%def name="end(whole_warps)"></%def>
