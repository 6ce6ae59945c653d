## Blocks of a cluster that split K: each sends its sums to the block that finishes them, straight into its shared memory.
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%def name="sum()">
<%
    send = "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32" if plan.counted else "st.shared::cluster.v4.b32"
    done = ", [%done]" if plan.counted else ""
%>\
    // all blocks have begun: their shared memory is there
    barrier.cluster.wait.acquire.aligned;
    {
    .reg .b32 %mine, %to, %done;
    .reg .${plan.held} %got<4>;
    // 16 bytes a thread and group of columns, at [sender][warpgroup][instruction][group][thread]
    mad.lo.u32 %mine, %rank, ${plan.wg}, %wg;
    mul.lo.u32 %mine, %mine, ${plan.part_wg};
    mad.lo.u32 %mine, %member, 16, %mine;
    add.u32 %mine, %mine, %smem;
    add.u32 %mine, %mine, ${plan.added_base};
% if plan.alone:
    // block 0 finishes, and keeps its own
    setp.eq.u32 %p, %rank, 0;
    @%p bra.uni SENT;
    sub.u32 %mine, %mine, ${plan.wg * plan.part_wg};
% endif
% for owner, sent in enumerate(plan.sent):
    mapa.shared::cluster.u32 %to, %mine, ${owner};
% if plan.counted:
    add.u32 %done, %bars, ${plan.added_at};
    mapa.shared::cluster.u32 %done, %done, ${owner};
% endif
% for slot in sent:
    ${send} [%to+${slot.offset}], ${plan.operand_list(slot.into)}${done};
% endfor
% endfor
SENT:
% if not plan.counted:
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
% endif
% if plan.cluster_owners < plan.kc:
    setp.ge.u32 %p, %rank, ${plan.cluster_owners};
    @%p bra.uni END;
% endif
% if plan.counted:
${sync.wait(f"%bars+{plan.added_at}", 0, ".acquire.cluster")}\
% endif
    mad.lo.u32 %mine, %wg, ${plan.part_wg}, %smem;
    mad.lo.u32 %mine, %member, 16, %mine;
    add.u32 %mine, %mine, ${plan.added_base};
% for n, slot in enumerate(plan.received):
% if plan.alone and n % 8 == 7:
    // or ptxas would ask for many at once, and spill
    bar.warp.sync 0xffffffff;
% endif
% if slot.first:
    ld.shared.v4.b32 ${plan.operand_list(slot.into)}, [%mine+${slot.offset}];
% else:
    ld.shared.v4.b32 {%got0, %got1, %got2, %got3}, [%mine+${slot.offset}];
% for i, r in enumerate(slot.into):
    ${plan.join} ${r}, ${r}, %got${i};
% endfor
% endif
% endfor
% if plan.cluster_owners > 1:
    mad.lo.u32 %y0, %rank, ${plan.finish}, %y0;
% endif
    }
</%def>
