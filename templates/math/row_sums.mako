## The reductions over k of a row of a thread and columns that are computed together: the slot of resident_rows.mako without
## bounds. loads: for each k, the instruction that loads the columns again.
<%def name="declare()"></%def>\
<%def name="begin()"></%def>\
<%def name="columns()"></%def>\
<%def name="compute(group, row, loads=())">
% for sum in row.sums:
    mov.${plan.arithmetic.type} ${sum}, ${plan.reducer.identity};
% endfor
% for k in range(plan.mainloop.k):
  % if loads:
    ${loads[k]}
  % endif
  % for q in range(group.columns):
    % for line in plan.mainloop.step_lines(row.row, k, q):
    ${line}
    % endfor
  % endfor
% endfor
</%def>
