## One thread asks for whole tiles: TMA brings them, swizzled, and reports the bytes to the stage's barrier.
<%namespace name="addr" file="/${context['plan'].addr}"/>
<%def name="setup()">
% if plan.hinted:
    .reg .b64 %policy;
    createpolicy.fractional.L2::evict_first.b64 %policy, 1.0;
% endif
% for x in plan.lying:
    .reg .b64 %map_${x.role}_<${len(x.boxes)}>;
% for b in x.boxes:
    add.u64 ${x.map(b)}, %map_${x.role}, ${128 * b.residue};
% endfor
% endfor
% if plan.cluster > 1:
    .reg .b16 %mask;
    mov.b16 %mask, ${(1 << plan.cluster) - 1};
% endif
${addr.setup()}\
</%def>

## Of a tile: from K's place %k0 on.
<%def name="begin()">
${addr.begin()}\
</%def>

## On along K, from a stage's last unit to the next stage's first.
<%def name="step()">
${addr.step()}\
</%def>

## Fills stage %stage, whose barrier is %full.
<%def name="fill()">
    {
    .reg .b32 %to, %at, %inner, %y_mine${", %y_to" if plan.y_to != "%to" else ""};
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], ${plan.expected};
    mad.lo.u32 %to, %stage, ${plan.stage_bytes}, %smem;
% for unit in range(plan.units):
${bring(plan.x, unit, "%to", "%x0")}\
% if plan.cluster > 1 and unit == 0:
    // this block's part of ${plan.y.name.upper()} goes to every block of the cluster
    mad.lo.u32 %y_mine, %rank, ${plan.y.share}, %y0;
    mad.lo.u32 ${plan.y_to}, %rank, ${plan.y.share_offset}, %to;
% endif
${bring(plan.y, unit, plan.y_to, "%y_mine" if plan.cluster > 1 else "%y0")}\
% if unit + 1 < plan.units:
${addr.step()}\
% endif
% endfor
    }
</%def>

<%def name="bring(x, unit, to, first)">
% if x.lies:
    .reg .b32 %line_${x.role};
    shr.u32 %line_${x.role}, ${x.along(first)}, 3;
% endif
% for b in x.of(unit):
    add.u32 %at, ${to}, ${x.base + b.offset};
    add.u32 %inner, ${x.inner(b, first)}, ${b.inner};
    cp.async.bulk.tensor.${x.rank}d.shared::cluster.global.${x.mode}.mbarrier::complete_tx::bytes${x.modifiers} [%at], [${x.map(b)}, {${x.place(first)}${b.beyond}}], [%full]${x.behind(b)};
% endfor
</%def>
