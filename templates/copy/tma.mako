## One thread asks for whole tiles: TMA brings them, swizzled, and reports the bytes to the stage's barrier.
<%def name="setup()">
% if plan.hinted:
    .reg .b64 %policy;
    createpolicy.fractional.L2::evict_first.b64 %policy, 1.0;
% endif
% if plan.cluster > 1:
    .reg .b16 %mask;
    mov.b16 %mask, ${(1 << plan.cluster) - 1};
% endif
</%def>

## Fills stage %stage, whose barrier is %full, from %k on.
<%def name="fill()">
    {
    .reg .b32 %to, %at, %inner, %y_mine;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], ${plan.expected};
    mad.lo.u32 %to, %stage, ${plan.stage_bytes}, %smem;
${bring(plan.x, "%x0")}\
% if plan.cluster > 1:
    // this block's part of ${plan.y.name.upper()} goes to every block of the cluster
    mad.lo.u32 %y_mine, %rank, ${plan.y.share}, %y0;
    mad.lo.u32 %to, %rank, ${plan.y.share_offset}, %to;
${bring(plan.y, "%y_mine")}\
% else:
${bring(plan.y, "%y0")}\
% endif
    }
</%def>

<%def name="bring(x, first)">
% for b in x.boxes:
    add.u32 %at, %to, ${x.base + b.offset};
    add.u32 %inner, ${"%k" if x.kmajor else first}, ${b.inner};
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes${x.modifiers} [%at], [%map_${x.role}, {%inner, ${first if x.kmajor else "%k"}}], [%full]${x.operands};
% endfor
</%def>
