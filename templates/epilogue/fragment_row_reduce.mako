## Rows, or columns, of values of the results in wgmma's fragments are reduced: each warp stores a state of each row along X of
## its block's tile, or of each column along Y, in the workspace [part][result], and an auxiliary kernel joins them.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="fragments" file="/epilogue/fragment_values.mako"/>
<%namespace name="rows" file="/epilogue/row_reduce.mako"/>
<%def name="store_tiles(store_c, math, store_op)">
    {
    .reg .b64 %states;
    .reg .b32 %c_x, %c_y, %state_part, %result, %half<2>;
    .reg .pred %taken, %stores;
    ld.param.u64 %states, [sink_offset];
    add.u64 %states, %states, %workspace;
${constants.mad("%c_x", "%wg", plan.mainloop.wg_rows, "%x0")}\
    mov.b32 %c_y, %y0;
${fragments.bounds()}\
${reduce_tile(plan.states, plan.values)}\
% if plan.states.mirror is not None:
    // ---- (j, i), from the sums of (i, j)
${reduce_tile(plan.states.mirror, plan.values.mirror)}\
% endif
    }
</%def>

<%def name="reduce_tile(s, v)">
<% kernels = plan.sink_kernels %>\
    {
${rows.declare(s)}\
${fragments.load_rows(v)}\
% if s.along_y:
    div.u32 %state_part, %y0, ${kernels.part_columns};
    // the first of four lanes stores the states of their rows
    and.b32 %tmp0, %lane, 3;
    setp.eq.u32 %stores, %tmp0, 0;
${rows.clear(0, s)}\
% else:
    div.u32 %state_part, %x0, ${plan.scheduler.x_tile};
    mad.lo.u32 %state_part, %state_part, ${kernels.warps}, %wg_warp;
  % if not plan.config.pingpong:
    mad.lo.u32 %state_part, %wg, 4, %state_part;
  % endif
    // the first four lanes store the states of their columns
    setp.lt.u32 %stores, %lane, 4;
% endif
${rows.after_direct_parts(s, "%state_part")}\
% for groups, joint in s.batches(v, len(plan.epilogue.column_groups)):
    {
${fragments.begin_batch(groups, v)}\
  % if s.adds_together:
    % for part in joint:
${reduce_together(s, v, part)}\
    % endfor
  % else:
    % for n, j in enumerate(groups):
${reduce_group(s, v, n, j)}\
    % endfor
  % endif
    }
% endfor
% if s.along_y:
  % for q in range(s.count):
${join(s, q)}\
${constants.add("%result", "%first_x", plan.epilogue.row_offsets[q])}\
    and.pred %taken, %stores, %in_x${q};
${rows.store_state(q, "%state_part", plan.scheduler.x_extent, "%result", "@%taken ", s)}\
  % endfor
% endif
    }
</%def>

## Nothing is reduced if group j of columns is past the end of C.
<%def name="skip_beyond(s, v, j)">
% if v.long or not s.along_y or s.sink.mirrored:
    sub.s32 %tmp0, ${plan.scheduler.y_extent}, %c_y;
    setp.le.s32 %p, %tmp0, ${plan.epilogue.column_groups[j][0]};
    @%p bra.uni REDUCED;
% endif
</%def>

## The values of group j of columns, number n of the batch.
<%def name="reduce_group(s, v, n, j)">
<% columns = plan.epilogue.column_groups[j] %>\
    {
${skip_beyond(s, v, j)}\
% if not s.along_y:
${rows.clear(0, s)}\
% endif
% for m in range(v.mi):
    {
    .reg .b32 %position;
${fragments.declare(v)}\
${fragments.compute(m, j, n, plan.epilogue.fragments[m, j], v)}\
  % for e, column in enumerate(columns):
    setp.gt.s32 %in_y${e}, %y_rem, ${column};
  % endfor
  % for r, (state, bounds) in zip(v.results[m], s.fragment_places[m]):
    % if s.along_y:
${constants.add("%position", "%first_y", columns[r.e])}\
    % else:
${constants.add("%position", "%first_x", plan.epilogue.row_offsets[r.row])}\
    % endif
${add_value(s, v, state, r.q, bounds)}\
  % endfor
    }
% endfor
% if not s.along_y:
  % for e, column in enumerate(columns):
${join(s, e)}\
${constants.add("%result", "%first_y", column)}\
    and.pred %taken, %stores, %in_y${e};
${rows.store_state(e, "%state_part", plan.scheduler.y_extent, "%result", "@%taken ", s)}\
  % endfor
% endif
REDUCED:
    }
</%def>

## The values of groups of columns are added to the states together.
<%def name="reduce_together(s, v, part)">
    {
    ${s.kept.declaration}
${skip_beyond(s, v, part.first)}\
% for n, j, keep in part.members:
  % for m, values in enumerate(keep):
    {
${fragments.declare(v)}\
${fragments.compute(m, j, n, plan.epilogue.fragments[m, j], v)}\
    % for e, column in enumerate(plan.epilogue.column_groups[j]):
    setp.gt.s32 %in_y${e}, %y_rem, ${column};
    % endfor
    % for x in values:
    and.pred %taken, ${x.counts}, ${x.inside};
    selp.${s.kept.ptx_type} ${x.to}, ${x.value}, ${s.no_value}, %taken;
    % endfor
    }
  % endfor
% endfor
% for line in part.additions:
    ${line}
% endfor
REDUCED:
    }
</%def>

## Joins a state with value q of the fragment, at %position.
<%def name="add_value(s, v, state, q, bounds)">
% if v.guard is not None:
    and.pred %taken, ${v.tiles[1][q]}, ${bounds};
% else:
    and.pred %taken, ${bounds}, ${bounds};
% endif
% for line in s.add(state, v.tiles[0][q], "%position", "@%taken "):
    ${line}
% endfor
</%def>

## Joins a state with those of the other lanes that have values of it.
<%def name="join(s, state)">
% for distance in s.distances:
  % for line in s.exchange(distance, state):
    ${line}
  % endfor
  % for line in s.join(state):
    ${line}
  % endfor
% endfor
</%def>
