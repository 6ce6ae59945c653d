## Results of a thread's rows join states in registers; each part of the columns stores a state of every row in the workspace,
## as tiles do: see row_reduce.mako.
<%namespace name="values" file="/epilogue/result_values.mako"/>
<%namespace name="row_reduce" file="/epilogue/row_reduce.mako"/>
<%namespace name="ptx" file="/ptx/banner.mako"/>
<%namespace name="rows" file="/ptx/any_row.mako"/>
<%def name="declare()">
    .reg .b64 %workspace, %states;
    .reg .b32 %half<2>;
${row_reduce.declare()}\
% if plan.states.compares_first:
    ${plan.states.bound.declaration}
    .reg .${plan.states.bound.ptx_type} %best<${plan.states.rows}>;
% endif
</%def>

<%def name="begin()">
    ld.param.u64 %workspace, [W];  ld.param.u64 %states, [sink_offset];
    cvta.to.global.u64 %workspace, %workspace;
    add.u64 %states, %states, %workspace;
${row_reduce.clear()}\
% if plan.states.compares_first:
  % for r in plan.states.bound.all:
    mov.${plan.states.bound.ptx_type} ${r}, ${plan.states.no_bound};
  % endfor
% endif
</%def>

<%def name="declare_group()">
    .reg .b32 %position;
</%def>

## Compares the best of the values of a row with its best one so far.
<%def name="take_row(group, row)">
% if plan.states.compares_first:
${values.compute(row.sums, "", (row.index, 0), ("%column", 0), row.values)}\
  % for line in plan.states.best_lines(f"%best{row.row}", row.values.of(0)):
    ${line}
  % endfor
${rows.any_row(row.row, plan.states.replaces, plan.states.reduction.type, plan.states.bound[row.row], f"%best{row.row}")}\
% endif
</%def>

## Joins the values of all rows with their states.
<%def name="take(group)">
% if plan.states.compares_first:
    @!%p bra ${group.prefix}KEPT;
% endif
% for row in group.rows:
  % if plan.states.compares_first:
    setp.${plan.states.keeps}.${plan.states.reduction.type} %p, ${plan.states.bound[row.row]}, %best${row.row};
    @%p bra ${group.prefix}KEPT${row.row};
  % endif
${join(group, row)}\
  % if plan.states.compares_first:
    mov.${plan.states.bound.ptx_type} ${plan.states.bound[row.row]}, ${plan.states.state[0][row.row]};
${group.prefix}KEPT${row.row}:
  % endif
% endfor
% if plan.states.compares_first:
${group.prefix}KEPT:
% endif
</%def>

## Joins the values of a row with its state.
<%def name="join(group, row)">
${values.compute(row.sums, "", (row.index, 0), ("%column", 0), row.values)}\
% if row.values.guard is None:
  % for line in plan.states.add_all(row.row, row.values.of(0), "%column"):
    ${line}
  % endfor
% else:
  % for q in range(group.columns):
    add.u32 %position, %column, ${q};
    % for line in plan.states.add(row.row, row.values.of(0)[q], "%position", f"@{row.values.of(1)[q]} "):
    ${line}
    % endfor
  % endfor
% endif
</%def>

<%def name="finish()">
${ptx.banner("the states of the rows, of this part of the columns")}\
% for row in plan.group.rows:
    setp.lt.u32 %in_bounds, ${row.index}, %M;
${row_reduce.store_state(row.row, "%column_part", "%M", row.index, "@%in_bounds ", plan.states)}\
% endfor
</%def>
