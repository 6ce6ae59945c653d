## Tiles of all items of a group: blocks loop over them. A descriptor table holds the values that differ between items.
<%namespace name="raster" file="/sched/raster.mako"/>
<%namespace name="ptx" file="/ptx/banner.mako"/>
<%namespace name="search" file="/sched/last_not_above.mako"/>
<%namespace name="prefetch" file="/sched/prefetch_rows.mako"/>
<%namespace name="slices" file="/${context['plan'].reduction.tile_slices}"/>
<%def name="parameters(more='')">
    .reg .b64 %table, %descriptors, %descriptor;
    .reg .b32 %items, %tile, %tiles, %next_tile;
${slices.registers()}\
    .reg .pred %fetches;
    ld.param.u64 %table, [table];  ld.param.u32 %items, [items];${more}
% if "offsets" in plan.problem.arrays:
    // the table is in the workspace
    add.u64 %table, %table, %workspace;
% endif
    cvta.to.global.u64 %table, %table;
</%def>

<%def name="open()">
${descriptors()}\
${slices.counters()}\
    ld.global.u32 %tiles, [%table+4];
    setp.eq.u32 %fetches, %thread, 0;
    mov.u32 %tile, %ctaid.x;
    setp.ge.u32 %p, %tile, %tiles;
    @%p bra.uni TILES_END;
    .pragma "nounroll";
TILE_LOOP:
${ptx.banner("number of the next tile: every tile adds 1 to the counter, so the last one sets it to 0")}\
    sub.u32 %tmp0, %tiles, 1;
    @%fetches atom.global.inc.u32 %next_tile, [%table], %tmp0;
</%def>

<%def name="descriptors()">
    // the descriptors follow the first tiles of the items
    add.u32 %tmp0, %items, 3;
    shr.u32 %tmp0, %tmp0, 2;
    mad.wide.u32 %descriptors, %tmp0, 16, %table;
    add.u64 %descriptors, %descriptors, ${plan.scheduler.HEADER};
</%def>

<%def name="tile()">
${find_item()}\
${item_values(slice_of_tile)}\
% for x in plan.scheduler.prefetched:
${prefetch.rows(x)}\
% endfor
</%def>

<%def name="find_item()">
    { // the item of the tile: the last one whose first tile is not above it; lanes compare 32 items in each round
    .reg .b64 %first_tile_addr;
    .reg .b32 %lower_bound, %count, %stride, %pivot, %first_tile;
    .reg .pred %starts_before;
${search.by_lanes("FIND_ITEM", "%items", "%table", 4, plan.scheduler.HEADER)}\
    mad.wide.u32 %descriptor, %lower_bound, ${plan.scheduler.table.descriptor_bytes}, %descriptors;
    }
</%def>

## ``k_of_tile``: sets %tile_index and which part of K the block computes.
<%def name="item_values(k_of_tile)">
    { // the item's addresses, extents and leading dimensions; alpha and beta
    .reg .b64 %item_offset<4>;
    .reg .b32 %tile_index, %first_tile, %tiles_m, %tiles_n;
    .reg .${plan.arithmetic.type} %item_scale;
    ld.param.u64 %A, [A];  ld.param.u64 %B, [B];  ld.param.u64 %C, [C];
    cvta.to.global.u64 %A, %A;  cvta.to.global.u64 %B, %B;  cvta.to.global.u64 %C, %C;
    ld.global.v2.u64 {%item_offset0, %item_offset1}, [%descriptor+${plan.scheduler.table.offsets["a"]}];
    ld.global.u64 %item_offset2, [%descriptor+${plan.scheduler.table.offsets["c"]}];
    ld.global.v2.u32 {%tiles_m, %tiles_n}, [%descriptor+${plan.scheduler.table.offsets["tiles_m"]}];
    ld.global.v4.u32 {%M, %N, %K, %lda}, [%descriptor+${plan.scheduler.table.offsets["m"]}];
    ld.global.v2.u32 {%ldb, %ldc}, [%descriptor+${plan.scheduler.table.offsets["ldb"]}];
    ld.global.u32 %first_tile, [%descriptor+${plan.scheduler.table.offsets["first"]}];
    add.u64 %A, %A, %item_offset0;
    add.u64 %B, %B, %item_offset1;
    add.u64 %C, %C, %item_offset2;
% for name in ("alpha", "beta"):
    ld.param.${plan.arithmetic.type} %${name}, [${name}];
    ld.global.${plan.arithmetic.type} %item_scale, [%descriptor+${plan.scheduler.table.offsets[name]}];
    ${plan.arithmetic.mul} %${name}, %${name}, %item_scale;
% endfor
${k_of_tile()}\
% if plan.scheduler.raster_group == 1:
    div.u32 %n0, %tile_index, %tiles_m;
    mul.lo.u32 %tmp0, %n0, %tiles_m;
    sub.u32 %m0, %tile_index, %tmp0;
% else:
    // raster: groups of ${plan.scheduler.raster_group} tiles along M, so that neighbouring blocks read the same B from L2
    .reg .b32 %group, %group_tiles, %group_width;
${raster.raster_order()}\
% endif
    }
