## Rows, or columns, of values of the results are reduced: each block stores a state of each row of its tile (of each column,
## and band of rows) in the workspace [part][result], and an auxiliary kernel joins them.
<%namespace name="values" file="/epilogue/result_values.mako"/>
<%namespace name="walk" file="/epilogue/tile_walk.mako"/>
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%def name="prepare()"></%def>
## A block whose tile has no pair that is reduced stores states of no value.
<%def name="skip_tile()">
% if plan.sink_kernels.stores_tiles:
${values.skip_tile(capture(empty_states))}\
% else:
${values.skip_tile()}\
% endif
</%def>
<%def name="empty_states()">
% if not plan.values.corner_keys:
${pdl.wait()}\
% endif
% for states in reversed(plan.states.both):
${empty_states_of(states)}\
% endfor
</%def>
<%def name="empty_states_of(states)">
    {
    .reg .b64 %states;
    .reg .b32 %state_part, %state_result, %first_part, %parts_end;
${declare(states)}\
${clear(1, states)}\
    ld.param.u64 %states, [sink_offset];
    add.u64 %states, %states, %workspace;
% if states.of_rows:
    div.u32 %first_part, %n0, ${plan.config.nl};
    add.u32 %parts_end, %first_part, 1;
    add.u32 %state_result, %m0, %thread;
    add.u32 %tmp1, %m0, ${plan.config.ml};
    min.u32 %tmp1, %tmp1, %M;
% else:
    div.u32 %tmp0, %m0, ${plan.config.ml};
    mul.lo.u32 %first_part, %tmp0, ${plan.walk.bands};
    add.u32 %parts_end, %first_part, ${plan.walk.bands};
    add.u32 %state_result, %n0, %thread;
    add.u32 %tmp1, %n0, ${plan.config.nl};
    min.u32 %tmp1, %tmp1, %N;
% endif
${after_direct_parts(states, "%first_part", "%parts_end")}\
NEXT_RESULT:
    setp.ge.u32 %p, %state_result, %tmp1;
    @%p ${states.after_empty};
    mov.u32 %state_part, %first_part;
NEXT_PART:
${store_state(0, "%state_part", states.extent, "%state_result", "", states)}\
    add.u32 %state_part, %state_part, 1;
    setp.lt.u32 %p, %state_part, %parts_end;
    @%p bra NEXT_PART;
    add.u32 %state_result, %state_result, ${plan.threads};
    bra NEXT_RESULT;
% if states.exchanged:
NEXT_STATES:
% endif
    }
</%def>

## Moves numbers of parts past those of results (i, j), if they are of results (j, i) which are taken from the sums of (i, j).
<%def name="after_direct_parts(states, *parts)">
% if states.exchanged:
    ld.param.u32 %tmp0, [mirror_parts];
  % for part in parts:
    add.u32 ${part}, ${part}, %tmp0;
  % endfor
% endif
</%def>

<%def name="store_tiles(store_c, math, store_op)">
    {
${setup_slices()}\
${declare()}\
    .reg .b32 %tile_row, %first_row, %lane, %state_part, %c_row, %c_col, %sums_addr, %half<2>;
    .reg .pred %in_bounds;
    ${plan.epilogue.vector.declaration}
    ${plan.c.addend.declaration}
${store_c.sums_to_shared(math)}\
${reduce_tile(plan.states, plan.values)}\
% if plan.states.mirror is not None:
    { // (j, i), from the sums of (i, j)
${declare(plan.states.mirror)}\
${reduce_tile(plan.states.mirror, plan.values.mirror)}\
    }
% endif
    }
</%def>

<%def name="reduce_tile(states, of)">${dict(rows=reduce_rows, columns=reduce_columns)[states.reduced](states, of)}</%def>

<%def name="reduce_rows(states, of)">
    // ---- ${plan.walk.row_lanes} lanes reduce a row; the block reads ${plan.walk.rows_per_step} rows at once
    shr.u32 %tile_row, %thread, ${plan.walk.log2_row_lanes};
    and.b32 %lane, %thread, ${plan.walk.row_lane_mask};
    div.u32 %state_part, %n0, ${plan.config.nl};
${after_direct_parts(states, "%state_part")}\
    mov.u32 %first_row, 0;
    .pragma "nounroll";
NEXT_ROWS:
    add.u32 %c_row, %tile_row, %m0;
${clear(0, states)}\
% for column in plan.walk.row_round_columns:
    mad.lo.u32 %c_col, %lane, ${plan.c.vec}, ${column};
${walk.read_sums()}\
    add.u32 %c_col, %c_col, %n0;
${add_vector("@%in_bounds ", states, of)}\
% endfor
% for distance in plan.walk.distances:
${join_lanes(distance, states)}\
% endfor
    // the first lane of a row stores its state
    setp.lt.u32 %in_bounds, %c_row, %M;
    setp.lt.and.u32 %in_bounds, %tile_row, ${plan.config.ml}, %in_bounds;
    setp.eq.and.u32 %in_bounds, %lane, 0, %in_bounds;
${store_state(0, "%state_part", "%M", "%c_row", "@%in_bounds ", states)}\
    add.u32 %tile_row, %tile_row, ${plan.walk.rows_per_step};
    add.u32 %first_row, %first_row, ${plan.walk.rows_per_step};
    setp.lt.u32 %p, %first_row, ${plan.config.ml};
    @%p bra.uni NEXT_ROWS;
