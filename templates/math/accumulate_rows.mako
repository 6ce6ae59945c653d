## wgmma adds to the sums in place, which are multiplied by the scales of their rows at the end.
<%namespace name="scales" file="/${context['plan'].scales.template}"/>
<%namespace name="steps" file="/math/accumulate_steps.mako"/>
<%def name="begin()">
${scales.begin()}\
</%def>

<%def name="end_iteration(pipeline)">
${steps.end_iteration(pipeline)}\
</%def>
