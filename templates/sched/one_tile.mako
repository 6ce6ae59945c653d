## A tile a block.
<%namespace name="place" file="/sched/tile_coords.mako"/>
<%namespace name="batch" file="/sched/batch.mako"/>
<%def name="open(who)">
% if plan.numbered:
    mov.u32 %tile, %ctaid.x;
${place.counts()}\
${place.of_number()}\
% else:
${place.of_block()}\
% endif
${batch.from_block()}\
${batch.tensor_coordinates()}\
${place.slice()}\
</%def>
<%def name="close(who)"></%def>
