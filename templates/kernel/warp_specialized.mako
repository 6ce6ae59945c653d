## One warp loads stages by TMA, warpgroups multiply them. Each stage has a full and an empty mbarrier.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="pdl" file="/ptx/pdl.mako"/>\
<%namespace name="sync" file="/ptx/barrier.mako"/>\
<%namespace name="pipeline" file="/copy/mbarrier_pipeline.mako"/>\
<%namespace name="sched" file="/${context['plan'].scheduler.template}"/>\
<%namespace name="reachable" file="/sched/reachable_tiles.mako"/>\
<%namespace name="turns" file="/${context['plan'].turns}"/>\
<%namespace name="copy" file="/copy/tma.mako"/>\
<%namespace name="math" file="/${context['plan'].mainloop.template}"/>\
<%namespace name="sums" file="/${context['plan'].mainloop.accumulate}"/>\
<%namespace name="operand_sums" file="/${context['plan'].operand_sums.template}"/>\
<%namespace name="scales" file="/${context['plan'].scales.template}"/>\
<%namespace name="packing" file="/${context['plan'].packing.template}"/>\
<%namespace name="cluster" file="/epilogue/dsmem_reduce.mako"/>\
<%namespace name="fixup" file="/${context['plan'].fixup.template}"/>\
<%namespace name="store_op" file="/${context['plan'].epilogue.store_op}"/>\
<%namespace name="store_c" file="/${context['plan'].epilogue.template}"/>\
<%namespace name="batch" file="/${context['plan'].batch.template}"/>\
<%namespace name="sink_kernels" file="/${context['plan'].sink_kernels.template}"/>\
<%namespace name="aux_kernels" file="/${context['plan'].c_kernels.template}"/>\
<% pipe, warpgroups = plan.pipeline, plan.config.math_warpgroups %>\
    .reg .b64 %C, %workspace, ${plan.parameters.map_registers}, %tmp64, %tmp64b;
    .reg .b32 %M, %N, %K, %ldc, %min_iters, %extra_iters, %thread, %smem, %bars, %warp, %lane, %wg, %wg_thread, %wg_warp, %rank;
    .reg .b32 %x0, %y0, %slice, %k0, %k, %k_iters, %k_iter, %stage, %phase, %parity, %full_bar, %prev_stage, %bar_offset;
    .reg .b32 %x_desc_low, %y_desc_low, %empty_bar, %tile, %tiles, %tile_step, %tiles_x, %tiles_y, %tmp0, %tmp1, %tmp2;
    .reg .pred %p, %elected, %leader, %wrap, %accumulate, %arrives_empty, %arrives_prev;
% for group in plan.scalars:
    .reg .${group.type} ${group.registers};
% endfor
${ptx.banner("prologue: parameters, tensor maps, thread numbers")}\
    ld.param.u64 %C, [C];  ld.param.u64 %workspace, [W];
    cvta.to.global.u64 %C, %C;  cvta.to.global.u64 %workspace, %workspace;
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];  ld.param.u32 %K, [K];  ld.param.u32 %ldc, [ldc];
    ld.param.u32 %min_iters, [k_iters];  ld.param.u32 %extra_iters, [extra_iters];
% for group in plan.scalars:
    ${group.load}
% endfor
% for name in plan.parameters.maps:
    mov.b64 %${name}, ${name};
    cvta.param.u64 %${name}, %${name};
% endfor
${batch.registers()}\
${batch.last_coordinates()}\
${sched.registers()}\
${pdl.early_trigger()}\
    mov.u32 %thread, %tid.x;
    // warp index, broadcast from lane 0: ptxas then knows that it is uniform
    shr.u32 %warp, %thread, 5;
    shfl.sync.idx.b32 %warp, %warp, 0, 31, 0xffffffff;
    mov.u32 %smem, smem;
    add.u32 %bars, %smem, ${pipe.base};
${pipeline.cluster_ranks()}\
% if plan.skips_tiles and not plan.config.persistent:
${reachable.skip_block(sched)}\
% endif
    mov.u32 %stage, 0;  mov.u32 %phase, 0;
${ptx.banner(f"mbarriers: {plan.pipeline.stages} full, {plan.pipeline.stages} empty, {len(pipe.others)} more; warp {pipe.producer_warp} initialises them")}\
${pipeline.initialise()}\
    setp.lt.u32 %p, %warp, ${pipe.producer_warp};
    @%p bra.uni CONSUMER;
