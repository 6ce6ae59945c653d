## The passes before a kernel that multiplies copies of its operands.
<%namespace name="pitched" file="/copy/pack_rows.mako"/>
<%namespace name="transposed" file="/copy/transpose.mako"/>
<%def name="entries()">
% if plan.pitched:
${pitched.entries()}\
% endif
% if plan.turned:
${transposed.entries()}\
% endif
</%def>\
