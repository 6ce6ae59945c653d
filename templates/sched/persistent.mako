## The grid has as many blocks as multiprocessors; each block loops over tiles.
<%namespace name="coords" file="/sched/tile_coords.mako"/>
<%namespace name="turns" file="/sched/pingpong_turns.mako"/>
<%namespace name="batch" file="/${context['plan'].batch.template}"/>
<%namespace name="reachable" file="/${context['plan'].reachable_tiles}"/>
<%def name="registers()">
${reachable.registers()}\
</%def>
<%def name="open(who)">
    // ---- tile loop: a block starts at the tile of its index and advances by the size of the grid
    mov.u32 %tile, %ctaid.x;
    mov.u32 %tile_step, %nctaid.x;
${coords.tile_counts()}\
    mul.lo.u32 %tiles, %tiles_x, %tiles_y;
% if plan.pipeline.multicast_ctas > 1:
    mul.lo.u32 %tiles, %tiles, ${plan.pipeline.multicast_ctas};
% endif
% if plan.batch.active:
    // tiles of one batch item, tiles of all items
    mov.u32 %item_tiles, %tiles;
    mul.lo.u32 %tiles, %tiles, %items;
% endif
% if plan.config.pingpong and who == "CONSUMER" and plan.skips_tiles:
    .reg .b32 %turn;
    mov.u32 %turn, 0;
% elif plan.config.pingpong and who == "CONSUMER":
${turns.first()}\
% endif
    .pragma "nounroll";
${who}_TILE:
    setp.ge.u32 %p, %tile, %tiles;
    @%p ${plan.scheduler.bra[who]} ${who}_END;
${batch.from_tile()}\
${batch.tensor_coordinates()}\
${coords.from_number()}\
${reachable.skip(who)}\
${coords.k_slice()}\
</%def>

<%def name="close(who)">
% if plan.config.pingpong and who == "CONSUMER" and not plan.skips_tiles:
${turns.next()}\
% endif
${reachable.skipped(who)}\
    add.u32 %tile, %tile, %tile_step;
    ${plan.scheduler.bra[who]} ${who}_TILE;
${who}_END:
</%def>
