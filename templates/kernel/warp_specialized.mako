## The schedule in which one warp copies and warpgroups multiply, around a ring of stages between full and empty barriers.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="pdl" file="/ptx/pdl.mako"/>\
<%namespace name="sync" file="/ptx/barrier.mako"/>\
<%namespace name="ring" file="/copy/mbarrier_pipeline.mako"/>\
<%namespace name="sched" file="/${context['plan'].sched}"/>\
<%namespace name="copy" file="/copy/tma.mako"/>\
<%namespace name="math" file="/${context['plan'].math}"/>\
<%namespace name="sums" file="/${context['plan'].sums}"/>\
<%namespace name="before" file="/${context['plan'].before}"/>\
<%namespace name="added" file="/epilogue/dsmem_reduce.mako"/>\
<%namespace name="meet" file="/epilogue/splitk_fixup.mako"/>\
<%namespace name="store_op" file="/${context['plan'].store_op}"/>\
<%namespace name="store_c" file="/${context['plan'].store_c}"/>\
<%namespace name="batch" file="/sched/batch.mako"/>\
<%namespace name="aux_kernels" file="/epilogue/splitk_kernels.mako"/>\
    .reg .b64 %C, %W, %map_x, %map_y, %map_c, %t64, %u64;
    .reg .b32 %M, %N, %K, %ldc, %chunk, %more, %thread, %smem, %bars, %warp, %lane, %wg, %member, %quarter, %rank;
    .reg .b32 %x0, %y0, %z, %k0, %k, %passes, %pass, %stage, %phase, %parity, %full, %before, %slot;
    .reg .b32 %x_low, %y_low, %release, %tile, %tiles, %hop, %across, %down, %t0, %t1, %t2;
    .reg .pred %p, %one, %leader, %wrap, %later, %frees, %free;
    .reg .${plan.epilogue_type} %alpha, %beta;
${store_c.registers()}\

    ld.param.u64 %C, [C];  ld.param.u64 %W, [W];
    cvta.to.global.u64 %C, %C;  cvta.to.global.u64 %W, %W;
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];  ld.param.u32 %K, [K];  ld.param.u32 %ldc, [ldc];
    ld.param.u32 %chunk, [chunk];  ld.param.u32 %more, [more];
    ld.param.${plan.epilogue_type} %alpha, [alpha];  ld.param.${plan.epilogue_type} %beta, [beta];
% for name in plan.maps:
    mov.b64 %${name}, ${name};
    cvta.param.u64 %${name}, %${name};
% endfor
${batch.registers()}\
${batch.last_coordinates()}\
${pdl.early_trigger()}\
    mov.u32 %thread, %tid.x;
    shr.u32 %warp, %thread, 5;
    shfl.sync.idx.b32 %warp, %warp, 0, 31, 0xffffffff;
    mov.u32 %smem, smem;
    add.u32 %bars, %smem, ${plan.barriers};
${ring.place()}\
    mov.u32 %stage, 0;  mov.u32 %phase, 0;
${ring.initialise()}\
    setp.lt.u32 %p, %warp, ${plan.producer_warp};
    @%p bra.uni CONSUMER;
${ptx.banner("the producer: one thread of the last warp" + ("group" if plan.gives else ""))}\
${ring.setup()}\
    @!%one bra PRODUCED;
${copy.setup()}\
${pdl.wait()}\
${sched.open("PRODUCER")}\
${copy.begin()}\
    mov.u32 %pass, 0;
    .pragma "nounroll";
FILL:
    mad.lo.u32 %full, %stage, 8, %bars;
${copy.parity()}\
${sync.wait(f"%full+{plan.empty_at}", "%parity")}\
${copy.fill()}\
${sync.advance(plan.stages)}\
${copy.step()}\
    add.u32 %pass, %pass, 1;
    setp.lt.u32 %p, %pass, %passes;
    @%p bra FILL;
${sched.close("PRODUCER")}\
${pdl.late_trigger()}\
% if plan.sharing > 1:
${ring.drain()}\
% endif
PRODUCED:
    bar.warp.sync 0xffffffff;
% if plan.kc > 1:
    barrier.cluster.wait.acquire.aligned;
% if not plan.counted:
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
% endif
% endif
    bra.uni END;
CONSUMER:
${ptx.banner(f"the consumers: {plan.wg} warpgroup{'s' if plan.wg > 1 else ''}")}\
    shr.u32 %wg, %warp, 2;
    and.b32 %member, %thread, 127;
    shr.u32 %quarter, %member, 5;
    and.b32 %lane, %thread, 31;
    setp.eq.u32 %leader, %member, 0;
${ring.releases()}\
${math.setup()}\
${store_c.setup()}\
% if plan.pingpong:
    // the first turn is the first warpgroup's
    setp.ne.u32 %p, %wg, 0;
    @%p bar.arrive 4, 256;
% endif
${pdl.wait()}\
${sched.open("CONSUMER")}\
${store_c.early()}\
    mov.u32 %pass, 0;
    mov.u32 %before, 0;
${sums.begin()}\
% if plan.pingpong:
    // not before the other has seen all its stages full: parities tell neighbouring rounds apart, and no more
${sync.turn("sync", 4)}\
% endif
    .pragma "nounroll";
PASS:
    mul.lo.u32 %slot, %stage, 8;
    add.u32 %full, %bars, %slot;
${sync.wait("%full", "%phase")}\
    setp.ne.u32 %later, %pass, 0;
${math.multiply(ring)}\
${sums.settle(ring)}\
${sync.advance(plan.stages)}\
    add.u32 %pass, %pass, 1;
    setp.lt.u32 %p, %pass, %passes;
    @%p bra.uni PASS;
% if plan.pingpong:
${sync.turn("arrive", 5)}\
% endif
    wgmma.wait_group.sync.aligned 0;
% if plan.frees_last:
${ring.free('%frees')}\
% endif
${math.widen()}\
% if plan.kc > 1:
${ptx.banner(f"{plan.kc} blocks of the cluster add their sums")}\
${added.sum()}\
% endif
% if plan.meets:
${ptx.banner("slices of K meet in the workspace")}\
${meet.sum()}\
% endif
${ptx.banner("the tile leaves")}\
${math.convert()}\
${store_op.store_tiles(store_c, math, store_op)}\
${sched.close("CONSUMER")}\
${store_c.finish()}\
END:
<%def name="after_entry()">${before.entries()}${aux_kernels.entries()}</%def>\
