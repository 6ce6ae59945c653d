## As resident_states.mako, for pairs with bounds (math/sum_bounds.mako): the sums of a row are computed if a bound reaches its limit.
<%namespace name="states" file="resident_states.mako"/>
<%namespace name="bounds" file="/math/sum_bounds.mako"/>
<%namespace name="row_sums" file="/math/row_sums.mako"/>
<%def name="declare()">${states.declare()}</%def>
<%def name="begin()">${states.begin()}</%def>
<%def name="declare_group()">${states.declare_group()}</%def>
<%def name="finish()">${states.finish()}</%def>

<%def name="take_row(group, row)">
${bounds.reaches_any(row)}\
</%def>

<%def name="take(group)">
    @!%p bra ${group.prefix}KEPT;
% for row in group.rows:
${bounds.reaches(row)}\
    @!%p bra ${group.prefix}KEPT${row.row};
${row_sums.compute(group, row)}\
${states.join(group, row)}\
  % if plan.mainloop.bounds.follows_best:
${bounds.limit(row, plan.states.state[0][row.row])}\
  % endif
${group.prefix}KEPT${row.row}:
% endfor
${group.prefix}KEPT:
</%def>
