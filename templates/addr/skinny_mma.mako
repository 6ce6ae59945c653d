## Which rows a lane takes for a matrix instruction, which vectors along K, and which sums it has.
<%namespace name="streamed" file="/addr/skinny.mako"/>
<%def name="setup()">
${lanes()}\
${streamed.pointers(plan.x, "%col" if plan.config.transposed_mma else "%row")}\
${streamed.pointers(plan.y, "%frag_row")}\
</%def>

<%def name="lanes()">
<% long, thin = ("%col", "%row") if plan.config.transposed_mma else ("%row", "%col") %>\
    .reg .b32 %frag_row;
    {
    .reg .b32 %warp, %k_group, %long_lane, %k_lane, %addr;
    // four lanes along K have the same rows; a warp's steps lie side by side
    shr.u32 %warp, %thread, 5;
    and.b32 %k_lane, %thread, ${plan.lanes - 1};
    shr.u32 %k_group, %warp, ${plan.log2_warps_along};
    and.b32 %warp, %warp, ${plan.warps_along - 1};
    bfe.u32 %frag_row, %thread, ${plan.log2_across}, ${plan.log2_wm};
    mad.lo.u32 %long_lane, %warp, ${plan.config.lanes_m}, %frag_row;
    mul.lo.u32 %k_pos, %k_lane, ${plan.depth};
    mad.lo.u32 %k_pos, %k_group, ${plan.reach * plan.steps}, %k_pos;
    add.u32 %k_pos, %k_pos, %k0;
    // sums: of its rows, and two along ${plan.y.extent}
    mul.lo.u32 ${long}, %long_lane, ${plan.x.side};
    shl.b32 ${thin}, %k_lane, 1;
    mad.lo.u32 %addr, %k_group, ${plan.config.ml}, %row;
    mad.lo.u32 %addr, %addr, ${plan.c_row_pitch}, %col;
    mad.lo.u32 %smem_c, %addr, ${plan.epilogue_bytes}, %smem;
    }
</%def>

<%def name="rest()">
${streamed.rest()}\
</%def>

<%def name="ragged(math)"></%def>
