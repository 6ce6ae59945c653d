## One thread loads whole stages: TMA writes swizzled boxes and reports their bytes to the full barrier of the stage.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="addr" file="/${context['plan'].loads.template}"/>
<%def name="setup()">
% if plan.config.l2_evict_first:
    // L2 evicts these loads first
    .reg .b64 %policy;
    createpolicy.fractional.L2::evict_first.b64 %policy, 1.0;
% endif
% for x in plan.mainloop.realign.operands:
    // a map for each of eight rows of ${x.name.upper()}
    .reg .b64 %map_${x.role}_<${len(x.boxes)}>;
  % for b in x.boxes:
    add.u64 %map_${x.role}_${b.residue}, %map_${x.role}, ${b.map_offset};
  % endfor
% endfor
% for m in filter(None, (plan.x.multicast, plan.y.multicast)):
    // the blocks that receive this block's slices
    .reg .b16 ${m.mask};
    mov.b16 ${m.mask}, ${f"0x{m.first_mask:04x}"};
  % if plan.pipeline.multicast_2d:
    mul.lo.u32 %tmp0, ${m.line}, ${m.line_stride};
    shl.b16 ${m.mask}, ${m.mask}, %tmp0;
  % endif
% endfor
% if plan.mainloop.resident:
    // the first round of the stages loads ${plan.mainloop.resident.name.upper()} too, which stays there
    .reg .pred %first_round;
    .reg .b32 %tx_bytes;
    setp.eq.u32 %first_round, %stage, 0;
% endif
${addr.setup()}\
</%def>

## The coordinates of a tile's first stage, from %k0 on.
<%def name="begin()">
${addr.begin()}\
</%def>

## From a stage's last unit of K to the next stage's first.
<%def name="step()">
% for line in plan.mainloop.next_round:
    ${line}
% endfor
${addr.step()}\
</%def>

## The parity of the round in which stage %stage was last freed.
<%def name="parity()">
    xor.b32 %parity, %phase, 1;
% if plan.mainloop.realign.operands:
    // the math warpgroups realign stage 0 into the last stage, which is free only after the products of that
    setp.eq.u32 %p, %stage, ${plan.pipeline.last_stage};
    @%p xor.b32 %parity, %parity, 1;
% endif
</%def>

## Fills stage %stage, whose full barrier is %full_bar.
<%def name="fill()">
<%
    x, y = plan.x, plan.y
    x_base, y_base = plan.slice_bases
%>\
    {
    .reg .b32 ${plan.fill_registers};
% if plan.mainloop.resident:
    selp.b32 %tx_bytes, ${plan.mainloop.tx_bytes}, ${plan.mainloop.later_tx_bytes}, %first_round;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full_bar], %tx_bytes;
% else:
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full_bar], ${plan.mainloop.tx_bytes};
% endif
    mad.lo.u32 %stage_base, %stage, ${plan.mainloop.stage_bytes}, %smem;
% for unit in range(plan.loads.units):
  % if x.multicast and unit == 0:
${slice(x, "%x_base")}\
  % endif
${load(x, unit, x_base, x.first)}\
  % if y.multicast and unit == 0:
${slice(y, y_base)}\
  % endif
${load(y, unit, y_base, y.first)}\
  % if unit < plan.loads.last_unit:
${addr.step()}\
  % endif
% endfor
    }
</%def>

<%def name="slice(x, base)">
    // this block's slice of ${x.name.upper()}, multicast to all blocks of ${plan.pipeline.multicast_text}
    mad.lo.u32 %${x.role}_slice, ${x.multicast.rank}, ${x.slice_extent}, ${x.slice_origin};
    mad.lo.u32 ${base}, ${x.multicast.rank}, ${x.slice_bytes}, %stage_base;
</%def>

<%def name="load(x, unit, base, first)">
    // ${x.name.upper()}: ${x.box_counts[unit]} of ${x.box_text} elements
% if x.realigned:
    .reg .b32 %line_${x.role};
    shr.u32 %line_${x.role}, ${x.row_coordinate[first]}, 3;
% endif
% for b in x.copies(unit, first):
${constants.add("%box_smem", base, b.offset)}\
${constants.add("%inner_coord", b.inner_register, b.inner)}\
  % if b.tap_offset:
    add.u32 %box_tap, ${x.filter_tap}, ${b.tap_offset};
  % endif
  % for to, pixel, tap in b.sums:
    add.u32 ${to}, ${pixel}, ${tap};
  % endfor
    ${plan.mainloop.load_guards[x.role]}cp.async.bulk.tensor.${x.tma_rank}d.shared::cluster.global.${x.tma_mode}.mbarrier::complete_tx::bytes${x.copy_modifiers} [%box_smem], [${b.source}], [%full_bar]${b.operands};
% endfor
</%def>
