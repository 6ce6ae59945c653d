## The blocks of a cluster split K: each writes its sums to the shared memory of the block that finishes them.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="sync" file="/ptx/barrier.mako"/>
## Blocks that finish no sums end.
<%def name="end_others(cluster)">
% if cluster.owners < plan.config.cluster_k:
    setp.ge.u32 %p, %rank, ${cluster.owners};
    @%p bra.uni END;
% endif
</%def>

<%def name="reduce()">
<% cluster, counted, warpgroups = plan.cluster_reduction, plan.pipeline.counts_dsmem, plan.config.math_warpgroups %>\
    // ---- wait: all blocks of the cluster have started, so that their shared memory exists
    barrier.cluster.wait.acquire.aligned;
    {
    .reg .b32 %smem_c, %peer_smem, %peer_bar;
    .reg .${plan.mainloop.acc_type} %received<4>;
    // 16 bytes a thread and group of columns, at [sender][warpgroup][instruction][group][thread]
${constants.mad("%smem_c", "%rank", warpgroups, "%wg")}\
    mul.lo.u32 %smem_c, %smem_c, ${cluster.wg_bytes};
    mad.lo.u32 %smem_c, %wg_thread, 16, %smem_c;
    add.u32 %smem_c, %smem_c, %smem;
    add.u32 %smem_c, %smem_c, ${cluster.base};
% if cluster.single_reducer:
    // block 0 adds all sums, and keeps its own in registers
    setp.eq.u32 %p, %rank, 0;
    @%p bra.uni SENT;
    sub.u32 %smem_c, %smem_c, ${cluster.sender_bytes};
% endif
    // send each owner its part of this block's sums
% for owner, sent in enumerate(cluster.sent):
    mapa.shared::cluster.u32 %peer_smem, %smem_c, ${owner};
  % if counted:
    add.u32 %peer_bar, %bars, ${plan.pipeline.dsmem};
    mapa.shared::cluster.u32 %peer_bar, %peer_bar, ${owner};
  % endif
  % for slot in sent:
    ${cluster.send} [%peer_smem+${slot.offset}], ${operand_list(slot.registers)}${cluster.completion};
  % endfor
% endfor
SENT:
% if counted:
${end_others(cluster)}\
    // ---- wait: the other blocks have sent their sums
${sync.wait(f"%bars+{plan.pipeline.dsmem}", 0, ".acquire.cluster")}\
% else:
    // ---- wait: all blocks of the cluster have sent their sums
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
${end_others(cluster)}\
% endif
    // add the sums of the other blocks
    mad.lo.u32 %smem_c, %wg, ${cluster.wg_bytes}, %smem;
    mad.lo.u32 %smem_c, %wg_thread, 16, %smem_c;
    add.u32 %smem_c, %smem_c, ${cluster.base};
% for n, slot in enumerate(cluster.received):
  % if cluster.single_reducer and n % 8 == 7:
    // a barrier every few loads: else ptxas issues many at once, and spills
    bar.warp.sync 0xffffffff;
  % endif
  % if slot.initial:
    ld.shared.v4.b32 ${operand_list(slot.registers)}, [%smem_c+${slot.offset}];
  % else:
    ld.shared.v4.b32 {%received0, %received1, %received2, %received3}, [%smem_c+${slot.offset}];
    % for i, r in enumerate(slot.registers):
    ${plan.mainloop.join} ${r}, ${r}, %received${i};
    % endfor
  % endif
% endfor
% if cluster.owners > 1:
    mad.lo.u32 %y0, %rank, ${plan.epilogue.y_columns}, %y0;
% endif
    }
</%def>
