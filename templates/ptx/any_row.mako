## %p: first and second satisfy the comparison test in this row, or %p is already set by an earlier row.
<%def name="any_row(row, test, type, first, second)">
% if row:
    setp.${test}.or.${type} %p, ${first}, ${second}, %p;
% else:
    setp.${test}.${type} %p, ${first}, ${second};
% endif
</%def>
