## Rows, or columns, of values of the results in wgmma's fragments are reduced: each warp stores a state of each row along X of
## its block's tile, or of each column along Y, in the workspace [part][result], and an auxiliary kernel joins them.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="fragments" file="/epilogue/fragment_values.mako"/>
<%namespace name="rows" file="/epilogue/row_reduce.mako"/>
<%def name="store_tiles(store_c, math, store_op)">
<% s, kernels = plan.states, plan.sink_kernels %>\
    {
    .reg .b64 %states;
    .reg .b32 %c_x, %c_y, %state_part, %result, %half<2>;
    .reg .pred %taken, %stores;
    ld.param.u64 %states, [sink_offset];
    add.u64 %states, %states, %workspace;
${rows.declare()}\
${constants.mad("%c_x", "%wg", plan.mainloop.wg_rows, "%x0")}\
    mov.b32 %c_y, %y0;
${fragments.setup()}\
% if s.along_y:
    div.u32 %state_part, %y0, ${kernels.part_columns};
    // the first of four lanes stores the states of their rows
    and.b32 %tmp0, %lane, 3;
    setp.eq.u32 %stores, %tmp0, 0;
${rows.clear()}\
% else:
    div.u32 %state_part, %x0, ${plan.scheduler.x_tile};
    mad.lo.u32 %state_part, %state_part, ${kernels.warps}, %wg_warp;
% if not plan.config.pingpong:
    mad.lo.u32 %state_part, %wg, 4, %state_part;
% endif
    // the first four lanes store the states of their columns
    setp.lt.u32 %stores, %lane, 4;
% endif
% for groups in plan.values.batches(range(plan.epilogue.y_columns // 8)):
    {
${fragments.begin_batch(groups)}\
% for n, j in enumerate(groups):
${reduce_group(n, j)}\
% endfor
    }
% endfor
% if s.along_y:
% for q in range(s.count):
${join(q)}\
${constants.add("%result", "%first_x", plan.epilogue.row_offset(q))}\
    and.pred %taken, %stores, %in_x${q};
${rows.store_state(q, "%state_part", plan.scheduler.x_extent, "%result", "@%taken ", plan.states)}\
% endfor
% endif
    }
</%def>

## The values of group j of columns, number n of the batch.
<%def name="reduce_group(n, j)">
<% s, v = plan.states, plan.values %>\
    {
% if v.long or not s.along_y:
    sub.s32 %tmp0, ${plan.scheduler.y_extent}, %c_y;
    setp.le.s32 %p, %tmp0, ${8 * j};
    @%p bra.uni REDUCED;
% endif
% if not s.along_y:
${rows.clear()}\
% endif
% for m in range(v.mi):
    {
    .reg .b32 %position;
${fragments.declare()}\
${fragments.compute(m, j, n, plan.epilogue.fragment(m, j))}\
% for e in range(2):
    setp.gt.s32 %in_y${e}, %y_rem, ${8 * j + e};
% endfor
% for q in range(4):
<% h, e = q // 2, q % 2 %>\
% if s.along_y:
${constants.add("%position", "%first_y", 8 * j + e)}\
${add_value(2 * m + h, q, f"%in_y{e}")}\
% else:
${constants.add("%position", "%first_x", plan.epilogue.row_offset(2 * m + h))}\
${add_value(e, q, f"%in_x{2 * m + h}")}\
% endif
% endfor
    }
% endfor
% if not s.along_y:
% for e in range(2):
${join(e)}\
${constants.add("%result", "%first_y", 8 * j + e)}\
    and.pred %taken, %stores, %in_y${e};
${rows.store_state(e, "%state_part", plan.scheduler.y_extent, "%result", "@%taken ", plan.states)}\
% endfor
% endif
REDUCED:
    }
</%def>

## Joins a state with value q of the fragment, at %position.
<%def name="add_value(state, q, bounds)">
% if plan.values.guard is not None:
    and.pred %taken, ${plan.values.of(1)[q]}, ${bounds};
% else:
    and.pred %taken, ${bounds}, ${bounds};
% endif
% for line in plan.states.add(state, plan.values.of(0)[q], "%position", "@%taken "):
    ${line}
% endfor
</%def>

## Joins a state with those of the other lanes that have values of it.
<%def name="join(state)">
% for distance in plan.states.distances:
% for line in plan.states.exchange(distance, state):
    ${line}
% endfor
% for line in plan.states.join(state):
    ${line}
% endfor
% endfor
</%def>
