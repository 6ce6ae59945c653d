## The elements of rows of A are added along K, by the warps with the first columns of the first tiles.
<%def name="begin()">
    .reg .pred %sums_a;
    setp.eq.u32 %sums_a, %n0, 0;
    setp.lt.and.u32 %sums_a, %col, ${plan.operand_sums.columns}, %sums_a;
% for line in plan.operand_sums.setup:
    ${line}
% endfor
% for r in plan.operand_sums.sums.all:
    mov.${plan.operand_sums.sums.ptx_type} ${r}, ${plan.operand_sums.zero};
% endfor
</%def>

<%def name="add(k)">
% for line in plan.operand_sums.additions[k]:
    ${line}
% endfor
</%def>

## Adds the sums to the array: other blocks, and other thread groups, may have other parts of K.
<%def name="store()">
    {
    .reg .b64 %sums_addr;
    .reg .b32 %sum_row;
    .reg .pred %adds, %in_rows;
    // ---- sums of rows of A
    and.b32 %tmp0, %thread, ${plan.operand_sums.lane_mask};
    setp.eq.and.u32 %adds, %tmp0, 0, %sums_a;
    ld.param.u64 %sums_addr, [a_sums];
    cvta.to.global.u64 %sums_addr, %sums_addr;
    add.u32 %sum_row, %m0, %row;
    mad.wide.u32 %sums_addr, %sum_row, ${plan.operand_sums.bytes}, %sums_addr;
% for row, r in plan.operand_sums.rows:
    add.u32 %tmp0, %sum_row, ${row};
    setp.lt.and.u32 %in_rows, %tmp0, %M, %adds;
    @%in_rows red.global.add.${plan.operand_sums.sums.ptx_type} [%sums_addr+${plan.operand_sums.offsets[row]}], ${r};
% endfor
    }
</%def>
