## Multistage schedule: every warp copies and computes. A circular buffer of stages in shared memory, one barrier per K iteration.
<%inherit file="/${context['plan'].frame}"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="pdl" file="/ptx/pdl.mako"/>\
<%namespace name="raster" file="/${context['plan'].scheduler.template}"/>\
<%namespace name="batch" file="/${context['plan'].batch.items}"/>\
<%namespace name="addr_a" file="/${context['plan'].a.addressing.template}"/>\
<%namespace name="addr_b" file="/${context['plan'].b.addressing.template}"/>\
<%namespace name="copy_a" file="/${context['plan'].a.copy}"/>\
<%namespace name="copy_b" file="/${context['plan'].b.copy}"/>\
<%namespace name="math" file="/${context['plan'].mainloop.math}"/>\
<%namespace name="operand_sums" file="/${context['plan'].operand_sums.template}"/>\
<%namespace name="sink" file="/${context['plan'].problem.sink.template}"/>\
<%namespace name="store_op" file="/${context['plan'].epilogue.store_op}"/>\
<%namespace name="store_c" file="/${context['plan'].epilogue.template}"/>\
<%namespace name="aux_kernels" file="/epilogue/splitk_kernels.mako"/>\
<%namespace name="sink_kernels" file="/${context['plan'].sink_kernels.template}"/>\
<%namespace name="fragments" file="/${context['plan'].mainloop.fragment_addr}"/>\
<%namespace name="packing" file="/${context['plan'].packing.template}"/>\
<%namespace name="stages" file="/${context['plan'].mainloop.stage_order}"/>\
<% operands = ((copy_a, addr_a, plan.a), (copy_b, addr_b, plan.b)) %>\
    .reg .b64 %A, %B, %C, %workspace, %tmp64, %tmp64b;
    .reg .b32 %M, %N, %K, %lda, %ldb, %ldc, %k_slice, %thread, %smem, %m0, %n0, %k0, %slice, %k_len, %k_iters, %k_rem;
    .reg .b32 %k_iter, %write_stage, %smem_end, %read_slot, %stage_step, %row, %col, %smem_c, %tmp0, %tmp1, %tmp2;
    .reg .pred %issue, %prefetch, %has_next, %has_load, %wrap, %skip, %p;
% for group in plan.scalars:
    .reg .${group.type} ${group.registers};
% endfor

    ld.param.u64 %A, [A];  ld.param.u64 %B, [B];  ld.param.u64 %C, [C];  ld.param.u64 %workspace, [W];
    cvta.to.global.u64 %A, %A;  cvta.to.global.u64 %B, %B;  cvta.to.global.u64 %C, %C;  cvta.to.global.u64 %workspace, %workspace;
${raster.parameters()}\
${batch.registers()}\
${packing.operand_addresses()}\
${pdl.early_trigger()}\
    mov.u32 %thread, %tid.x;
    mov.u32 %smem, smem;
${raster.open()}\
${ptx.banner("block to tile: tile of C, slice of K")}\
${raster.tile()}\
${sink.skip_tile()}\
${batch.from_block()}\
${batch.offset_operands()}\
${raster.k_iterations()}\
% for copy, addr, x in operands:
${ptx.banner(x.copy_title)}\
${addr.setup(x)}\
${copy.setup(x)}\
% endfor
${ptx.banner(f"prologue: fill {plan.mainloop.stages_ahead} of {plan.mainloop.stages} stages; {plan.mainloop.remainder_text}")}\
${pdl.wait()}\
    mov.u32 %write_stage, %smem;
% for s in range(plan.mainloop.stages_ahead):
    // stage ${s}
    setp.gt.u32 %issue, %k_iters, ${s};
  % for copy, addr, x in operands:
${copy.start(addr, x, "%write_stage", "%issue", s == 0)}\
${addr.advance(x, s == 0)}\
  % endfor
  % for line in plan.mainloop.commit:
    ${line}
  % endfor
    add.u32 %write_stage, %write_stage, ${plan.mainloop.stage_bytes};
% endfor
${stages.prologue(operands)}\
${store_op.prepare()}\
${ptx.banner("fragments: rows and columns of this thread, its shared-memory addresses")}\
${fragments.setup()}\
${math.clear_accumulators()}\
${operand_sums.begin()}\
${ptx.banner("wait: stage 0 is in shared memory")}\
% for line in plan.mainloop.wait:
    ${line}