${raster.to_elements()}\
</%def>

<%def name="slice_of_tile()">
    sub.u32 %tile_index, %tile, %first_tile;
${slices.slice_of_tile()}\
</%def>

<%def name="k_slice()">${raster.k_slice(True)}</%def>
<%def name="k_iterations()">${raster.k_iterations(True)}</%def>

## Before C is stored.
<%def name="finish_sums()">
${slices.finish_sums()}\
</%def>

## Warps without an element of C copy, and do not multiply; those with elements of C in the first half of their rows or
## columns multiply this half only.
<%def name="choose_loop(copy_loop)">
% if plan.mainloop.several_warps:
    { // is the first element of every lane outside C
    .reg .b32 %first_tile;
    .reg .pred %outside;
    add.u32 %first_tile, %m0, %row;
    setp.ge.u32 %outside, %first_tile, %M;
    add.u32 %first_tile, %n0, %col;
    setp.ge.or.u32 %outside, %first_tile, %N, %outside;
    vote.sync.all.pred %p, %outside, -1;
    }
    @%p bra.uni ${copy_loop};
% endif
% for x, start, what, half, extent in (("a", "%m0, %row", "rows", plan.half_row, "%M"), ("b", "%n0, %col", "columns", plan.half_column, "%N")):
  % if x in plan.mainloop.halved:
    // %few_${x}: the second half of the warp's ${what} is outside C
    .reg .pred %few_${x};
    add.u32 %tmp0, ${start};
    add.u32 %tmp0, %tmp0, ${half};
    setp.ge.u32 %few_${x}, %tmp0, ${extent};
    vote.sync.all.pred %few_${x}, %few_${x}, -1;
  % endif
% endfor
% for part in plan.mainloop.parts:
  % if part.a > 1 and part.b > 1:
    and.pred %p, %few_a, %few_b;
  % endif
    @${part.predicate} bra.uni ${part.entry};
% endfor
</%def>

<%def name="other_loops(copy_loop, k_loop, copies)">
% for part in plan.mainloop.parts:
    bra.uni EPILOGUE;
${part.entry}:
${k_loop(part)}\
% endfor
% if plan.mainloop.several_warps:
    bra.uni EPILOGUE;
${ptx.banner("K loop of warps without an element of C: they copy, and wait for the others")}\
    .pragma "nounroll";
${copy_loop}:
${copies()}\
    @%has_next bra.uni ${copy_loop};
% endif
</%def>

<%def name="close()">
${slices.tile_end()}\
${ptx.banner("wait: the block has stored the tile, and knows the next one")}\
    mov.u32 %tmp0, %nctaid.x;
    add.u32 %next_tile, %next_tile, %tmp0;
    @%fetches st.shared.u32 [%smem+${plan.scheduler.shared_at}], %next_tile;
    bar.sync 0;
    ld.shared.u32 %tile, [%smem+${plan.scheduler.shared_at}];
    setp.lt.u32 %p, %tile, %tiles;
    @%p bra.uni TILE_LOOP;
TILES_END:
</%def>
