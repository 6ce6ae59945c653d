## The rows and vectors along K that a lane loads for mma.sync, and the sums that it holds.
<%namespace name="skinny" file="/addr/skinny.mako"/>
<%def name="setup()">
${lane_map()}\
${skinny.pointers(plan.mainloop.x, plan.mainloop.first_long)}\
${skinny.pointers(plan.mainloop.y, "%frag_row")}\
</%def>

<%def name="lane_map()">
    .reg .b32 %frag_row;
    {
    .reg .b32 %warp, %k_group, %long_lane, %k_lane, %smem_addr;
    // four lanes along K load the same rows; the steps of a warp are contiguous along K
    shr.u32 %warp, %thread, 5;
    and.b32 %k_lane, %thread, ${plan.mainloop.last_lane};
    shr.u32 %k_group, %warp, ${plan.mainloop.log2_warps_along};
    and.b32 %warp, %warp, ${plan.mainloop.last_warp_along};
    bfe.u32 %frag_row, %thread, ${plan.mainloop.log2_across}, ${plan.mainloop.log2_lanes_long};
    mad.lo.u32 %long_lane, %warp, ${plan.config.lanes_long}, %frag_row;
    mul.lo.u32 %k_pos, %k_lane, ${plan.mainloop.depth};
    mad.lo.u32 %k_pos, %k_group, ${plan.mainloop.iteration_elements}, %k_pos;
    add.u32 %k_pos, %k_pos, %k0;
    // sums: the lane's rows, and two columns along ${plan.mainloop.y.extent}
    mul.lo.u32 ${plan.mainloop.first_long}, %long_lane, ${plan.mainloop.x.contiguous_run};
    shl.b32 ${plan.mainloop.first_short}, %k_lane, 1;
    mad.lo.u32 %smem_addr, %k_group, ${plan.config.ml}, %row;
    mad.lo.u32 %smem_addr, %smem_addr, ${plan.epilogue.row_pitch}, %col;
    mad.lo.u32 %smem_c, %smem_addr, ${plan.arithmetic.bytes}, %smem;
    }
</%def>

<%def name="remainder()">
${skinny.remainder()}\
</%def>

<%def name="unaligned_elements(math)"></%def>