</%def>

<%def name="reduce_columns(states, of)">
    // ---- ${plan.walk.bands} bands of ${plan.walk.band_rows} rows; each thread reduces ${plan.c.vec} columns of a band
    shr.u32 %state_part, %thread, ${plan.walk.log2_column_lanes};
    and.b32 %lane, %thread, ${plan.walk.column_lane_mask};
    mul.lo.u32 %first_row, %state_part, ${plan.walk.band_rows};
    div.u32 %tmp0, %m0, ${plan.config.ml};
    mad.lo.u32 %state_part, %tmp0, ${plan.walk.bands}, %state_part;
${after_direct_parts(states, "%state_part")}\
% for n, column in enumerate(plan.walk.round_columns):
    mov.u32 %tile_row, %first_row;
${clear(0, states)}\
    .pragma "nounroll";
NEXT_ROW${n}:
    mad.lo.u32 %c_col, %lane, ${plan.c.vec}, ${column};
    add.u32 %c_row, %tile_row, %m0;
${walk.read_sums()}\
    add.u32 %c_col, %c_col, %n0;
${add_vector("@%in_bounds ", states, of)}\
    add.u32 %tile_row, %tile_row, 1;
    add.u32 %tmp0, %first_row, ${plan.walk.band_rows};
    setp.lt.u32 %p, %tile_row, %tmp0;
    @%p bra NEXT_ROW${n};
    setp.lt.u32 %in_bounds, %c_col, %N;
${store_states("@%in_bounds ", states)}\
% endfor
</%def>

## The registers of states, in the scope of what follows.
<%def name="declare(states=None)">
    .reg .b64 %state_addr;
% for line in (states or plan.states).declarations:
    ${line}
% endfor
</%def>

<%def name="clear(count=0, states=None)">
<% states = states or plan.states %>\
% for q in range(count or states.count):
  % for line in states.clear(q):
    ${line}
  % endfor
% endfor
</%def>

## Joins the states with the vector of results at %c_row, %c_col.
<%def name="add_vector(guard, states, of)">
    {
    .reg .b32 %position;
    .reg .pred %taken;
${values.declare(of)}\
${values.compute(plan.epilogue.stored, guard, *states.pair, of)}\
% for q in range(plan.c.vec):
    ${states.positions[q]}
  % if of.guard is None:
${add_value(q, guard, states, of)}\
  % elif guard:
    and.pred %taken, ${of.tiles[1][q]}, %in_bounds;
${add_value(q, "@%taken ", states, of)}\
  % else:
${add_value(q, f"@{of.tiles[1][q]} ", states, of)}\
  % endif
% endfor
    }
</%def>
<%def name="add_value(q, guard, states, of)">
% for line in states.add(0 if states.of_rows else q, of.of(0)[q], "%position", guard):
    ${line}
% endfor
</%def>

<%def name="join_lanes(distance, states=None)">
<% states = states or plan.states %>\
% for line in states.exchange(distance):
    ${line}
% endfor
% for line in states.join(0):
    ${line}
% endfor
</%def>

## Stores state q as that of a result: part, results and result are registers.
<%def name="store_state(q, part, results, result, guard, states)">
    mul.wide.u32 %state_addr, ${part}, ${results};
    cvt.u64.u32 %tmp64, ${result};
    add.u64 %state_addr, %state_addr, %tmp64;
    mad.lo.u64 %state_addr, %state_addr, ${states.entry_bytes}, %states;
% for n, (ptx_type, offset) in enumerate(states.components):
    ${guard}st.global.${ptx_type} [%state_addr+${offset}], ${states.state[n][q]};
% endfor
</%def>

<%def name="store_states(guard, states)">
% for q in range(states.count):
    add.u32 %tmp0, %c_col, ${q};
${store_state(q, "%state_part", "%N", "%tmp0", guard, states)}\
% endfor
</%def>

## Defs of the auxiliary kernel that completes sums: see splitk_kernels.mako. Each of its vectors is a part of a row, and each
## row a part of all columns.
<%def name="declare_scalars()">${values.declare_scalars()}</%def>
<%def name="load_scalars()">${values.load_scalars()}</%def>
<%def name="setup_slices()">
${values.setup()}\
    .reg .b64 %states;
    ld.param.u64 %states, [sink_offset];
    add.u64 %states, %states, %workspace;
</%def>
<%def name="begin_slices()"></%def>
<%def name="store_slices()">
% for states, of in zip(plan.states.both, plan.values.both):
${store_slices_of(states, of)}\
% endfor
</%def>

<%def name="store_slices_of(states, of)">
    {
    .reg .b32 %state_part;
${declare(states)}\
${clear(0, states)}\
${add_vector("", states, of)}\
% if states.of_rows:
    div.u32 %state_part, %c_col, ${plan.c.vec};
${after_direct_parts(states, "%state_part")}\
${store_state(0, "%state_part", "%M", "%c_row", "", states)}\
% else:
    mov.u32 %state_part, %c_row;
${after_direct_parts(states, "%state_part")}\
${store_states("", states)}\
% endif
    }
</%def>
