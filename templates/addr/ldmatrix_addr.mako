## The tile of C that a warp multiplies, and the shared-memory addresses of the fragments of its lanes.
<%namespace name="stages" file="/addr/thread_fragments.mako"/>
<%def name="setup()">
    {
    .reg .b32 %lane, %warp, %k_group, %mn, %k, %smem_addr;
    and.b32 %lane, %thread, 31;
    and.b32 %warp, %thread, ${plan.mainloop.group_mask};
    shr.u32 %warp, %warp, 5;
    shr.u32 %k_group, %thread, ${plan.mainloop.log2_group};
    // the warp's tile
    shr.u32 %row, %warp, ${plan.mainloop.log2_across};
    and.b32 %col, %warp, ${plan.b.warp_mask};
    mul.lo.u32 %row, %row, ${plan.a.thread};
    mul.lo.u32 %col, %col, ${plan.b.thread};
% for x, first in ((plan.a, "%row"), (plan.b, "%col")):
    // ${x.name.upper()}: the first ${x.read_title} that this lane reads
    mov.b32 %mn, ${first};
    mul.lo.u32 %k, %k_group, ${plan.mainloop.group_depth};
${add_lane_terms("%mn", x.lane_mn)}\
${add_lane_terms("%k", x.lane_k)}\
${element_address(x)}\
% endfor
    // this lane's first row and column of C
${add_lane_terms("%row", [plan.a.lane_of_c])}\
${add_lane_terms("%col", [plan.b.lane_of_c])}\
% if plan.epilogue.via_smem:
    // %smem_c: where the epilogue stores this lane's sums in shared memory
    mad.lo.u32 %smem_addr, %k_group, ${plan.config.ml}, %row;
    mad.lo.u32 %smem_addr, %smem_addr, ${plan.epilogue.row_pitch}, %col;
    mad.lo.u32 %smem_c, %smem_addr, ${plan.arithmetic.bytes}, %smem;
% endif
    }
</%def>

## Adds the terms that depend on the lane number.
<%def name="add_lane_terms(to, terms)">
% for t in terms:
    shr.u32 %tmp0, %lane, ${t.shift};
    and.b32 %tmp0, %tmp0, ${t.mask};
    mad.lo.u32 ${to}, %tmp0, ${t.weight}, ${to};
% endfor
</%def>

## The shared-memory address of element (mn, k) of a stage: 16-byte chunks are XORed with bits of the row.
<%def name="element_address(x)">
<% row, column = x.row_registers %>\
    mul.lo.u32 %smem_addr, ${column}, ${x.bytes};
% for instruction, bits, mask in x.key_shifts:
    ${instruction} %tmp0, ${row}, ${bits};
    and.b32 %tmp0, %tmp0, ${mask};
    shl.b32 %tmp0, %tmp0, 4;
    xor.b32 %smem_addr, %smem_addr, %tmp0;
% endfor
    mad.lo.u32 %smem_addr, ${row}, ${x.row_bytes}, %smem_addr;
    add.u32 %smem_addr, %smem_addr, ${x.base};
    add.u32 ${x.fragment_ptrs[0]}, %smem, %smem_addr;
</%def>

<%def name="advance()">
${stages.advance()}\
</%def>
