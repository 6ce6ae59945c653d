## Grouped: each K slice of a tile has a block of its own; the last block to finish adds the sums of all slices.
<%namespace name="last_slice" file="/epilogue/last_slice.mako"/>
<%def name="registers()">
    .reg .b64 %counters;
    .reg .b32 %counter_index, %item_tiles;
</%def>

<%def name="counters()">
    // the counters of split tiles follow the descriptors
    mad.wide.u32 %counters, %items, ${plan.scheduler.table.descriptor_bytes}, %descriptors;
</%def>

## The slice and the tile that %tile_index counts in the item.
<%def name="slice_of_tile()">
    // tiles of the same slice have consecutive numbers
    ld.global.u32 %k_slice, [%descriptor+${plan.scheduler.table.offsets["k_slice"]}];
    mul.lo.u32 %item_tiles, %tiles_m, %tiles_n;
    div.u32 %slice, %tile_index, %item_tiles;
    mul.lo.u32 %tmp0, %slice, %item_tiles;
    sub.u32 %tile_index, %tile_index, %tmp0;
    add.u32 %counter_index, %first_tile, %tile_index;
</%def>

<%def name="finish_sums()">
${last_slice.sum_slices(plan.scheduler.slice_bytes, "TILE_END")}\
</%def>
<%def name="tile_end()">
TILE_END:
</%def>
