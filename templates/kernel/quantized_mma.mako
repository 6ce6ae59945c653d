## Products with quantized weights: each lane loads weights from global memory to registers, several loads ahead. Activations
## come from stages in shared memory, or from global memory. Shared memory also holds the partial sums of warps that split K.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="raster" file="/${context['plan'].scheduler.template}"/>\
<%namespace name="pdl" file="/ptx/pdl.mako"/>\
<%namespace name="addr" file="/addr/quantized_mma.mako"/>\
<%namespace name="packing" file="/${context['plan'].packing.template}"/>\
<%namespace name="activations" file="/${context['plan'].a.template}"/>\
<%namespace name="lanes" file="/ptx/lane_loads.mako"/>\
<%namespace name="math" file="/math/quantized_mma.mako"/>\
<%namespace name="store_op" file="/${context['plan'].epilogue.store_op}"/>\
<%namespace name="store_c" file="/${context['plan'].epilogue.template}"/>\
<%namespace name="aux_kernels" file="/epilogue/splitk_kernels.mako"/>\
    .reg .b64 %A, %B, %C, %workspace, %tmp64, %tmp64b;
    .reg .b32 %M, %N, %K, %lda, %ldb, %ldc, %k_slice, %groups, %thread, %smem, %m0, %n0, %k0, %slice, %k_len;
    .reg .b32 %k_pos, %k_iters, %k_iter, %k_rem, %row, %col, %smem_c, %first_group, %tmp0, %tmp1, %tmp2;
    .reg .pred %in_k, %p, %in_k<${plan.mainloop.guards}>;
% for group in plan.scalars:
    .reg .${group.type} ${group.registers};
% endfor

    ld.param.u64 %A, [A];  ld.param.u64 %B, [B];  ld.param.u64 %C, [C];  ld.param.u64 %workspace, [W];
    cvta.to.global.u64 %A, %A;  cvta.to.global.u64 %B, %B;  cvta.to.global.u64 %C, %C;  cvta.to.global.u64 %workspace, %workspace;
% for array, _, _ in plan.b.group_arrays:
    .reg .b64 %${array};
    ld.param.u64 %${array}, [${array}];  cvta.to.global.u64 %${array}, %${array};
% endfor
${raster.parameters("  ld.param.u32 %groups, [groups];")}\
${pdl.early_trigger()}\
    mov.u32 %thread, %tid.x;
    mov.u32 %smem, smem;
${raster.open()}\
${ptx.banner("block to tile: tile of C, slice of K")}\
${raster.tile()}\
${raster.k_slice()}\
${ptx.banner("operands: rows, columns and K positions of this lane")}\
${addr.setup()}\
${pdl.wait()}\
${math.clear_accumulators()}\
    // K iterations of ${plan.config.u}, without the remainder of K
    shr.u32 %k_iters, %k_len, ${plan.mainloop.log2_u};
    setp.ne.u32 %in_k, %k_iters, 0;
% for s in plan.mainloop.prefetched_steps:
${lanes.load(s.loads, "@%in_k ")}\
% endfor
${activations.prologue()}\
${store_op.prepare()}\
    @!%in_k bra.uni K_TAIL;
${ptx.banner(f"K loop: {plan.config.u} of K per iteration, {plan.b.steps} steps per warp")}\
    mov.u32 %k_iter, 0;
    .pragma "nounroll";
K_LOOP:
    add.u32 %k_iter, %k_iter, 1;
    setp.lt.u32 %in_k, %k_iter, %k_iters;
${activations.begin()}\
% for s in plan.mainloop.loaded_steps:
${lanes.load(s.loads)}\
% endfor
% for s in plan.mainloop.steps:
    // step ${s.number}
${math.multiply(s)}\
  % if plan.mainloop.prefetches:
${lanes.load(s.following, "@%in_k ")}\
  % endif
% endfor
${addr.advance()}\
    @%in_k bra.uni K_LOOP;
${ptx.banner("K remainder: predicated loads, zeros past the end of K")}\
K_TAIL:
    shl.b32 %tmp0, %k_iters, ${plan.mainloop.log2_u};
    sub.u32 %k_rem, %k_len, %tmp0;
    setp.eq.u32 %p, %k_rem, 0;
    @%p bra.uni EPILOGUE;
    add.u32 %k_pos, %k_pos, %tmp0;
    add.u32 %tmp0, %k0, %k_len;
${activations.begin_last()}\
% for s in plan.mainloop.steps:
${addr.load_last_weights(s.loads)}\
${math.multiply(s, last=True)}\
    add.u32 %k_pos, %k_pos, ${plan.b.step_depth};
% endfor
EPILOGUE:
${activations.end()}\
${pdl.late_trigger()}\
${math.scale_rows()}\
${ptx.banner(f"epilogue: add the sums of warps that split K; {plan.epilogue.summary}")}\
${store_op.store_tiles(store_c, math, store_op)}\
${raster.close()}\
<%def name="after_entry()">${aux_kernels.entries()}${packing.entries()}</%def>\
