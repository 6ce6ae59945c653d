## The kernels that pack rows of A and B before the product.
<%namespace name="rows" file="/copy/pack_rows.mako"/>
<%namespace name="transpose" file="/copy/transpose.mako"/>
<%def name="entries()">
% if plan.packing.copied:
${rows.entries()}\
% endif
% if plan.packing.transposed:
${transpose.entries()}\
% endif
</%def>\
