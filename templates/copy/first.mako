## The passes before a kernel that multiplies copies of its operands.
<%namespace name="pitched" file="/copy/pitched.mako"/>
<%namespace name="transposed" file="/copy/transposed.mako"/>
<%def name="entries()">
% if plan.pitched:
${pitched.entries()}\
% endif
% if plan.turned:
${transposed.entries()}\
% endif
</%def>\
