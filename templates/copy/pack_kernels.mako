## The kernels that pack rows of A and B before the product.
<%namespace name="pack" file="/copy/pack.mako"/>
<%namespace name="transpose" file="/copy/transpose.mako"/>
<%def name="entries()">
% if plan.packing.copied:
${pack.entries()}\
% endif
% if plan.packing.transposed:
${transpose.entries()}\
% endif
</%def>\
