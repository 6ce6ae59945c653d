## Split-K in a tile loop: each slice stores its sums in the workspace and adds 1 to the counter of the tile. The block whose
## addition is the last one adds the sums of all slices in order, and stores C.
<%namespace name="ptx" file="/ptx/banner.mako"/>
<%namespace name="vector" file="/ptx/vector.mako"/>
<%def name="sum_slices(slice_bytes, done)">
<% vectors, offsets = plan.mainloop.acc_vectors, plan.slice_offsets %>\
    setp.le.u32 %p, %K, %k_slice;
    @%p bra.uni SUMS_COMPLETE;
    {
    .reg .b64 %counter_addr, %partial_addr, %slice_step;
    .reg .b32 %slices, %added;
${ptx.banner("split K: store the sums of this slice")}\
    mul.wide.u32 %partial_addr, %tile, ${slice_bytes};
    add.u64 %partial_addr, %partial_addr, %workspace;
    mad.wide.u32 %partial_addr, %thread, ${plan.mainloop.acc_vector_bytes}, %partial_addr;
% for names, offset in zip(vectors, offsets):
    st.global.${vector.access_type(len(names), plan.mainloop.acc.ptx_type)} [%partial_addr+${offset}], ${operand_list(names)};
% endfor
    // ---- wait: all threads have stored their sums; the counter of the tile counts its slices
    fence.acq_rel.gpu;
    bar.sync 0;
    mad.wide.u32 %counter_addr, %counter_index, 4, %counters;
    @%fetches atom.acq_rel.gpu.global.add.u32 %tmp0, [%counter_addr], 1;
    @%fetches st.shared.u32 [%smem+${plan.scheduler.counter_at}], %tmp0;
    bar.sync 0;
    ld.shared.u32 %tmp0, [%smem+${plan.scheduler.counter_at}];
    add.u32 %slices, %K, %k_slice;
    sub.u32 %slices, %slices, 1;
    div.u32 %slices, %slices, %k_slice;
    add.u32 %tmp0, %tmp0, 1;
    setp.lt.u32 %p, %tmp0, %slices;
    @%p bra.uni ${done};
${ptx.banner("split K: the last slice adds the sums of all slices in order, and sets the counter to 0")}\
    fence.acq_rel.gpu;
    mov.u32 %tmp0, 0;
    @%fetches st.global.u32 [%counter_addr], %tmp0;
    // the first slice of this tile, and from one slice to the next
    mul.wide.u32 %partial_addr, %counter_index, ${slice_bytes};
    add.u64 %partial_addr, %partial_addr, %workspace;
    mad.wide.u32 %partial_addr, %thread, ${plan.mainloop.acc_vector_bytes}, %partial_addr;
    mul.wide.u32 %slice_step, %item_tiles, ${slice_bytes};
${clear_sums()}\
    mov.u32 %added, 0;
    .pragma "nounroll";
ADD_SLICE:
${add_sums("%partial_addr", vectors, offsets)}\
    add.u64 %partial_addr, %partial_addr, %slice_step;
    add.u32 %added, %added, 1;
    setp.lt.u32 %p, %added, %slices;
    @%p bra.uni ADD_SLICE;
    }
SUMS_COMPLETE:
</%def>

<%def name="clear_sums()">
<% acc = plan.mainloop.acc %>\
% for r in acc.all:
    mov.${acc.ptx_type} ${r}, ${plan.mainloop.acc_zero};
% endfor
</%def>

## Adds this thread's sums of a slice to ``vectors``, which are at ``offsets`` from address ``at``.
<%def name="add_sums(at, vectors, offsets)">
% for names, offset in zip(vectors, offsets):
    {
    .reg .${plan.mainloop.acc.ptx_type} %of_slice<${len(names)}>;
    ld.global.${vector.access_type(len(names), plan.mainloop.acc.ptx_type)} ${operand_list(plan.mainloop.vector_names["of_slice"][: len(names)])}, [${at}+${offset}];
  % for i, r in enumerate(names):
    ${plan.mainloop.acc_add} ${r}, ${r}, %of_slice${i};
  % endfor
    }
% endfor
</%def>
