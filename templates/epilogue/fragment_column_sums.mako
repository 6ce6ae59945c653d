## The results of each column in wgmma's fragments are added, as epilogue/column_sums.mako does. If columns are along Y, a thread
## stores the sums of some columns after it has added their rows; if they are along X, it has the same columns in the whole tile.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="rows" file="/epilogue/row_reduce.mako"/>
<%namespace name="sums" file="/epilogue/column_sums.mako"/>
<%def name="begin()">
    .reg .b64 %states;
    .reg .b32 %state_part;
    .reg .pred %stores, %stored;
${rows.declare()}\
${rows.clear()}\
% if plan.states.along_y:
    div.u32 %state_part, %y0, ${plan.sink_kernels.part_columns};
% else:
    div.u32 %state_part, %x0, ${plan.scheduler.x_tile};
    mad.lo.u32 %state_part, %state_part, ${plan.sink_kernels.warps}, %wg_warp;
    mad.lo.u32 %state_part, %wg, ${plan.states.warps_apart}, %state_part;
% endif
${sums.place(plan.states.first, "%N")}\
</%def>

<%def name="begin_columns()">
% for line in plan.states.clearing:
    ${line}
% endfor
</%def>

## Adds the results that stmatrix number p of a subtile stores.
<%def name="add(c, p)">
% for remaining, place, lines in plan.column_additions[c.index][p]:
    setp.gt.s32 %in_bounds, ${remaining}, ${place};
  % for line in lines:
    ${line}
  % endfor
% endfor
</%def>

## Stores the sums of group n of columns, all of whose rows have been added.
<%def name="end_columns(n)">${store(plan.states.groups[n])}</%def>

<%def name="end()">${store(plan.states.kept)}</%def>

<%def name="store(columns)">
% for column in columns:
    setp.gt.and.s32 %stored, ${plan.states.remaining}, ${column}, %stores;
${sums.store(column)}\
% endfor
</%def>
