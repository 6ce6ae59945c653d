## Each block computes one tile.
<%namespace name="coords" file="/sched/tile_coords.mako"/>
<%namespace name="batch" file="/${context['plan'].batch.template}"/>
<%def name="registers()"></%def>
<%def name="open(who)">
    // the tile of this block
${tile()}\
${batch.from_block()}\
${batch.tensor_coordinates()}\
${coords.k_slice()}\
</%def>
<%def name="tile()">
% if plan.scheduler.linear:
    mov.u32 %tile, %ctaid.x;
${coords.tile_counts()}\
${coords.from_number()}\
% else:
${coords.from_grid()}\
% endif
</%def>
<%def name="close(who)"></%def>
