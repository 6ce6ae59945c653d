## The schedule in which every warp copies and computes: a ring of stages, one barrier a pass.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="pdl" file="/ptx/pdl.mako"/>\
<%namespace name="raster" file="/${context['plan'].raster}"/>\
<%namespace name="batch" file="/sched/batch.mako"/>\
<%namespace name="addr_a" file="/${context['plan'].addr_a}"/>\
<%namespace name="addr_b" file="/${context['plan'].addr_b}"/>\
<%namespace name="copy_a" file="/${context['plan'].copy_a}"/>\
<%namespace name="copy_b" file="/${context['plan'].copy_b}"/>\
<%namespace name="math" file="/${context['plan'].math}"/>\
<%namespace name="store_op" file="/${context['plan'].store_op}"/>\
<%namespace name="store_c" file="/${context['plan'].store_c}"/>\
<%namespace name="aux_kernels" file="/epilogue/splitk_kernels.mako"/>\
<%namespace name="reader" file="/${context['plan'].reader}"/>\
<%namespace name="repacked" file="/addr/packed.mako"/>\
<%
    operands = ((copy_a, addr_a, plan.a), (copy_b, addr_b, plan.b))
    last = plan.steps - 1
%>\
    .reg .b64 %A, %B, %C, %W, %t64, %u64;
    .reg .b32 %M, %N, %K, %lda, %ldb, %ldc, %chunk, %thread, %smem, %m0, %n0, %k0, %z, %k_len, %k_iters, %k_rem;
    .reg .b32 %k_iter, %write_stage, %smem_end, %read_slot, %stage_step, %row, %col, %smem_c, %t0, %t1, %t2;
    .reg .pred %issue, %prefetch, %has_next, %has_load, %wrap, %skip, %p;
    .reg .${plan.epilogue_type} %alpha, %beta;

    ld.param.u64 %A, [A];  ld.param.u64 %B, [B];  ld.param.u64 %C, [C];  ld.param.u64 %W, [W];
    cvta.to.global.u64 %A, %A;  cvta.to.global.u64 %B, %B;  cvta.to.global.u64 %C, %C;  cvta.to.global.u64 %W, %W;
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];  ld.param.u32 %K, [K];  ld.param.u32 %chunk, [chunk];
    ld.param.u32 %lda, [lda];  ld.param.u32 %ldb, [ldb];  ld.param.u32 %ldc, [ldc];
    ld.param.${plan.epilogue_type} %alpha, [alpha];  ld.param.${plan.epilogue_type} %beta, [beta];
${batch.registers()}\
${repacked.places()}\
${pdl.early_trigger()}\
    mov.u32 %thread, %tid.x;
    mov.u32 %smem, smem;
${ptx.banner("which tile of C, which slice of K")}\
${raster.tile()}\
${batch.from_block()}\
${batch.offset_operands()}\
${raster.slice()}\
% for copy, addr, x in operands:
${ptx.banner(f"{x.name.upper()}: {len(x.pieces)} loads of {x.copy_bytes} bytes a thread and stage, {copy.title(x)}")}\
${addr.setup(x)}\
${copy.setup(x)}\
% endfor
${ptx.banner(f"prologue: {plan.stages - 1} stages in flight; the first takes what K leaves over")}\
${pdl.wait()}\
    mov.u32 %write_stage, %smem;
% for s in range(plan.stages - 1):
    setp.gt.u32 %issue, %k_iters, ${s};
% for copy, addr, x in operands:
${copy.start(addr, x, "%write_stage", "%issue", s == 0)}\
${addr.advance(x, s == 0)}\
% endfor
% if plan.asynchronous:
    cp.async.commit_group;
% endif
    add.u32 %write_stage, %write_stage, ${plan.stage_bytes};
% endfor
% if plan.hold:
    setp.gt.u32 %has_load, %k_iters, ${plan.stages - 1};
% for copy, addr, x in operands:
${copy.ahead(addr, x, "%has_load")}\
% if not x.asynchronous:
${addr.advance(x, False)}\
% endif
% endfor
% endif
${store_op.prepare()}\
${ptx.banner("which rows and columns this thread multiplies")}\
${reader.setup()}\
${math.clear()}\
% if plan.asynchronous:
    cp.async.wait_group ${plan.wait};
% endif
    bar.sync 0;
    setp.eq.u32 %p, %k_iters, 0;
    @%p bra.uni EPILOGUE;
    mov.u32 %k_iter, 0;
    mov.u32 %read_slot, 0;
    add.u32 %smem_end, %smem, ${plan.stages * plan.stage_bytes};
% for x in plan.operands:
% if x.ahead:
${math.read(x, 0, 0)}\
% endif
% endfor
${ptx.banner(f"main loop: {plan.steps} steps of K a pass")}\
    .pragma "nounroll";
K_LOOP:
    add.u32 %t0, %k_iter, ${plan.stages - 1};
    setp.lt.u32 %prefetch, %t0, %k_iters;
% if plan.hold:
    add.u32 %t0, %k_iter, ${plan.stages};
    setp.lt.u32 %has_load, %t0, %k_iters;
% endif
    add.u32 %k_iter, %k_iter, 1;
    setp.lt.u32 %has_next, %k_iter, %k_iters;
% for k in range(plan.steps):
    // step ${k}
% for x in plan.operands:
% if not x.ahead:
${math.read(x, k, 0)}\
% endif
% endfor
% if k == last:
% if not plan.hold:
% for copy, addr, x in operands:
${copy.late(addr, x, "%write_stage", "%prefetch")}\
% endfor
% endif
${reader.advance()}\
% if plan.asynchronous:
    cp.async.wait_group ${plan.wait};
% endif
    bar.sync 0;
% endif
% for x in plan.operands:
% if x.ahead:
${math.read(x, 0 if k == last else k + 1, x.buffer(k + 1), "@%has_next " if k == last else "")}\
% endif
% endfor
% if k == plan.config.prefetch_k:
% if plan.hold:
% for copy, addr, x in operands:
${copy.held(addr, x, "%write_stage", "%prefetch", "%has_load")}\
${addr.advance(x, False)}\
% endfor
% else:
% for copy, addr, x in operands:
${copy.early(addr, x, "%write_stage", "%prefetch")}\
${addr.advance(x, False)}\
% endfor
% endif
% if plan.asynchronous:
    cp.async.commit_group;
% endif
% endif
${math.multiply(k)}\
% endfor
    add.u32 %write_stage, %write_stage, ${plan.stage_bytes};
    setp.eq.u32 %wrap, %write_stage, %smem_end;
    selp.b32 %write_stage, %smem, %write_stage, %wrap;
    @%has_next bra.uni K_LOOP;
EPILOGUE:
${pdl.late_trigger()}\
${ptx.banner("the tile leaves")}\
${store_op.store_tiles(store_c, math, store_op)}\
<%def name="after_entry()">${aux_kernels.entries()}${repacked.entries()}</%def>\
