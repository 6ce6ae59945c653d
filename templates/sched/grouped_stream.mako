## Stream-K: blocks have equal shares of the K iterations of all tiles of a list. %tile is the number of an iteration.
<%namespace name="grouped" file="/sched/grouped.mako"/>
<%namespace name="raster" file="/sched/raster.mako"/>
<%namespace name="ptx" file="/ptx/banner.mako"/>
<%namespace name="stream_sums" file="/epilogue/stream_sums.mako"/>
<%def name="parameters()">
    .reg .b64 %table, %descriptors, %descriptor, %shares;
    .reg .b32 %items, %tile, %share_end, %tile_begin, %tile_iters;
    .reg .pred %fetches;
    ld.param.u64 %table, [table];  ld.param.u32 %items, [items];
    cvta.to.global.u64 %table, %table;
</%def>

<%def name="open()">
${grouped.descriptors()}\
    // the share of the block: the shares follow the descriptors
    mad.wide.u32 %shares, %items, ${plan.scheduler.table.descriptor_bytes}, %descriptors;
    mov.u32 %tmp0, %ctaid.x;
    mad.wide.u32 %tmp64, %tmp0, 4, %shares;
    ld.global.u32 %tile, [%tmp64];
    ld.global.u32 %share_end, [%tmp64+4];
    setp.eq.u32 %fetches, %thread, 0;
    .pragma "nounroll";
TILE_LOOP:
</%def>

<%def name="tile()">
${grouped.find_item()}\
${grouped.item_values(part_of_tile)}\
</%def>

<%def name="part_of_tile()">
    // the tile of the iteration, and its first iteration
    add.u32 %tile_iters, %K, ${plan.scheduler.last_k};
    shr.u32 %tile_iters, %tile_iters, ${plan.scheduler.log2_u};
    max.u32 %tile_iters, %tile_iters, 1;
    sub.u32 %tmp0, %tile, %first_tile;
    div.u32 %tile_index, %tmp0, %tile_iters;
    mad.lo.u32 %tile_begin, %tile_index, %tile_iters, %first_tile;
</%def>

<%def name="k_iterations()">
    // the part of K between the first iteration and the end of the share or of the tile
    sub.u32 %k0, %tile, %tile_begin;
    mul.lo.u32 %k0, %k0, ${plan.config.u};
    sub.u32 %k_len, %K, %k0;
    sub.u32 %tmp0, %share_end, %tile;
    mul.lo.u32 %tmp0, %tmp0, ${plan.config.u};
    min.u32 %k_len, %k_len, %tmp0;
${raster.iterations()}\
</%def>

<%def name="finish_sums()">${stream_sums.sum_parts(plan.scheduler.slice_bytes, "TILE_END")}</%def>
<%def name="choose_loop(copy_loop)">${grouped.choose_loop(copy_loop)}</%def>
<%def name="other_loops(copy_loop, k_loop, copies)">${grouped.other_loops(copy_loop, k_loop, copies)}</%def>

<%def name="close()">
TILE_END:
${ptx.banner("wait: the block has stored the tile")}\
    max.u32 %tmp0, %k_iters, 1;
    add.u32 %tile, %tile, %tmp0;
    bar.sync 0;
    setp.lt.u32 %p, %tile, %share_end;
    @%p bra.uni TILE_LOOP;
</%def>
