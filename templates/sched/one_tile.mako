## A tile a block.
<%namespace name="place" file="/sched/tile_coords.mako"/>
<%namespace name="items" file="/sched/batch.mako"/>
<%def name="open(who)">
% if plan.numbered:
    mov.u32 %tile, %ctaid.x;
${place.counts()}\
${place.of_number()}\
% else:
${place.of_block()}\
% endif
${items.of_block()}\
${items.tensors()}\
${place.slice()}\
</%def>
<%def name="close(who)"></%def>
