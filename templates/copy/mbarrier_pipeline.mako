## The mbarriers: full[stages], empty[stages], and those of the reduction and the epilogue.
<%namespace name="sync" file="/ptx/barrier.mako"/>
## Ranks of this block in its cluster: linear, along X and along Y.
<%def name="cluster_ranks()">
% if plan.pipeline.clustered:
    mov.u32 %rank, %cluster_ctarank;
% endif
% if plan.pipeline.multicast_2d:
    .reg .b32 %rank_x, %rank_y;
    div.u32 %rank_y, %rank, ${plan.config.cluster_x};
    rem.u32 %rank_x, %rank, ${plan.config.cluster_x};
% endif
</%def>

## One lane of the producer warp initialises the mbarriers, then the whole block waits, before the roles divide.
<%def name="initialise()">
<% pipe = plan.pipeline %>\
    setp.ne.u32 %p, %warp, ${pipe.producer_warp};
    @%p bra.uni INITIALISED;
    elect.sync _|%elected, 0xffffffff;
    @!%elected bra NOT_ELECTED;
% for name in plan.parameters.maps:
    prefetch.tensormap [%${name}];
% endfor
% for full, empty in pipe.barriers:
    mbarrier.init.shared::cta.b64 [%bars+${full}], 1;
    mbarrier.init.shared::cta.b64 [%bars+${empty}], ${pipe.empty_arrivals};
% endfor
% for at, count in pipe.others:
    mbarrier.init.shared::cta.b64 [%bars+${at}], ${count};
% endfor
    fence.mbarrier_init.release.cluster;
% if pipe.counts_dsmem:
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bars+${pipe.dsmem}], ${plan.cluster_reduction.bytes};
% endif
NOT_ELECTED:
    bar.warp.sync 0xffffffff;
INITIALISED:
% if pipe.clustered:
    barrier.cluster.arrive.relaxed.aligned;
% endif
    // ---- wait: the mbarriers of this block are initialised
    bar.sync 0;
% if pipe.multicast_ctas > 1:
    // ---- wait: the mbarriers of all blocks of the cluster are initialised
    barrier.cluster.wait.acquire.aligned;
% endif
</%def>

## The producer warp (or warpgroup): %elected is the thread that issues the loads.
<%def name="producer_setup()">
% if plan.pipeline.setmaxnreg:
    setmaxnreg.dec.sync.aligned.u32 ${plan.pipeline.setmaxnreg[0]};
% endif
    elect.sync _|%elected, 0xffffffff;
% if plan.pipeline.setmaxnreg:
    setp.eq.and.u32 %elected, %warp, ${plan.pipeline.producer_warp}, %elected;
% endif
</%def>

## The math warpgroups: their registers, and the blocks whose empty mbarriers they arrive at.
<%def name="consumer_setup()">
<% pipe = plan.pipeline %>\
% if pipe.setmaxnreg:
    setmaxnreg.inc.sync.aligned.u32 ${pipe.setmaxnreg[1]};
% endif
    mov.b32 %empty_bar, %bars;
    // thread i of a ${pipe.group_text} arrives at the empty barriers of block i of the cluster
    setp.lt.u32 %arrives_empty, ${pipe.arriving_thread}, ${pipe.multicast_ctas};
% if pipe.multicast_2d:
    // blocks of another row and column of the cluster load nothing for this one
    div.u32 %tmp0, ${pipe.arriving_thread}, ${plan.config.cluster_x};
    rem.u32 %tmp1, ${pipe.arriving_thread}, ${plan.config.cluster_x};
    setp.eq.u32 %p, %tmp0, %rank_y;
    setp.eq.or.u32 %p, %tmp1, %rank_x, %p;
    and.pred %arrives_empty, %arrives_empty, %p;
% endif
% if pipe.multicast_ctas > 1:
    min.u32 %tmp0, ${pipe.arriving_thread}, ${pipe.last_multicast_cta};
    mapa.shared::cluster.u32 %empty_bar, %bars, %tmp0;
% endif
</%def>

## Frees the previous stage.
<%def name="free(who)">
% if plan.pipeline.a_from_registers:
    // all lanes have read the stage
    bar.warp.sync 0xffffffff;
% endif
    add.u32 %tmp0, %empty_bar, %prev_stage;
    @${who} mbarrier.arrive.shared::${plan.pipeline.empty_scope}.b64 _, [%tmp0+${plan.pipeline.empty}];
</%def>

<%def name="free_previous()">
    // the products of the previous iteration are complete: free its stage
    and.pred %arrives_prev, %arrives_empty, %accumulate;
${free("%arrives_prev")}\
</%def>

## The producer warp of a block in a cluster.
<%def name="drain()">
    // ---- drain: other blocks still arrive at this block's mbarriers, so wait until every stage is free
    mov.u32 %k_iter, 0;
    .pragma "nounroll";
DRAIN_LOOP:
    mad.lo.u32 %full_bar, %stage, 8, %bars;
    xor.b32 %parity, %phase, 1;
${sync.wait(f"%full_bar+{plan.pipeline.empty}", "%parity")}\
${sync.advance(plan.pipeline.stages)}\
    add.u32 %k_iter, %k_iter, 1;
    setp.lt.u32 %p, %k_iter, ${plan.pipeline.stages};
    @%p bra DRAIN_LOOP;
</%def>
