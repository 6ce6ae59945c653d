## Stream-K: a block with a part of a tile stores its sums in the workspace and adds its iterations to the counter of the first
## block of the tile. The block that completes the tile adds the sums of all parts in order, and stores C.
<%namespace name="ptx" file="/ptx/banner.mako"/>
<%namespace name="vector" file="/ptx/vector.mako"/>
<%namespace name="last_slice" file="/epilogue/last_slice.mako"/>
<%def name="sum_parts(slice_bytes, done)">
<% vectors, offsets = plan.mainloop.sum_vectors, plan.mainloop.sum_offsets %>\
    setp.ge.u32 %p, %k_iters, %tile_iters;
    @%p bra.uni SUMS_COMPLETE;
    setp.eq.u32 %p, %K, 0;
    @%p bra.uni SUMS_COMPLETE;
    {
    .reg .b64 %counter_addr, %partial_addr, %share_addr;
    .reg .b32 %block, %blocks, %begin;
% for line in plan.mainloop.group_registers:
    ${line}
% endfor
${ptx.banner("stream-K: store the sums of this part. A block has two places: for its first tile, and for its last one")}\
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    add.u32 %tmp0, %block, %blocks;
    setp.eq.u32 %p, %tile, %tile_begin;
    selp.b32 %tmp0, %tmp0, %block, %p;
${place(slice_bytes)}\
% for first, names in plan.mainloop.further_sets:
  % for to, r in zip(first, names):
    ${plan.mainloop.acc_add} ${to}, ${to}, ${r};
  % endfor
% endfor
% if plan.config.kl > 1:
${add_groups(store)}\
% else:
  % for names, offset in zip(vectors, offsets):
${store(names, offset, "")}\
  % endfor
% endif
    // the first block of the tile: its share begins at the tile's first iteration or before
    mad.wide.u32 %share_addr, %block, 4, %shares;
    mov.u32 %begin, %tile;
    .pragma "nounroll";
FIRST_BLOCK:
    setp.gt.u32 %p, %begin, %tile_begin;
    @%p sub.u32 %block, %block, 1;
    @%p sub.u64 %share_addr, %share_addr, 4;
    @%p ld.global.u32 %begin, [%share_addr];
    @%p bra.uni FIRST_BLOCK;
    // ---- wait: all threads have stored their sums; the counter counts the iterations of the tile. The counters follow the shares
    fence.acq_rel.gpu;
    bar.sync 0;
    add.u32 %tmp0, %blocks, 1;
    add.u32 %tmp0, %tmp0, %block;
    mad.wide.u32 %counter_addr, %tmp0, 4, %shares;
    @%fetches atom.acq_rel.gpu.global.add.u32 %tmp0, [%counter_addr], %k_iters;
    @%fetches st.shared.u32 [%smem+${plan.scheduler.counter_at}], %tmp0;
    bar.sync 0;
    ld.shared.u32 %tmp0, [%smem+${plan.scheduler.counter_at}];
    add.u32 %tmp0, %tmp0, %k_iters;
    setp.lt.u32 %p, %tmp0, %tile_iters;
    @%p bra.uni ${done};
${ptx.banner("stream-K: the last part adds the sums of all parts in order, and sets the counter to 0")}\
    fence.acq_rel.gpu;
    mov.u32 %tmp0, 0;
    @%fetches st.global.u32 [%counter_addr], %tmp0;
    add.u32 %tmp0, %block, %blocks;
${place(slice_bytes)}\
    add.u32 %tile_begin, %tile_begin, %tile_iters;
${last_slice.clear_sums()}\
% if plan.config.kl > 1:
    // the first thread group adds, the others have no sums
    setp.ge.u32 %adds, %thread, ${plan.mainloop.group};
    @%adds bra SUMS_COMPLETE;
% endif
    .pragma "nounroll";
ADD_PART:
${last_slice.add_sums("%partial_addr", vectors, offsets)}\
    // the next block has a part unless its share begins after the tile
    add.u32 %block, %block, 1;
    mov.u32 %tmp0, %block;
${place(slice_bytes)}\
    add.u64 %share_addr, %share_addr, 4;
    ld.global.u32 %begin, [%share_addr];
    setp.lt.u32 %p, %begin, %tile_begin;
    @%p bra.uni ADD_PART;
    }
SUMS_COMPLETE:
</%def>

## The address of this thread's sums in place %tmp0.
<%def name="place(slice_bytes)">
    mul.wide.u32 %partial_addr, %tmp0, ${slice_bytes};
    add.u64 %partial_addr, %partial_addr, %workspace;
    mad.wide.u32 %partial_addr, %thread, ${plan.mainloop.acc_vector_bytes}, %partial_addr;
</%def>

<%def name="store(names, offset, guard)">
    ${guard}st.global.${vector.access_type(len(names), plan.mainloop.acc.ptx_type)} [%partial_addr+${offset}], ${operand_list(names)};
</%def>

## Thread groups add their sums in shared memory, and store them in the place of the part by ``store``.
<%def name="add_groups(store)">
<% acc, size, sums, others = plan.mainloop.acc, plan.mainloop.acc_vector_bytes, plan.mainloop.vector_names["sum"], plan.mainloop.vector_names["group_sum"] %>\
    shr.u32 %sums_addr, %thread, ${plan.mainloop.log2_group};
    and.b32 %group_thread, %thread, ${plan.mainloop.group_mask};
    mad.lo.u32 %sums_addr, %sums_addr, ${plan.mainloop.group_sums_count}, %group_thread;
    mad.lo.u32 %sums_addr, %sums_addr, ${size}, %smem;
% for names, offset in zip(plan.mainloop.sum_vectors, plan.mainloop.sum_offsets):
    st.shared.${vector.access_type(len(names), plan.mainloop.acc.ptx_type)} [%sums_addr+${offset}], ${operand_list(names)};
% endfor
    // ---- wait: the sums of all thread groups are in shared memory
    bar.sync 0;
    mad.lo.u32 %sums_addr, %thread, ${size}, %smem;
% for x in plan.mainloop.joined_sums:
    {
    .reg .${acc.ptx_type} %sum<${len(sums)}>, %group_sum<${len(sums)}>;
  % if x.guard:
    setp.lt.u32 %adds, %thread, ${x.left};
    % for to in (*sums, *others):
    mov.${acc.ptx_type} ${to}, ${plan.mainloop.acc_zero};
    % endfor
  % endif
    ${x.guard}ld.shared.${plan.mainloop.vector_access} ${operand_list(sums)}, [%sums_addr+${x.loads[0]}];
  % for offset in x.loads[1:]:
    ${x.guard}ld.shared.${plan.mainloop.vector_access} ${operand_list(others)}, [%sums_addr+${offset}];
    % for to, r in zip(sums, others):
    ${x.guard}${plan.mainloop.acc_add} ${to}, ${to}, ${r};
    % endfor
  % endfor
${store(sums, x.offset, x.guard)}\
    }
% endfor
</%def>
