## The grid has as many blocks as multiprocessors; each block loops over the list of the tiles of a join that have pairs.
<%namespace name="coords" file="/sched/tile_coords.mako"/>
<%namespace name="search" file="/sched/last_not_above.mako"/>
<%namespace name="turns" file="/sched/pingpong_turns.mako"/>
<%def name="registers()">
    .reg .b64 %tile_list, %first_tile_addr;
    .reg .b32 %panels, %item_tile, %lower_bound, %count, %stride, %pivot, %first_tile;
    .reg .pred %starts_before;
    ld.param.u64 %tile_list, [tile_list];
    add.u64 %tile_list, %tile_list, %workspace;
    cvta.to.global.u64 %tile_list, %tile_list;
    add.u32 %panels, %M, ${plan.scheduler.last_panel_row};
    div.u32 %panels, %panels, ${plan.scheduler.panel_rows};
</%def>

<%def name="open(who)">
<% s, ctas = plan.scheduler, plan.pipeline.multicast_ctas %>\
    // ---- tile loop: a block starts at the tile of its index and advances by the size of the grid
    mov.u32 %tile, %ctaid.x;
    mov.u32 %tile_step, %nctaid.x;
    ld.global.u32 %tiles, [%tile_list];
% if ctas > 1:
    // the list counts tiles of a cluster
    mul.lo.u32 %tiles, %tiles, ${ctas};
% endif
% if plan.config.pingpong and who == "CONSUMER":
${turns.first()}\
% endif
    .pragma "nounroll";
${who}_TILE:
    setp.ge.u32 %p, %tile, %tiles;
    @%p ${s.bra[who]} ${who}_END;
    ${s.counted_tile}
    // the row panel of the tile: the last one whose first tile is not above it
% if who == "CONSUMER":
${search.by_lanes("FIND_BY_WARP", "%panels", "%tile_list", s.ENTRY, s.HEADER, "%item_tile")}\
% else:
${search.by_thread("FIND_BY_THREAD", "%panels", "%tile_list", s.ENTRY, s.HEADER, "%item_tile")}\
% endif
    mad.wide.u32 %first_tile_addr, %lower_bound, ${s.ENTRY}, %tile_list;
    ld.global.v2.u32 {%first_tile, %pivot}, [%first_tile_addr+${s.HEADER}];
    sub.u32 %first_tile, %item_tile, %first_tile;
    mov.u32 %${s.row_side}0, %lower_bound;
    add.u32 %${s.column_side}0, %pivot, %first_tile;
${coords.in_cluster()}\
${coords.to_elements()}\
${coords.k_slice()}\
</%def>

<%def name="close(who)">
% if plan.config.pingpong and who == "CONSUMER":
${turns.next()}\
% endif
    add.u32 %tile, %tile, %tile_step;
    ${plan.scheduler.bra[who]} ${who}_TILE;
${who}_END:
</%def>
