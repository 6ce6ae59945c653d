## Rows, or columns, of values of the results are reduced: each block stores a state of each row of its tile (of each column,
## and band of rows) in the workspace [part][result], and an auxiliary kernel joins them.
<%namespace name="values" file="/epilogue/result_values.mako"/>
<%namespace name="walk" file="/epilogue/tile_walk.mako"/>
<%def name="prepare()"></%def>
## A block whose tile has no pair that is reduced stores states of no value.
<%def name="skip_tile()">${values.skip_tile(capture(empty_states) if plan.sink_kernels.stores_tiles else "")}</%def>
<%def name="empty_states()">
    {
    .reg .b64 %states;
    .reg .b32 %state_part, %state_result, %first_part, %parts_end;
${declare()}\
${clear(1)}\
    ld.param.u64 %states, [sink_offset];
    add.u64 %states, %states, %workspace;
% if plan.states.of_rows:
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
NEXT_RESULT:
    setp.ge.u32 %p, %state_result, %tmp1;
    @%p ret;
    mov.u32 %state_part, %first_part;
NEXT_PART:
${store_state(0, "%state_part", "%M" if plan.states.of_rows else "%N", "%state_result", "")}\
    add.u32 %state_part, %state_part, 1;
    setp.lt.u32 %p, %state_part, %parts_end;
    @%p bra NEXT_PART;
    add.u32 %state_result, %state_result, ${plan.threads};
    bra NEXT_RESULT;
    }
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
% if plan.states.of_rows:
${reduce_rows()}\
% else:
${reduce_columns()}\
% endif
    }
</%def>

<%def name="reduce_rows()">
    // ---- ${plan.walk.row_lanes} lanes reduce a row; the block reads ${plan.walk.rows_per_step} rows at once
    shr.u32 %tile_row, %thread, ${plan.walk.log2_row_lanes};
    and.b32 %lane, %thread, ${plan.walk.row_lanes - 1};
    div.u32 %state_part, %n0, ${plan.config.nl};
    mov.u32 %first_row, 0;
    .pragma "nounroll";
NEXT_ROWS:
    add.u32 %c_row, %tile_row, %m0;
${clear()}\
% for n in range(plan.walk.row_rounds):
    mad.lo.u32 %c_col, %lane, ${plan.c.vec}, ${n * plan.walk.row_lanes * plan.c.vec};
${walk.read_sums()}\
    add.u32 %c_col, %c_col, %n0;
${add_vector("@%in_bounds ")}\
% endfor
% for distance in plan.walk.distances:
${join_lanes(distance)}\
% endfor
    // the first lane of a row stores its state
    setp.lt.u32 %in_bounds, %c_row, %M;
    setp.lt.and.u32 %in_bounds, %tile_row, ${plan.config.ml}, %in_bounds;
    setp.eq.and.u32 %in_bounds, %lane, 0, %in_bounds;
${store_state(0, "%state_part", "%M", "%c_row", "@%in_bounds ")}\
    add.u32 %tile_row, %tile_row, ${plan.walk.rows_per_step};
    add.u32 %first_row, %first_row, ${plan.walk.rows_per_step};
    setp.lt.u32 %p, %first_row, ${plan.config.ml};
    @%p bra.uni NEXT_ROWS;
</%def>

<%def name="reduce_columns()">
    // ---- ${plan.walk.bands} bands of ${plan.walk.band_rows} rows; each thread reduces ${plan.c.vec} columns of a band
    shr.u32 %state_part, %thread, ${plan.walk.log2_column_lanes};
    and.b32 %lane, %thread, ${plan.walk.column_lanes - 1};
    mul.lo.u32 %first_row, %state_part, ${plan.walk.band_rows};
    div.u32 %tmp0, %m0, ${plan.config.ml};
    mad.lo.u32 %state_part, %tmp0, ${plan.walk.bands}, %state_part;
% for n in range(plan.walk.column_rounds):
    mov.u32 %tile_row, %first_row;
${clear()}\
    .pragma "nounroll";
NEXT_ROW${n}:
    mad.lo.u32 %c_col, %lane, ${plan.c.vec}, ${n * plan.walk.column_lanes * plan.c.vec};
    add.u32 %c_row, %tile_row, %m0;
${walk.read_sums()}\
    add.u32 %c_col, %c_col, %n0;
${add_vector("@%in_bounds ")}\
    add.u32 %tile_row, %tile_row, 1;
    add.u32 %tmp0, %first_row, ${plan.walk.band_rows};
    setp.lt.u32 %p, %tile_row, %tmp0;
    @%p bra NEXT_ROW${n};
    setp.lt.u32 %in_bounds, %c_col, %N;
${store_states("@%in_bounds ")}\
% endfor
</%def>

## The registers of states, in the scope of what follows.
<%def name="declare()">
    .reg .b64 %state_addr;
% for line in plan.states.declarations:
    ${line}
% endfor
</%def>

<%def name="clear(count=0)">
% for q in range(count or plan.states.count):
% for line in plan.states.clear(q):
    ${line}
% endfor
% endfor
</%def>

## Joins the states with the vector of results at %c_row, %c_col.
<%def name="add_vector(guard)">
    {
    .reg .b32 %position;
    .reg .pred %taken;
${values.declare()}\
${values.compute([plan.epilogue.vector[q] for q in range(plan.c.vec)], guard, ("%c_row", 0), ("%c_col", 0))}\
% for q in range(plan.c.vec):
% if plan.states.of_rows:
    add.u32 %position, %c_col, ${q};
% else:
    mov.u32 %position, %c_row;
% endif
% if plan.states.sink.when is None:
${add_value(q, guard)}\
% elif guard:
    and.pred %taken, ${plan.values.of(1)[q]}, ${guard.strip("@ ")};
${add_value(q, "@%taken ")}\
% else:
${add_value(q, f"@{plan.values.of(1)[q]} ")}\
% endif
% endfor
    }
</%def>
<%def name="add_value(q, guard)">
% for line in plan.states.add(0 if plan.states.of_rows else q, plan.values.of(0)[q], "%position", guard):
    ${line}
% endfor
</%def>

<%def name="join_lanes(distance)">
% for line in plan.states.exchange(distance):
    ${line}
% endfor
% for line in plan.states.join(0):
    ${line}
% endfor
</%def>

## Stores state q as that of a result: part, results and result are registers.
<%def name="store_state(q, part, results, result, guard)">
    mul.wide.u32 %state_addr, ${part}, ${results};
    cvt.u64.u32 %tmp64, ${result};
    add.u64 %state_addr, %state_addr, %tmp64;
    mad.lo.u64 %state_addr, %state_addr, ${plan.states.entry_bytes}, %states;
% for n, (kind, offset) in enumerate(plan.states.components):
    ${guard}st.global.${kind} [%state_addr+${offset}], ${plan.states.state[n][q]};
% endfor
</%def>

<%def name="store_states(guard)">
% for q in range(plan.states.count):
    add.u32 %tmp0, %c_col, ${q};
${store_state(q, "%state_part", "%N", "%tmp0", guard)}\
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
    {
    .reg .b32 %state_part;
${declare()}\
${clear()}\
${add_vector("")}\
% if plan.states.of_rows:
    div.u32 %state_part, %c_col, ${plan.c.vec};
${store_state(0, "%state_part", "%M", "%c_row", "")}\
% else:
    mov.u32 %state_part, %c_row;
${store_states("")}\
% endif
    }
</%def>
