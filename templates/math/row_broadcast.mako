## The nonzeros of a row: each index and value is loaded by all lanes that multiply the nonzero.
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="products" file="/math/row_products.mako"/>\
<%def name="multiply_row()">
<% rows = plan.mainloop %>\
% if rows.nonzero_groups > 1:
    // group g of the lanes has nonzeros g, g + ${rows.nonzero_groups}, and so on
    min.u32 %tmp0, %group, %left;
    add.u32 %begin, %begin, %tmp0;
    sub.u32 %left, %left, %tmp0;
    add.u32 %left, %left, ${rows.group_mask};
    shr.u32 %left, %left, ${rows.log2_nonzero_groups};
% endif
    mad.wide.u32 %ptr_index, %begin, ${rows.index_bytes}, %indices;
    mad.wide.u32 %ptr_value, %begin, ${rows.size}, %values;
${ptx.banner(f"loop over nonzeros, {rows.depths[0]} at once")}\
    setp.lt.u32 %p, %left, ${rows.depths[0]};
    @%p bra REST;
    .pragma "nounroll";
ROW_LOOP:
${next_nonzeros(rows.depths[0])}\
    sub.u32 %left, %left, ${rows.depths[0]};
    setp.ge.u32 %p, %left, ${rows.depths[0]};
    @%p bra ROW_LOOP;
REST:
% for n in rows.depths[1:]:
    and.b32 %tmp0, %left, ${n};
    setp.eq.u32 %p, %tmp0, 0;
    @%p bra AFTER_${n};
${next_nonzeros(n)}\
AFTER_${n}:
% endfor
% if rows.nonzero_groups > 1:
${products.add_groups()}\
% endif
</%def>

## The next n nonzeros: their indices and values, then the rows of B, then the products in the order of the nonzeros.
<%def name="next_nonzeros(n)">
<% rows = plan.mainloop %>\
% for q in range(n):
    ld.global.nc.u32 ${rows.index[q]}, [%ptr_index+${rows.index_offsets[q]}];
% endfor
% for q in range(n):
    ld.global.nc.${rows.scalar} ${rows.loaded_value[q]}, [%ptr_value+${rows.value_offsets[q]}];
% endfor
% for q in range(n):
${products.load_row(q)}\
% endfor
    add.u64 %ptr_index, %ptr_index, ${rows.index_offsets[n]};
    add.u64 %ptr_value, %ptr_value, ${rows.value_offsets[n]};
% for q in range(n):
${products.widen_value(q)}\
${products.multiply(q)}\
% endfor
</%def>
