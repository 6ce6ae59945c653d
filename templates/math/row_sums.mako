## The reductions over k of a row of a thread and columns that are computed together.
<%def name="sums(group, row)">
% for sum in row.sums:
    mov.${plan.arithmetic.type} ${sum}, ${plan.reducer.identity};
% endfor
% for k in range(plan.mainloop.k):
  % for q in range(group.columns):
    % for line in plan.mainloop.step_lines(row.row, k, q):
    ${line}
    % endfor
  % endfor
% endfor
</%def>
