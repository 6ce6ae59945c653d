## A slab of B has several tiles, one after the other. Between tiles, sums of rows are in shared memory.
<%namespace name="ptx" file="/ptx/banner.mako"/>
<%def name="registers()">
    .reg .b64 %tile_starts, %ptr_first, %rows_pitch;
    .reg .b32 %tiles, %tile, %next_tile, %pitch, %sums_at, %ptr_sums;
    .reg .pred %first_tile, %last_tile;
</%def>
<%def name="parameters()">
    ld.param.u64 %tile_starts, [tile_starts];  cvta.to.global.u64 %tile_starts, %tile_starts;
    ld.param.u32 %tiles, [tiles];
    add.u32 %pitch, %tiles, 1;
    @!%multiplies mov.b32 %tiles, 1;
</%def>

## The sums of this lane.
<%def name="sums_address()">
    mad.lo.u32 %sums_at, %lane, ${plan.mainloop.kept_bytes}, %smem;
    add.u32 %sums_at, %sums_at, ${plan.mainloop.sums_at};
</%def>

## The bounds of the warp's first row, %tmp0, in the first tile.
<%def name="first_bounds()">
    mov.b32 %tile, 0;
    mov.b32 %next_tile, 0;
    @!%has_row mov.b32 %next_tile, %tiles;
    @!%multiplies mov.b32 %next_tile, %tiles;
    mul.wide.u32 %ptr_first, %tmp0, %pitch;
    mad.lo.u64 %ptr_first, %ptr_first, 4, %tile_starts;
    mov.b64 %ptr_bounds, %ptr_first;
    mul.wide.u32 %rows_pitch, %pitch, ${plan.mainloop.warps_bytes};
</%def>
<%def name="begin()">
    mov.b32 %tile_row, 0;
TILE_LOOP:
</%def>
<%def name="count()">
    setp.eq.u32 %first_tile, %tile, 0;
    add.u32 %tile, %tile, 1;
    setp.eq.u32 %last_tile, %tile, %tiles;
</%def>

## Adds the sums of the tiles before; those of the last tile are stored in C.
<%def name="add_sums()">
<% x, op = plan.mainloop, plan.arithmetic %>\
${ptx.banner("sums of the tiles before")}\
    mad.lo.u32 %ptr_sums, %row, ${x.row_sum_bytes}, %sums_at;
    @%first_tile bra.uni SUMMED;
% for _, before, offset in x.kept_accesses:
    ld.shared.${x.kept_access} ${before}, [%ptr_sums+${offset}];
% endfor
% for i in range(x.kept):
    ${op.add} ${x.sums[i]}, ${x.before[i]}, ${x.sums[i]};
% endfor
SUMMED:
    @%last_tile bra.uni STORE;
% for sums, _, offset in x.kept_accesses:
    st.shared.${x.kept_access} [%ptr_sums+${offset}], ${sums};
% endfor
    bra.uni STORED;
STORE:
</%def>

<%def name="next_tile(copy_tile)">
<% x = plan.mainloop %>\
% if x.buffers == 2:
${ptx.banner("the next tile")}\
    @%last_tile bra.uni DONE;
    mov.b32 %tile_at, %next_tile_at;
% else:
${ptx.banner("the next tile: wait for all warps to have read this one")}\
    @%last_tile bra.uni DONE;
    bar.sync 0;
    add.u32 %tile_row, %tile_row, ${x.tile_k};
${copy_tile("%smem", "%tile_row")}\
% endif
    mul.lo.u32 %tmp0, %tile_row, ${x.row_bytes};
    sub.u32 %row_base, %tile_at, %tmp0;
    bra.uni TILE_LOOP;
DONE:
</%def>

<%def name="has_next()">
    setp.lt.u32 %has_next, %next_tile, %tiles;
</%def>

## The bounds of the next row, or of the warp's first row in the next tile.
<%def name="next_bounds()">
    add.u64 %ptr_bounds, %ptr_bounds, %rows_pitch;
    setp.ge.u32 %p, %next_row, %rows;
    @%p mov.b32 %next_row, %warp;
    @%p add.u32 %next_tile, %next_tile, 1;
    @%p add.u64 %ptr_first, %ptr_first, 4;
    @%p mov.b64 %ptr_bounds, %ptr_first;
</%def>
