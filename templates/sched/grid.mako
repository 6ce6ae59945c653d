## A tile a block.
<%namespace name="place" file="/sched/place.mako"/>
<%def name="open(who)">
% if plan.numbered:
    mov.u32 %tile, %ctaid.x;
${place.counts()}\
${place.of_number()}\
% else:
${place.of_block()}\
% endif
${place.slice()}\
</%def>
<%def name="close(who)"></%def>
