## Parts of the splitting kernel: the batch item, rows that are not K-major, planes.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="convert" file="/ptx/convert.mako"/>
## A batch item of the launch, if it has an operand of its own.
<%def name="item(x, p)">
    mov.u32 %tmp0, %ctaid.z;
    ld.param.u32 %tmp1, [items_${x.name}];
    setp.ge.u32 %in_rows, %tmp0, %tmp1;
    @%in_rows bra.uni SPLIT_DONE_${x.name.upper()};
    ld.param.u32 %tmp1, [copy_item128_${x.name}];
    mul.wide.u32 %tmp64, %tmp0, %tmp1;
    mad.lo.u64 %dst, %tmp64, ${plan.packing.ROW}, %dst;
    ld.param.u32 %tmp1, [first_item];
    add.u32 %tmp0, %tmp0, %tmp1;
    cvt.u64.u32 %tmp64, %tmp0;
    ld.param.u64 %global_addr, [batch_stride_${x.name}];
    mad.lo.u64 %src, %tmp64, %global_addr, %src;
</%def>

## Stores a plane of four elements, two in each of ``words``; if ``more`` planes follow, the elements become the remainders.
<%def name="store_plane(words, more)">
% for word, low, high in words:
    cvt.rn.bf16x2.f32 ${word}, ${high}, ${low};
  % if more:
${convert.widen_pair("bf16", "%wide0", "%wide1", word, ())}\
    sub.rn.f32 ${low}, ${low}, %wide0;
    sub.rn.f32 ${high}, ${high}, %wide1;
  % endif
% endfor
    @%in_rows st.global.v2.b32 [%global_addr], {%word0, %word1};
% if more:
    add.u64 %global_addr, %global_addr, %step_bytes;
% endif
</%def>

<%def name="chunks(p)">
    // this thread's ${p.CHUNK} elements of K in each of ${p.ROUNDS} rows
    rem.u32 %k_thread, %thread, ${p.ACROSS};
    div.u32 %row, %thread, ${p.ACROSS};
</%def>

## Where rows are contiguous in memory: transposes them through shared memory.
<%def name="transposed(x, p)">
    rem.u32 %row, %thread, ${p.BLOCK_ROWS};
    div.u32 %k_thread, %thread, ${p.BLOCK_ROWS};
    mad.lo.u32 %tmp1, %row, ${p.BLOCK_PITCH}, %k_thread;
    mad.lo.u32 %tmp1, %tmp1, 4, %smem;
    add.u32 %row, %row, %first_row;
    add.u32 %k_thread, %k_thread, %k;
    setp.lt.u32 %in_rows, %row, %rows;
    mul.wide.u32 %tmp64, %k_thread, %ld;
    cvt.u64.u32 %global_addr, %row;
    add.u64 %tmp64, %tmp64, %global_addr;
    mad.lo.u64 %global_addr, %tmp64, 4, %src;
    mul.wide.u32 %step_bytes, %ld, ${p.LOADED_BYTES};
% for i, k in enumerate(p.TRANSPOSED_K):
${constants.add("%tmp0", "%k_thread", k)}\
    setp.lt.and.u32 %in_k, %tmp0, %K, %in_rows;
    @%in_k ld.global.nc.f32 %value${i}, [%global_addr];
    add.u64 %global_addr, %global_addr, %step_bytes;
% endfor
% for i, offset in enumerate(p.TRANSPOSED_OFFSETS):
    st.shared.f32 [%tmp1+${offset}], %value${i};
% endfor
    // ---- wait: the block's elements are in shared memory
    bar.sync 0;
</%def>
