## The nonzeros of a row by coalesced loads: each lane loads one index and value, which shuffles pass to the other lanes of the
## row.
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="products" file="/math/row_products.mako"/>\
<%def name="multiply_row()">
<% rows = plan.mainloop %>\
    .reg .b32 %longest, %shortest, %own_index;
    .reg .${rows.sums.ptx_type} %own_value;
    .reg .pred %whole, %has<${rows.depths[0]}>;
    add.u32 %begin, %begin, %lane;
    mad.wide.u32 %ptr_index, %begin, ${rows.index_bytes}, %indices;
    mad.wide.u32 %ptr_value, %begin, ${rows.size}, %values;
    redux.sync.max.s32 %longest, %left, 0xffffffff;
    redux.sync.min.s32 %shortest, %left, 0xffffffff;
${ptx.banner(f"loop over nonzeros of all rows of the warp: {rows.lanes} of each row are loaded, {rows.depths[0]} multiplied at once")}\
    setp.le.s32 %p, %longest, 0;
    @%p bra.uni AFTER_ROW;
    .pragma "nounroll";
ROW_LOOP:
    setp.lt.s32 %p, %lane, %left;
    mov.b32 %own_index, 0;
    @%p ld.global.nc.u32 %own_index, [%ptr_index];
    mov.b${rows.bits} ${rows.loaded_value[0]}, 0;
    @%p ld.global.nc.${rows.scalar} ${rows.loaded_value[0]}, [%ptr_value];
${products.widen_value(0)}\
    mov.b32 %own_value, ${rows.value[0]};
    add.u64 %ptr_index, %ptr_index, ${rows.chunk_index_bytes};
    add.u64 %ptr_value, %ptr_value, ${rows.chunk_value_bytes};
% for first, end in rows.shuffles:
  % if first:
    setp.le.s32 %p, %longest, ${first};
    @%p bra.uni NEXT_CHUNK;
  % endif
    setp.ge.s32 %whole, %shortest, ${end};
    @%whole bra.uni WHOLE_${first};
${shuffled(first, end, False)}\
    bra.uni AFTER_${first};
WHOLE_${first}:
${shuffled(first, end, True)}\
AFTER_${first}:
% endfor
NEXT_CHUNK:
    sub.s32 %left, %left, ${rows.lanes};
    sub.s32 %shortest, %shortest, ${rows.lanes};
    sub.s32 %longest, %longest, ${rows.lanes};
    setp.gt.s32 %p, %longest, 0;
    @%p bra.uni ROW_LOOP;
AFTER_ROW:
</%def>

## Nonzeros of a chunk from ``first`` to ``end``. ``whole``: each row of the warp has all of them.
<%def name="shuffled(first, end, whole)">
<% rows = plan.mainloop %>\
% for q, lane in enumerate(range(first, end)):
    shfl.sync.idx.b32 ${rows.index[q]}, %own_index, ${lane}, ${rows.clamp}, 0xffffffff;
    shfl.sync.idx.b32 ${rows.value[q]}, %own_value, ${lane}, ${rows.clamp}, 0xffffffff;
  % if whole:
${products.load_row(q)}\
  % else:
    setp.gt.s32 %has${q}, %left, ${lane};
${products.clear_row(q)}\
${products.load_row(q, f"@%has{q} ")}\
  % endif
% endfor
% for q in range(rows.depths[0]):
${products.multiply(q)}\
% endfor
</%def>
