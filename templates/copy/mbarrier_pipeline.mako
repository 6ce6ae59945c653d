## The ring's barriers: full[stages], empty[stages], and what the epilogue asks for.
<%namespace name="sync" file="/ptx/barrier.mako"/>
## Which block of its cluster this is: in all, and along X and Y.
<%def name="place()">
% if plan.clustered:
    mov.u32 %rank, %cluster_ctarank;
% endif
% if plan.crossed:
    .reg .b32 %rank_x, %rank_y;
    div.u32 %rank_y, %rank, ${plan.cluster};
    rem.u32 %rank_x, %rank, ${plan.cluster};
% endif
</%def>

## Before the roles divide: one lane of the producer warp initialises the mbarriers, then the whole block waits.
<%def name="initialise()">
    setp.ne.u32 %p, %warp, ${plan.producer_warp};
    @%p bra.uni INITIALISED;
    elect.sync _|%one, 0xffffffff;
    @!%one bra ONE_LANE;
% for name in plan.maps:
    prefetch.tensormap [%${name}];
% endfor
% for s in range(plan.stages):
    mbarrier.init.shared::cta.b64 [%bars+${8 * s}], 1;
    mbarrier.init.shared::cta.b64 [%bars+${plan.empty_at + 8 * s}], ${plan.releases};
% endfor
% for at, count in plan.more_barriers:
    mbarrier.init.shared::cta.b64 [%bars+${at}], ${count};
% endfor
    fence.mbarrier_init.release.cluster;
% if plan.counted:
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bars+${plan.added_at}], ${plan.added_bytes};
% endif
ONE_LANE:
    bar.warp.sync 0xffffffff;
INITIALISED:
% if plan.clustered:
    barrier.cluster.arrive.relaxed.aligned;
% endif
    bar.sync 0;
% if plan.sharing > 1:
    barrier.cluster.wait.acquire.aligned;
% endif
</%def>

## By the producer warp (or warpgroup). %one: the thread that issues the copies.
<%def name="setup()">
% if plan.gives:
    setmaxnreg.dec.sync.aligned.u32 ${plan.gives[0]};
% endif
    elect.sync _|%one, 0xffffffff;
% if plan.gives:
    setp.eq.and.u32 %one, %warp, ${plan.producer_warp}, %one;
% endif
</%def>

## By consumers, with all the registers that they will need: whom they tell that a stage is free.
<%def name="releases()">
% if plan.gives:
    setmaxnreg.inc.sync.aligned.u32 ${plan.gives[1]};
% endif
    mov.b32 %release, %bars;
    // thread i of a warp${"" if plan.fed else "group"} reports to block i of the cluster
    setp.lt.u32 %frees, ${plan.reporter}, ${plan.sharing};
% if plan.crossed:
    // which loads for this one if they have X or Y in common
    div.u32 %t0, ${plan.reporter}, ${plan.cluster};
    rem.u32 %t1, ${plan.reporter}, ${plan.cluster};
    setp.eq.u32 %p, %t0, %rank_y;
    setp.eq.or.u32 %p, %t1, %rank_x, %p;
    and.pred %frees, %frees, %p;
% endif
% if plan.sharing > 1:
    min.u32 %t0, ${plan.reporter}, ${plan.sharing - 1};
    mapa.shared::cluster.u32 %release, %bars, %t0;
% endif
</%def>

<%def name="free(who)">
% if plan.fed:
    // what the warp read is read
    bar.warp.sync 0xffffffff;
% endif
    add.u32 %t0, %release, %before;
    @${who} mbarrier.arrive.shared::${plan.release_scope}.b64 _, [%t0+${plan.empty_at}];
</%def>

<%def name="free_before()">
    // the pass before has been multiplied: its stage is free
    and.pred %free, %frees, %later;
${free("%free")}\
</%def>

## By the producer of a cluster.
<%def name="drain()">
    // others still report to this block's barriers: leave when every stage is free
    mov.u32 %pass, 0;
    .pragma "nounroll";
DRAIN:
    mad.lo.u32 %full, %stage, 8, %bars;
    xor.b32 %parity, %phase, 1;
${sync.wait(f"%full+{plan.empty_at}", "%parity")}\
${sync.advance(plan.stages)}\
    add.u32 %pass, %pass, 1;
    setp.lt.u32 %p, %pass, ${plan.stages};
    @%p bra DRAIN;
</%def>
