## Skinny schedule: each thread loads its operands from global memory to registers, several loads ahead. Shared memory
## only holds the partial sums of threads that split K.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="raster" file="/${context['plan'].scheduler.template}"/>\
<%namespace name="pdl" file="/ptx/pdl.mako"/>\
<%namespace name="batch" file="/${context['plan'].batch.items}"/>\
<%namespace name="addr" file="/addr/skinny.mako"/>\
<%namespace name="thread_map" file="/${context['plan'].mainloop.thread_map}"/>\
<%namespace name="math" file="/${context['plan'].mainloop.math}"/>\
<%namespace name="store_op" file="/${context['plan'].epilogue.store_op}"/>\
<%namespace name="store_c" file="/${context['plan'].epilogue.template}"/>\
<%namespace name="aux_kernels" file="/epilogue/splitk_kernels.mako"/>\
<% x, y, steps = plan.mainloop.x, plan.mainloop.y, range(plan.mainloop.steps) %>\
    .reg .b64 %A, %B, %C, %workspace, %tmp64, %tmp64b;
    .reg .b32 %M, %N, %K, %lda, %ldb, %ldc, %k_slice, %thread, %smem, %m0, %n0, %k0, %slice, %k_len;
    .reg .b32 %k_pos, %k_iters, %k_iter, %k_rem, %row, %col, %smem_c, %tmp0, %tmp1, %tmp2;
    .reg .pred %is_k_lane0, %in_k, %p;
% for group in plan.scalars:
    .reg .${group.type} ${group.registers};
% endfor
${batch.registers()}\

    ld.param.u64 %A, [A];  ld.param.u64 %B, [B];  ld.param.u64 %C, [C];  ld.param.u64 %workspace, [W];
    cvta.to.global.u64 %A, %A;  cvta.to.global.u64 %B, %B;  cvta.to.global.u64 %C, %C;  cvta.to.global.u64 %workspace, %workspace;
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];  ld.param.u32 %K, [K];  ld.param.u32 %k_slice, [k_slice];
    ld.param.u32 %lda, [lda];  ld.param.u32 %ldb, [ldb];  ld.param.u32 %ldc, [ldc];
% for group in plan.scalars:
    ${group.load}
% endfor
${pdl.early_trigger()}\
    mov.u32 %thread, %tid.x;
    mov.u32 %smem, smem;
${ptx.banner("block to tile: tile of C, slice of K")}\
${raster.tile()}\
${batch.from_block()}\
${batch.offset_operands()}\
${raster.k_slice()}\
${ptx.banner("operands: rows, columns and K positions of this thread")}\
${thread_map.setup()}\
${math.clear_accumulators()}\
${pdl.wait()}\
    // K iterations of ${plan.config.u}, without the remainder of K
    shr.u32 %k_iters, %k_len, ${plan.mainloop.log2_u};
    setp.ne.u32 %in_k, %k_iters, 0;
% for s in plan.mainloop.prefetched_steps:
${addr.load(x, s, "@%in_k ")}\
% endfor
${store_op.prepare()}\
    @!%in_k bra.uni K_TAIL;
${ptx.banner(f"K loop: {plan.config.u} of K per iteration, {plan.mainloop.steps} steps per thread")}\
    mov.u32 %k_iter, 0;
    .pragma "nounroll";
K_LOOP:
    add.u32 %k_iter, %k_iter, 1;
    setp.lt.u32 %in_k, %k_iter, %k_iters;
% for s in plan.mainloop.loaded_steps:
${addr.load(x, s)}\
% endfor
% for s in steps:
    // step ${s} of ${plan.mainloop.steps}
${addr.load(y, s)}\
${math.multiply(s)}\
  % if plan.mainloop.prefetches:
${addr.load(x, s, "@%in_k ", following=True)}\
  % endif
% endfor
${addr.advance(x)}\
${addr.advance(y)}\
    @%in_k bra.uni K_LOOP;
${ptx.banner("K remainder: predicated loads, zeros past the end of K")}\
K_TAIL:
    shl.b32 %tmp0, %k_iters, ${plan.mainloop.log2_u};
${thread_map.remainder()}\
% for s in steps:
    setp.lt.u32 %in_k, %k_pos, %tmp0;
${addr.load(x, s, "@%in_k ", zeros=True)}\
${addr.load(y, s, "@%in_k ", zeros=True)}\
${math.multiply(s)}\
    add.u32 %k_pos, %k_pos, ${plan.mainloop.step_stride};
% endfor
${thread_map.unaligned_elements(math)}\
EPILOGUE:
${pdl.late_trigger()}\
${ptx.banner(f"epilogue: add the sums of threads that split K; {plan.epilogue.summary}")}\
${math.reduce_lanes()}\
${store_op.store_tiles(store_c, math, store_op)}\
<%def name="after_entry()">${aux_kernels.entries()}</%def>\
