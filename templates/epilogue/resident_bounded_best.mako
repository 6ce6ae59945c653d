## As resident_best.mako, for pairs with bounds (math/sum_bounds.mako): a warp computes the sums of a row if a bound reaches its
## limit. It loads the columns again, so that no register holds them meanwhile.
<%namespace name="best" file="resident_best.mako"/>
<%namespace name="bounds" file="/math/sum_bounds.mako"/>
<%namespace name="row_sums" file="/math/row_sums.mako"/>
<%def name="declare()">${best.declare()}</%def>
<%def name="begin()">${best.begin()}</%def>
<%def name="declare_group()">${best.declare_group()}</%def>
<%def name="finish()">${best.finish()}</%def>

<%def name="take_row(group, row)">
${bounds.reaches_any(row)}\
</%def>

<%def name="take(group)">
    vote.sync.any.pred %p, %p, 0xffffffff;
    @!%p bra.uni ${group.prefix}KEPT;
% for row in group.rows:
${bounds.reaches(row)}\
    vote.sync.any.pred %p, %p, 0xffffffff;
    @!%p bra.uni ${group.prefix}KEPT${row.row};
${row_sums.compute(group, row, group.reloads)}\
${best.keep(row)}\
${bounds.limit(row, plan.taken.bound[row.row])}\
${group.prefix}KEPT${row.row}:
% endfor
${group.prefix}KEPT:
</%def>
