## Which rows a lane takes for a matrix instruction, which vectors along K, and which sums it has.
<%namespace name="streamed" file="/addr/skinny.mako"/>
<%def name="setup()">
${lanes()}\
${streamed.pointers(plan.x, "%col" if plan.config.transposed_mma else "%row")}\
${streamed.pointers(plan.y, "%fed")}\
</%def>

<%def name="lanes()">
<% long, thin = ("%col", "%row") if plan.config.transposed_mma else ("%row", "%col") %>\
    .reg .b32 %fed;
    {
    .reg .b32 %warp, %group, %part, %q, %at;
    // four lanes along K have the same rows; a warp's steps lie side by side
    shr.u32 %warp, %thread, 5;
    and.b32 %q, %thread, ${plan.lanes - 1};
    shr.u32 %group, %warp, ${plan.log2_warps_along};
    and.b32 %warp, %warp, ${plan.warps_along - 1};
    bfe.u32 %fed, %thread, ${plan.log2_across}, ${plan.log2_wm};
    mad.lo.u32 %part, %warp, ${plan.config.lanes_m}, %fed;
    mul.lo.u32 %kt, %q, ${plan.depth};
    mad.lo.u32 %kt, %group, ${plan.reach * plan.steps}, %kt;
    add.u32 %kt, %kt, %k0;
    // sums: of its rows, and two along ${plan.y.extent}
    mul.lo.u32 ${long}, %part, ${plan.x.side};
    shl.b32 ${thin}, %q, 1;
    mad.lo.u32 %at, %group, ${plan.config.ml}, %row;
    mad.lo.u32 %at, %at, ${plan.c_row_pitch}, %col;
    mad.lo.u32 %share, %at, ${plan.epilogue_bytes}, %smem;
    }
</%def>

<%def name="rest()">
${streamed.rest()}\
</%def>

<%def name="ragged(math)"></%def>
