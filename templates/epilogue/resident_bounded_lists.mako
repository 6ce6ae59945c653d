## As resident_lists.mako, for pairs with bounds (math/sum_bounds.mako): a warp computes the sums of a row if a bound reaches its
## limit.
<%namespace name="lists" file="resident_lists.mako"/>
<%namespace name="bounds" file="/math/sum_bounds.mako"/>
<%namespace name="row_sums" file="/math/row_sums.mako"/>
<%def name="declare()">${lists.declare()}</%def>
<%def name="begin()">${lists.begin()}</%def>
<%def name="finish()">${lists.finish()}</%def>

<%def name="declare_group()"></%def>

<%def name="take_row(group, row)">
${bounds.reaches_any(row)}\
</%def>

<%def name="take(group)">
    vote.sync.any.pred %p, %p, 0xffffffff;
    @!%p bra.uni ${group.prefix}NONE_SELECTED;
    {
    .reg .b32 %ballot, %rank, %entry;
    .reg .pred %holds;
% for row in group.rows:
${bounds.reaches(row)}\
    vote.sync.any.pred %p, %p, 0xffffffff;
    @!%p bra.uni ${group.prefix}NONE_OF_ROW${row.row};
${row_sums.compute(group, row)}\
${lists.append(row)}\
${group.prefix}NONE_OF_ROW${row.row}:
% endfor
    }
${lists.empty_full(group)}\
${group.prefix}NONE_SELECTED:
</%def>
