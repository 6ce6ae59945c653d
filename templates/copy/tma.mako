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
% for s in filter(None, (plan.x.shared, plan.y.shared)):
    .reg .b16 ${s.mask};
    mov.b16 ${s.mask}, ${s.first};
% if plan.crossed:
    mul.lo.u32 %t0, ${s.line}, ${s.apart};
    shl.b16 ${s.mask}, ${s.mask}, %t0;
% endif
% endfor
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

## Of the round in which stage %stage was freed last.
<%def name="parity()">
    xor.b32 %parity, %phase, 1;
% if plan.lying:
    // the first stage is shifted to the last, which is free once that has been multiplied
    setp.eq.u32 %p, %stage, ${plan.stages - 1};
    @%p xor.b32 %parity, %parity, 1;
% endif
</%def>

## Fills stage %stage, whose barrier is %full.
<%def name="fill()">
    {
    .reg .b32 %to, %at, %inner, %y_mine${", %y_to" if plan.y_to != "%to" else ""}${", %x_mine, %x_to" if plan.x.shared else ""};
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], ${plan.expected};
    mad.lo.u32 %to, %stage, ${plan.stage_bytes}, %smem;
% for unit in range(plan.units):
% if plan.x.shared and unit == 0:
${part(plan.x, "%x_to")}\
% endif
${bring(plan.x, unit, "%x_to" if plan.x.shared else "%to", "%x_mine" if plan.x.shared else "%x0")}\
% if plan.y.shared and unit == 0:
${part(plan.y, plan.y_to)}\
% endif
${bring(plan.y, unit, plan.y_to, "%y_mine" if plan.y.shared else "%y0")}\
% if unit + 1 < plan.units:
${addr.step()}\
% endif
% endfor
    }
</%def>

<%def name="part(x, to)">
    // this block's part of ${x.name.upper()} goes to every block of the cluster${" that takes it" if plan.crossed else ""}
    mad.lo.u32 %${x.role}_mine, ${x.shared.mine}, ${x.share}, ${x.whole};
    mad.lo.u32 ${to}, ${x.shared.mine}, ${x.share_offset}, %to;
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
