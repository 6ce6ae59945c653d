## Tiles of a join: blocks loop over the list of those that have pairs of equal keys.
<%namespace name="raster" file="/sched/raster.mako"/>
<%namespace name="search" file="/sched/last_not_above.mako"/>
<%namespace name="ptx" file="/ptx/banner.mako"/>
<%def name="parameters(more='')">
${raster.parameters(more)}\
    .reg .b64 %tile_list;
    .reg .b32 %panels, %tile, %tiles;
    ld.param.u64 %tile_list, [tile_list];
    add.u64 %tile_list, %tile_list, %workspace;
    add.u32 %panels, %M, ${plan.scheduler.last_row};
    div.u32 %panels, %panels, ${plan.config.ml};
</%def>

<%def name="open()">
    ld.global.u32 %tiles, [%tile_list];
    mov.u32 %tile, %ctaid.x;
    setp.ge.u32 %p, %tile, %tiles;
    @%p bra.uni TILES_END;
    .pragma "nounroll";
TILE_LOOP:
</%def>

<%def name="tile()">
    { // the row panel of the tile: the last one whose first tile is not above it
    .reg .b64 %first_tile_addr;
    .reg .b32 %lower_bound, %count, %stride, %pivot, %first_tile;
    .reg .pred %starts_before;
${search.by_lanes("FIND_PANEL", "%panels", "%tile_list", plan.scheduler.ENTRY, plan.scheduler.HEADER)}\
    mad.wide.u32 %first_tile_addr, %lower_bound, ${plan.scheduler.ENTRY}, %tile_list;
    ld.global.v2.u32 {%first_tile, %n0}, [%first_tile_addr+${plan.scheduler.HEADER}];
    sub.u32 %first_tile, %tile, %first_tile;
    add.u32 %n0, %n0, %first_tile;
    mov.u32 %m0, %lower_bound;
    }
${raster.to_elements()}\
</%def>

<%def name="k_iterations()">${raster.k_iterations()}</%def>
<%def name="finish_sums()"></%def>
<%def name="choose_loop(copy_loop)"></%def>
<%def name="other_loops(copy_loop, k_loop, copies)"></%def>

<%def name="close()">
${ptx.banner("wait: the block has read the sums of the tile from shared memory")}\
    bar.sync 0;
    mov.u32 %tmp0, %nctaid.x;
    add.u32 %tile, %tile, %tmp0;
    setp.lt.u32 %p, %tile, %tiles;
    @%p bra.uni TILE_LOOP;
TILES_END:
</%def>
