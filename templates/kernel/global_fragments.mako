## Schedule without shared memory: each thread loads its rows of A and columns of B from global memory and multiplies them.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="pdl" file="/ptx/pdl.mako"/>\
<%namespace name="raster" file="/${context['plan'].scheduler.template}"/>\
<%namespace name="batch" file="/${context['plan'].batch.items}"/>\
<%namespace name="fragments" file="/addr/global_fragments.mako"/>\
<%namespace name="math" file="/${context['plan'].mainloop.math}"/>\
<%namespace name="sink" file="/${context['plan'].problem.sink.template}"/>\
<%namespace name="store_op" file="/${context['plan'].epilogue.store_op}"/>\
<%namespace name="store_c" file="/${context['plan'].epilogue.template}"/>\
<%namespace name="aux_kernels" file="/epilogue/splitk_kernels.mako"/>\
<% operands, groups = (plan.a, plan.b), plan.mainloop.load_groups %>\
    .reg .b64 %A, %B, %C, %workspace, %tmp64, %tmp64b;
    .reg .b32 %M, %N, %K, %lda, %ldb, %ldc, %k_slice, %thread, %m0, %n0, %k0, %slice, %k_len;
    .reg .b32 %row, %col, %tmp0, %tmp1, %tmp2;
    .reg .pred %p;
% for group in plan.scalars:
    .reg .${group.type} ${group.registers};
% endfor

    ld.param.u64 %A, [A];  ld.param.u64 %B, [B];  ld.param.u64 %C, [C];  ld.param.u64 %workspace, [W];
    cvta.to.global.u64 %A, %A;  cvta.to.global.u64 %B, %B;  cvta.to.global.u64 %C, %C;  cvta.to.global.u64 %workspace, %workspace;
${raster.parameters()}\
${batch.registers()}\
${pdl.early_trigger()}\
    mov.u32 %thread, %tid.x;
${ptx.banner("block to tile: tile of C, slice of K")}\
${raster.tile()}\
${sink.skip_tile()}\
${batch.from_block()}\
${batch.offset_operands()}\
${raster.k_slice()}\
${ptx.banner("operands: rows and columns of this thread")}\
${fragments.thread_tile()}\
% for x, own in ((plan.a, "%row"), (plan.b, "%col")):
${fragments.pointers(x, own)}\
% endfor
% if plan.mainloop.widens:
    .reg .b16 %half<2>;
% endif
${math.clear_accumulators()}\
${pdl.wait()}\
${store_op.prepare()}\
${ptx.banner(f"K loop: {plan.config.u} of K per iteration; %k_len: the remaining elements of K")}\
    setp.eq.u32 %p, %k_len, 0;
    @%p bra.uni EPILOGUE;
    .pragma "nounroll";
K_LOOP:
% for first, end in groups:
  % for x in operands:
${fragments.load(x, first, end)}\
  % endfor
  % if end < plan.config.u and plan.mainloop.checks_bounds:
    setp.le.u32 %p, %k_len, ${end};
    @%p bra.uni MULTIPLY_${end};
  % endif
% endfor
    // the loaded elements, from the last one to the first
% for first, end in reversed(groups):
  % if end < plan.config.u and plan.mainloop.checks_bounds:
MULTIPLY_${end}:
  % endif
  % for k in reversed(range(first, end)):
    % for x in operands:
${fragments.widen(x, k)}\
    % endfor
${math.multiply(k, plan.mainloop.WHOLE)}\
  % endfor
% endfor
    setp.le.u32 %p, %k_len, ${plan.config.u};
    @%p bra.uni EPILOGUE;
    sub.u32 %k_len, %k_len, ${plan.config.u};
% for x in operands:
${fragments.advance(x)}\
% endfor
    bra.uni K_LOOP;
EPILOGUE:
${pdl.late_trigger()}\
${ptx.banner(f"epilogue: {plan.epilogue.summary}")}\
${store_op.store_tiles(store_c, math, store_op)}\
<%def name="after_entry()">${aux_kernels.entries()}</%def>\
