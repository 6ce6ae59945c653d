## Packs f32 operands as sums of three bf16 planes, K-major, in the workspace. Each plane is the rounded remainder after the
## planes before it.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="thread" file="/addr/split_bf16x3_threads.mako"/>
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%def name="entries()">
<% p = plan.packing.numbers %>\

// C = A B needs A and B as sums of three bf16: a block splits ${p.BLOCK_ROWS} rows, ${p.BLOCK_K} of K
.visible .entry ${plan.entry}_split_bf16x3(
% for line in plan.packing.parameter_list.declarations:
    ${line}
% endfor
)
.maxntid ${p.THREADS}, 1, 1
{
    .reg .b64 %workspace;
    .reg .b32 %K, %pitch, %thread, %block, %blocks_a, %smem;
    .reg .pred %is_b;
    ld.param.u64 %workspace, [W];
    cvta.to.global.u64 %workspace, %workspace;
    ld.param.u32 %K, [K];  ld.param.u32 %pitch, [pitch];
${pdl.trigger_and_wait()}\
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    ld.param.u32 %blocks_a, [blocks_a];
    mov.u32 %smem, smem;
    // the first blocks split A, the others B
    setp.ge.u32 %is_b, %block, %blocks_a;
    @%is_b bra.uni OPERAND_B;
${split(plan.packing.operands[0], p)}\
    ret;
OPERAND_B:
    sub.u32 %block, %block, %blocks_a;
${split(plan.packing.operands[1], p)}\
    ret;
}
</%def>

<%def name="split(x, p)">
    {
    .reg .b64 %src, %global_addr, %dst, %tmp64, %step_bytes;
    .reg .b32 %rows, %ld, %first_row, %k, %row, %k_thread, %tmp0, %tmp1;
    .reg .f32 %value<${p.HELD}>, %wide<2>;
    .reg .b32 %word<2>;
    .reg .b16 %half<2>;
    .reg .pred %in_rows, %in_k;
    // ---- ${x.name.upper()}: blocks are numbered along K, then along the rows of the planes
    ld.param.u64 %src, [${x.name.upper()}];
    cvta.to.global.u64 %src, %src;
    ld.param.u32 %rows, [rows_${x.name}];  ld.param.u32 %ld, [ld_${x.name}];  ld.param.u32 %tmp0, [copy_offset128_${x.name}];
    mad.wide.u32 %dst, %tmp0, ${plan.packing.ROW}, %workspace;
% if plan.batch.active:
${thread.item(x, p)}\
% endif
    div.u32 %tmp0, %pitch, ${p.BLOCK_K};
    div.u32 %first_row, %block, %tmp0;
    mul.lo.u32 %k, %first_row, %tmp0;
    sub.u32 %k, %block, %k;
    mul.lo.u32 %k, %k, ${p.BLOCK_K};
    mul.lo.u32 %first_row, %first_row, ${p.BLOCK_ROWS};
% for n in range(p.HELD):
    mov.f32 %value${n}, 0f00000000;
% endfor
% if x.kmajor:
${thread.chunks(p)}\
% else:
${thread.transposed(x, p)}\
${thread.chunks(p)}\
    mul.lo.u32 %tmp1, %row, ${p.BLOCK_PITCH};
    mad.lo.u32 %tmp1, %k_thread, ${p.CHUNK}, %tmp1;
    mad.lo.u32 %tmp1, %tmp1, 4, %smem;
  % for i, offset in enumerate(p.SHARED_OFFSETS):
    ld.shared.f32 %value${i}, [%tmp1+${offset}];
  % endfor
% endif
    mad.lo.u32 %k_thread, %k_thread, ${p.CHUNK}, %k;
    add.u32 %row, %row, %first_row;
% for i in range(p.ROUNDS):
  % if i:
    add.u32 %row, %row, ${p.DOWN};
  % endif
    setp.lt.u32 %in_rows, %row, %rows;
  % if x.kmajor:
    mul.wide.u32 %tmp64, %row, %ld;
    cvt.u64.u32 %global_addr, %k_thread;
    add.u64 %tmp64, %tmp64, %global_addr;
    mad.lo.u64 %global_addr, %tmp64, 4, %src;
    % for k, registers, offset in x.round_loads[i]:
${constants.add("%tmp0", "%k_thread", k)}\
    setp.lt.and.u32 %in_k, %tmp0, %K, %in_rows;
    @%in_k ld.global.nc.${x.load} ${registers}, [%global_addr+${offset}];
    % endfor
  % endif
    mul.wide.u32 %tmp64, %row, %pitch;
    cvt.u64.u32 %global_addr, %k_thread;
    add.u64 %tmp64, %tmp64, %global_addr;
    mad.lo.u64 %global_addr, %tmp64, 2, %dst;
    mul.wide.u32 %step_bytes, %rows, %pitch;
    shl.b64 %step_bytes, %step_bytes, 1;
  % for more in p.MORE_PLANES:
${thread.store_plane(p.ROUND_WORDS[i], more)}\
  % endfor
% endfor
SPLIT_DONE_${x.name.upper()}:
    }
</%def>
