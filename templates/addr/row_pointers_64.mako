## The nonzeros of a row, from row pointers of 64 bits. The pointers to columns and values are moved to the row's first nonzero,
## which then has number 0.
<%def name="load()">
    .reg .b64 %begin64, %end64;
    mov.b64 %begin64, 0;
    mov.b64 %end64, 0;
    mad.wide.u32 %ptr_index, %row, 8, %indptr;
    @%exists ld.global.nc.u64 %begin64, [%ptr_index];
    @%exists ld.global.nc.u64 %end64, [%ptr_index+8];
    mad.lo.u64 %indices, %begin64, 8, %indices;
    mad.lo.u64 %values, %begin64, ${plan.mainloop.size}, %values;
    sub.u64 %end64, %end64, %begin64;
    cvt.u32.u64 %end, %end64;
</%def>