% endfor
    bar.sync 0;
    setp.eq.u32 %p, %k_iters, 0;
    @%p bra.uni EPILOGUE;
    mov.u32 %k_iter, 0;
    mov.u32 %read_slot, 0;
    add.u32 %smem_end, %smem, ${plan.mainloop.ring_bytes};
${raster.choose_loop("COPY_LOOP")}\
${k_loop(plan.mainloop.WHOLE)}\
<%def name="k_loop(part)">
% for x in plan.mainloop.prefetched:
${math.read(x, 0, 0, part)}\
% endfor
% if plan.mainloop.peels_remainder:
${ptx.banner("first iteration: the remainder of K")}\
    setp.eq.u32 %p, %k_rem, ${plan.config.u};
    @%p bra.uni ${part.label};
${remainder_iteration(part)}\
    @!%has_next bra.uni EPILOGUE;
% endif
${ptx.banner(f"K loop: {plan.config.u} of K per iteration, {plan.mainloop.steps} steps per warp")}\
    .pragma "nounroll";
${part.label}:
${iteration(part)}\
    @%has_next bra.uni ${part.label};
</%def>\
<%def name="iteration(part)">
${begin_iteration()}\
% for k in range(plan.mainloop.steps):
    // step ${k} of ${plan.mainloop.steps}
  % for x in plan.mainloop.operands:
    % if not x.prefetches:
${math.read(x, k, 0, part)}\
    % endif
  % endfor
  % if k == plan.mainloop.last_step:
${stages.store_stage(operands)}\
    // fragment addresses of the next stage
${fragments.advance()}\
${wait_for_stage()}\
  % endif
  % for x in plan.mainloop.prefetched:
<% step, buffer, guard = plan.mainloop.read_ahead[x.name][k] %>\
${math.read(x, step, buffer, part, guard)}\
  % endfor
  % if k == plan.config.prefetch_k:
${load_stage(operands)}\
  % endif
${math.multiply(k, part)}\
${operand_sums.add(k)}\
% endfor
${next_write_stage()}\
</%def>\
<%def name="remainder_iteration(part)">
${begin_iteration()}\
${load_stage(operands)}\
${math.remainder()}\
${stages.store_stage(operands)}\
    // fragment addresses of the next stage
${fragments.advance()}\
${wait_for_stage()}\
% for x in plan.mainloop.prefetched:
${math.read(x, 0, 0, part, "@%has_next ")}\
% endfor
${next_write_stage()}\
</%def>\
<%def name="copies()">
${begin_iteration()}\
% for k in range(plan.mainloop.steps):
  % if k == plan.mainloop.last_step:
${stages.store_stage(operands)}\
${wait_for_stage()}\
  % endif
  % if k == plan.config.prefetch_k:
${load_stage(operands)}\
  % endif
% endfor
${next_write_stage()}\
</%def>\
${raster.other_loops("COPY_LOOP", k_loop, copies)}\
EPILOGUE:
${pdl.late_trigger()}\
${operand_sums.store()}\
${raster.finish_sums()}\
${ptx.banner(f"epilogue: {plan.epilogue.summary}")}\
${store_op.store_tiles(store_c, math, store_op)}\
${raster.close()}\
<%def name="begin_iteration()">
    // %prefetch: there is a stage to fill; %has_next: there is another iteration
    add.u32 %tmp0, %k_iter, ${plan.mainloop.stages_ahead};
    setp.lt.u32 %prefetch, %tmp0, %k_iters;
${stages.begin_iteration()}\
    add.u32 %k_iter, %k_iter, 1;
    setp.lt.u32 %has_next, %k_iter, %k_iters;
</%def>\
<%def name="wait_for_stage()">
${ptx.banner("wait: the next stage is in shared memory, and every warp has read this one")}\
% for line in plan.mainloop.wait:
    ${line}
% endfor
    bar.sync 0;
</%def>\
<%def name="load_stage(operands)">
${stages.load_stage(operands)}\
% for line in plan.mainloop.commit:
    ${line}
% endfor
</%def>\
<%def name="next_write_stage()">
    // address of the stage to fill next, modulo the number of stages
    add.u32 %write_stage, %write_stage, ${plan.mainloop.stage_bytes};
    setp.eq.u32 %wrap, %write_stage, %smem_end;
    selp.b32 %write_stage, %smem, %write_stage, %wrap;
</%def>\
<%def name="after_entry()">${aux_kernels.entries()}${packing.entries()}${sink_kernels.entries()}</%def>\
