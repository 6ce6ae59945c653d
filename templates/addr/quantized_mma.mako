## The weights and activations that a lane loads, their addresses, and the sums that it holds.
<%namespace name="activations" file="/${context['plan'].a.template}"/>\
<%namespace name="lanes" file="/ptx/lane_loads.mako"/>\
<%def name="setup()">
    .reg .b32 %frag_row;
${activations.registers()}\
    {
    .reg .b32 %warp, %k_group, %long_lane, %k_lane, %smem_addr;
    // four lanes along K load the same rows; the steps of a warp are contiguous along K
    shr.u32 %warp, %thread, 5;
    and.b32 %k_lane, %thread, ${plan.mainloop.last_lane};
    shr.u32 %k_group, %warp, ${plan.mainloop.log2_warps_along};
    and.b32 %warp, %warp, ${plan.mainloop.last_warp_along};
    bfe.u32 %frag_row, %thread, ${plan.mainloop.log2_quad}, ${plan.mainloop.log2_lanes};
    mad.lo.u32 %long_lane, %warp, ${plan.mainloop.lanes}, %frag_row;
    mul.lo.u32 %k_pos, %k_group, ${plan.mainloop.warp_elements};
    add.u32 %k_pos, %k_pos, %k0;
% if plan.mainloop.scaled:
    shr.u32 %first_group, %k_pos, ${plan.mainloop.log2_group};
% else:
    mov.u32 %first_group, 0;
% endif
    mad.lo.u32 %k_pos, %k_lane, ${plan.b.depth}, %k_pos;
    // sums: the lane's columns, and two rows of each tile
    mul.lo.u32 %col, %long_lane, ${plan.mainloop.ns};
    shl.b32 %row, %k_lane, 1;
    mad.lo.u32 %smem_addr, %k_group, ${plan.config.ml}, %row;
    mad.lo.u32 %smem_addr, %smem_addr, ${plan.epilogue.row_pitch}, %col;
    mad.lo.u32 %smem_c, %smem_addr, ${plan.arithmetic.bytes}, %smem;
${activations.lane_address()}\
    }
${activations.setup()}\
    // B: adjacent rows of weights, index clamped to the last one; their scales
    .reg .b64 %ptr_b<${plan.b.rows}>;
% for array, _, _ in plan.b.group_arrays:
    .reg .b64 %ptr_${array}<${plan.b.rows}>;
% endfor
% if plan.b.of_items:
    // groups of the weights of the items before
    .reg .b64 %item_groups;
    ld.global.u32 %tmp0, [%descriptor+${plan.scheduler.table.offsets["item"]}];
    mul.wide.u32 %item_groups, %tmp0, %N;
    cvt.u64.u32 %tmp64, %groups;
    mul.lo.u64 %item_groups, %item_groups, %tmp64;
  % for array, size, _ in plan.b.group_arrays:
    ld.param.u64 %${array}, [${array}];  cvta.to.global.u64 %${array}, %${array};
    mad.lo.u64 %${array}, %item_groups, ${size}, %${array};
  % endfor
% endif
    sub.u32 %tmp2, %N, 1;
    shr.u32 %tmp1, %k_pos, ${plan.b.log2_per_byte};
% for n in range(plan.b.rows):
    add.u32 %tmp0, %n0, %col;
    add.u32 %tmp0, %tmp0, ${n};
    min.u32 %tmp0, %tmp0, %tmp2;
    mul.wide.u32 %tmp64, %tmp0, %ldb;
    cvt.u64.u32 %tmp64b, %tmp1;
    add.u64 %tmp64, %tmp64, %tmp64b;
    add.u64 %ptr_b${n}, %tmp64, %B;
    mul.wide.u32 %tmp64, %tmp0, %groups;
    cvt.u64.u32 %tmp64b, %first_group;
    add.u64 %tmp64, %tmp64, %tmp64b;
  % for array, size, _ in plan.b.group_arrays:
    mad.lo.u64 %ptr_${array}${n}, %tmp64, ${size}, %${array};
  % endfor
% endfor
</%def>

## The loads of the weights of a step in the remainder of K: zeros past its end.
<%def name="load_last_weights(loads)">
% for n, place in enumerate(plan.mainloop.guarded_places):
    add.u32 %tmp1, %k_pos, ${place};
    setp.lt.u32 %in_k${n}, %tmp1, %tmp0;
% endfor
${lanes.load_last(loads)}\
</%def>

## Advances the pointers to the next K iteration.
<%def name="advance()">
% for n in range(plan.b.rows):
    add.u64 %ptr_b${n}, %ptr_b${n}, ${plan.b.stride_bytes};
  % for array, _, stride in plan.b.advancing_arrays:
    add.u64 %ptr_${array}${n}, %ptr_${array}${n}, ${stride};
  % endfor
% endfor
${activations.advance()}\
</%def>
