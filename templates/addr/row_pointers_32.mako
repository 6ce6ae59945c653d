## The first nonzero of a row, and the one after its last, from row pointers of 32 bits.
<%def name="load()">
    mad.wide.u32 %ptr_index, %row, 4, %indptr;
    @%exists ld.global.nc.u32 %begin, [%ptr_index];
    @%exists ld.global.nc.u32 %end, [%ptr_index+4];
</%def>