${ptx.banner(f"producer: one thread of the last {pipe.producer_text} issues all TMA loads")}\
${pipeline.producer_setup()}\
    @!%elected bra PRODUCER_DONE;
${copy.setup()}\
${pdl.wait()}\
${sched.open("PRODUCER")}\
${copy.begin()}\
${ptx.banner("producer loop: an iteration fills one stage")}\
    mov.u32 %k_iter, 0;
${batch.begin_producer_loop()}\
    .pragma "nounroll";
PRODUCER_LOOP:
    mad.lo.u32 %full_bar, %stage, 8, %bars;
    // ---- wait: the math warpgroups have freed the stage
${copy.parity()}\
${sync.wait(f"%full_bar+{pipe.empty}", "%parity")}\
    // fill the stage
${copy.fill()}\
${sync.advance(plan.pipeline.stages)}\
${copy.step()}\
    add.u32 %k_iter, %k_iter, 1;
    setp.lt.u32 %p, %k_iter, %k_iters;
    @%p bra PRODUCER_LOOP;
${batch.end_producer_loop()}\
${sched.close("PRODUCER")}\
${pdl.late_trigger()}\
% if pipe.multicast_ctas > 1:
${pipeline.drain()}\
% endif
PRODUCER_DONE:
    bar.warp.sync 0xffffffff;
% if plan.config.cluster_k > 1:
    // ---- wait: the producer warp arrives at the cluster's barriers
    barrier.cluster.wait.acquire.aligned;
  % if not pipe.counts_dsmem:
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
  % endif
% endif
    bra.uni END;
CONSUMER:
${ptx.banner(f"math warpgroups: {warpgroups}")}\
    shr.u32 %wg, %warp, 2;
    and.b32 %wg_thread, %thread, 127;
    shr.u32 %wg_warp, %wg_thread, 5;
    and.b32 %lane, %thread, 31;
    setp.eq.u32 %leader, %wg_thread, 0;
${pipeline.consumer_setup()}\
${math.setup()}\
${operand_sums.setup()}\
${scales.setup()}\
${store_c.setup()}\
${turns.begin()}\
${pdl.wait()}\
${sched.open("CONSUMER")}\
${store_c.early()}\
${ptx.banner("K loop: an iteration multiplies one stage")}\
    mov.u32 %k_iter, 0;
    mov.u32 %prev_stage, 0;
${sums.begin()}\
${turns.take_turn()}\
${batch.begin_k_loop()}\
    .pragma "nounroll";
K_LOOP:
    mul.lo.u32 %bar_offset, %stage, 8;
    add.u32 %full_bar, %bars, %bar_offset;
    // ---- wait: the stage is full
${sync.wait("%full_bar", "%phase")}\
    setp.ne.u32 %accumulate, %k_iter, 0;
${math.multiply(pipeline)}\
${sums.end_iteration(pipeline)}\
${sync.advance(plan.pipeline.stages)}\
    add.u32 %k_iter, %k_iter, 1;
    setp.lt.u32 %p, %k_iter, %k_iters;
    @%p bra.uni K_LOOP;
${batch.end_k_loop()}\
${turns.end_turn()}\
    // ---- wait: all products are complete
    wgmma.wait_group.sync.aligned 0;
% if pipe.frees_last_stage:
${pipeline.free(plan.batch.frees_last)}\
% endif
${batch.zero_sums()}\
${operand_sums.store()}\
${math.widen()}\
% if plan.config.cluster_k > 1:
${ptx.banner(f"cluster reduction: {plan.config.cluster_k} blocks add their sums through distributed shared memory")}\
${cluster.reduce()}\
% endif
% if plan.fixup.active:
${ptx.banner("split-K fix-up: slices of K add their sums in the workspace")}\
${fixup.reduce()}\
% endif
${ptx.banner(f"epilogue: {plan.epilogue.formula}, {plan.epilogue.path}")}\
${math.convert()}\
${store_op.store_tiles(store_c, math, store_op)}\
${sched.close("CONSUMER")}\
${store_c.finish()}\
END:
<%def name="after_entry()">${packing.entries()}${aux_kernels.entries()}${sink_kernels.entries()}</%def>\
