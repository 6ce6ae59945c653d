## Each block computes one tile.
<%namespace name="place" file="/sched/tile_coords.mako"/>
<%namespace name="batch" file="/sched/batch.mako"/>
<%def name="open(who)">
    // the tile of this block
% if plan.scheduler.linear:
    mov.u32 %tile, %ctaid.x;
${place.tile_counts()}\
${place.from_number()}\
% else:
${place.from_grid()}\
% endif
${batch.from_block()}\
${batch.tensor_coordinates()}\
${place.k_slice()}\
</%def>
<%def name="close(who)"></%def>
