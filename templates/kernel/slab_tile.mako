## One tile has all rows of a slab of B.
<%def name="registers()"></%def>
<%def name="parameters()"></%def>
<%def name="sums_address()"></%def>
## The bounds of the warp's first row, %tmp0.
<%def name="first_bounds()">
    @!%multiplies mov.b32 %next_row, %rows;
    mad.wide.u32 %ptr_bounds, %tmp0, 4, %indptr;
</%def>
<%def name="begin()"></%def>
<%def name="count()"></%def>
<%def name="add_sums()"></%def>
<%def name="next_tile(copy_tile)"></%def>
<%def name="has_next()">
    setp.lt.u32 %has_next, %next_row, %rows;
</%def>
<%def name="next_bounds()">
    add.u64 %ptr_bounds, %ptr_bounds, ${plan.mainloop.warps_bytes};
</%def>
