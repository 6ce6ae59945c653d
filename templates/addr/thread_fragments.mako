## Rows and columns of the tile that a thread multiplies, and the shared-memory addresses of its fragments.
<%def name="setup()">
    {
    .reg .b32 %lane, %warp, %k_group, %lane_m, %lane_n, %smem_addr;
    and.b32 %lane, %thread, 31;
    and.b32 %warp, %thread, ${plan.mainloop.group_mask};
    shr.u32 %warp, %warp, 5;
    shr.u32 %k_group, %thread, ${plan.mainloop.log2_group};
${rows_and_columns()}\
% for x, first in ((plan.a, "%row"), (plan.b, "%col")):
    // fragment addresses of ${x.name.upper()}
  % if x.kmajor_smem:
    shr.u32 %tmp0, ${first}, ${x.swizzle_shift};
    mul.lo.u32 %tmp1, %k_group, ${x.reads_per_iteration};
    xor.b32 %tmp0, %tmp0, %tmp1;
    and.b32 %tmp0, %tmp0, ${x.swizzle_mask};
    mad.lo.u32 %smem_addr, ${first}, ${x.depth_bytes}, ${x.base};
    add.u32 %smem_addr, %smem_addr, %smem;
    % for q in range(x.swizzle_q):
    xor.b32 %tmp1, %tmp0, ${q};
    mad.lo.u32 ${x.fragment_ptrs[q]}, %tmp1, 16, %smem_addr;
    % endfor
  % else:
    mad.lo.u32 %smem_addr, %k_group, ${x.group_elements}, ${first};
    mad.lo.u32 %smem_addr, %smem_addr, ${x.bytes}, ${x.base};
    add.u32 ${x.fragment_ptrs[0]}, %smem_addr, %smem;
  % endif
% endfor
% if plan.epilogue.via_smem:
    // %smem_c: where the epilogue stores this thread's sums in shared memory
    mad.lo.u32 %smem_addr, %k_group, ${plan.config.ml}, %row;
    mad.lo.u32 %smem_addr, %smem_addr, ${plan.epilogue.row_pitch}, %col;
    mad.lo.u32 %smem_c, %smem_addr, ${plan.arithmetic.bytes}, %smem;
% endif
    }
</%def>

## Advances the fragment addresses to the next stage.
<%def name="advance()">
    add.u32 %read_slot, %read_slot, 1;
    setp.eq.u32 %wrap, %read_slot, ${plan.mainloop.stages};
    selp.b32 %read_slot, 0, %read_slot, %wrap;
    selp.b32 %stage_step, ${plan.mainloop.wrap_bytes}, ${plan.mainloop.stage_bytes}, %wrap;
% for x in plan.mainloop.operands:
  % for reader in x.fragment_ptrs.all:
    add.s32 ${reader}, ${reader}, %stage_step;
  % endfor
% endfor
</%def>

## %row, %col: the first row and column of this thread in the tile, from its %lane and %warp.
<%def name="rows_and_columns()">
% if plan.mainloop.interleaved:
    // the bits of the lane number alternate between N and M
    and.b32 %lane_n, %lane, 1;
    shr.u32 %lane_m, %lane, 1;
    and.b32 %lane_m, %lane_m, 1;
    shr.u32 %tmp0, %lane, 2;
    and.b32 %tmp1, %tmp0, ${plan.mainloop.half_lane_n_mask};
    mad.lo.u32 %lane_n, %tmp1, 2, %lane_n;
    shr.u32 %tmp0, %tmp0, ${plan.mainloop.log2_half_lanes_n};
    mad.lo.u32 %lane_m, %tmp0, 2, %lane_m;
% else:
    and.b32 %lane_n, %lane, ${plan.mainloop.lane_n_mask};
    shr.u32 %lane_m, %lane, ${plan.mainloop.bits_n};
% endif
    // the warp's tile, then the lane's rows and columns in it
    shr.u32 %row, %warp, ${plan.mainloop.log2_warps_across};
    and.b32 %col, %warp, ${plan.mainloop.warps_across_mask};
    mul.lo.u32 %row, %row, ${plan.mainloop.warp_rows};
    mul.lo.u32 %col, %col, ${plan.mainloop.warp_columns};
    mad.lo.u32 %row, %lane_m, ${plan.a.contiguous}, %row;
    mad.lo.u32 %col, %lane_n, ${plan.b.contiguous}, %col;
</%def>
