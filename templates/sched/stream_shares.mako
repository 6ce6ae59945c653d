## Stream-K of one product: blocks compute whole tiles, then a share of the K iterations of the last tiles, from the share's end
## to its beginning.
<%namespace name="raster" file="/sched/raster.mako"/>
<%namespace name="ptx" file="/ptx/banner.mako"/>
<%namespace name="parts" file="/epilogue/stream_parts.mako"/>
<%def name="parameters(more='')">
${raster.parameters(more)}\
    .reg .b32 %tile, %number, %share_first, %share_end, %part_first, %part_end;
</%def>

<%def name="open()">
    // the share of this block: K iterations from %share_first to %share_end, counted tile by tile
    mov.u32 %tile, %ctaid.x;
    ld.param.u32 %tmp0, [share_iters];  ld.param.u32 %tmp1, [tail_iters];
    mul.lo.u32 %share_first, %tile, %tmp0;
    min.u32 %share_first, %share_first, %tmp1;
    add.u32 %share_end, %share_first, %tmp0;
    min.u32 %share_end, %share_end, %tmp1;
    .pragma "nounroll";
TILE_LOOP:
    ld.param.u32 %tmp0, [full_tiles];  ld.param.u32 %tmp2, [tile_iters];
    mov.u32 %number, %tile;
    mov.u32 %part_first, 0;
    mov.u32 %part_end, %tmp2;
    setp.lt.u32 %p, %tile, %tmp0;
    @%p bra.uni WHOLE_TILE;
    setp.ge.u32 %p, %share_first, %share_end;
    @%p bra.uni TILES_END;
    // the last tile of what is left of the share, and the iterations of it
    sub.u32 %tmp1, %share_end, 1;
    div.u32 %number, %tmp1, %tmp2;
    mul.lo.u32 %tmp1, %number, %tmp2;
    sub.u32 %part_end, %share_end, %tmp1;
    max.u32 %share_end, %share_first, %tmp1;
    sub.u32 %part_first, %share_end, %tmp1;
    add.u32 %number, %number, %tmp0;
WHOLE_TILE:
</%def>

<%def name="tile()">
    {
    .reg .b32 %tiles_m, %tiles_n;
    add.u32 %tiles_m, %M, ${plan.scheduler.last_row};
    div.u32 %tiles_m, %tiles_m, ${plan.config.ml};
% if plan.scheduler.raster_group == 1:
    div.u32 %n0, %number, %tiles_m;
    mul.lo.u32 %tmp0, %n0, %tiles_m;
    sub.u32 %m0, %number, %tmp0;
% else:
    // raster: groups of ${plan.scheduler.raster_group} tiles along M, so that neighbouring blocks read the same B from L2
    .reg .b32 %tile_index, %group, %group_tiles, %group_width;
    add.u32 %tiles_n, %N, ${plan.scheduler.last_column};
    div.u32 %tiles_n, %tiles_n, ${plan.config.nl};
    mov.u32 %tile_index, %number;
${raster.raster_order()}\
% endif
    }
${raster.to_elements()}\
</%def>

<%def name="k_iterations()">
    mul.lo.u32 %k0, %part_first, ${plan.config.u};
    mul.lo.u32 %k_len, %part_end, ${plan.config.u};
    min.u32 %k_len, %k_len, %K;
    sub.u32 %k_len, %k_len, %k0;
${raster.iterations()}\
</%def>

<%def name="finish_sums()">${parts.join("TILE_END")}</%def>
<%def name="choose_loop(copy_loop)"></%def>
<%def name="other_loops(copy_loop, k_loop, copies)"></%def>

<%def name="close()">
TILE_END:
${ptx.banner("wait: the block has read the sums of the tile from shared memory")}\
    bar.sync 0;
    mov.u32 %tmp0, %nctaid.x;
    add.u32 %tile, %tile, %tmp0;
    bra.uni TILE_LOOP;
TILES_END:
</%def>
