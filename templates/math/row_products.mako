## Products of nonzeros and rows of B. For each nonzero there are its index, its value, and this lane's vectors of the row of B.
<%namespace name="convert" file="/ptx/convert.mako"/>\
<%namespace name="shuffle" file="/ptx/shuffle.mako"/>\
<%def name="load_row(q, guard='')">
<% rows = plan.mainloop %>\
% for v in range(rows.vectors):
    mad.wide.u32 %ptr_row, ${rows.index[q]}, %pitch, ${rows.from_b[v]};
    ${guard}ld.global.nc.${rows.access} ${rows.loaded[q, v, :]}, [%ptr_row];
% endfor
</%def>

<%def name="clear_row(q)">
<% rows = plan.mainloop %>\
% for v in range(rows.vectors):
  % for i in range(rows.packed):
    mov.b${rows.register_bits} ${rows.loaded[q, v, i]}, 0;
  % endfor
% endfor
</%def>

<%def name="widen_value(q)">
<% rows = plan.mainloop %>\
% if rows.converts:
${convert.widen(rows.ptx_type, rows.value[q], rows.half_value[q])}\
% endif
</%def>

<%def name="multiply(q)">
<% rows, op = plan.mainloop, plan.arithmetic %>\
% for v in range(rows.vectors):
${widen(q, v)}\
  % for sum, element in zip(rows.vector_sums[v], rows.elements[q, v]):
    ${op.fma} ${sum}, ${rows.value[q]}, ${element}, ${sum};
  % endfor
% endfor
</%def>

## A loaded vector in the type of sums.
<%def name="widen(q, v)">
<% rows = plan.mainloop %>\
% for word, low, high in rows.loaded_pairs[q, v]:
${convert.widen_pair(rows.ptx_type, low, high, word, rows.half.all)}\
% endfor
% if rows.converts and rows.vec == 1:
${convert.widen(rows.ptx_type, rows.wide[0], rows.loaded[q, v, 0])}\
% endif
</%def>

## Adds the sums of the groups of lanes that share the nonzeros of a row: all of them have the sums then.
<%def name="add_groups()">
<% rows, op = plan.mainloop, plan.arithmetic %>\
    // ---- the sums of the ${rows.nonzero_groups} groups of lanes
% for distance in rows.group_distances:
  % for name in rows.sums.all:
${shuffle.add_butterfly(op.type, name, distance)}\
  % endfor
% endfor
</%def>
