## Values of the results are reduced into the elements of C that their keys select. Each thread has some columns of a band of
## adjacent rows of the block's tile. For each column it keeps a run: the reduced value of pairs with equal keys. When the keys
## change, it writes the run by atomic instructions, after joining runs of adjacent columns, and of the lanes of a warp, that
## have equal keys.
<%namespace name="values" file="/epilogue/result_values.mako"/>
<%namespace name="walk" file="/epilogue/tile_walk.mako"/>
<%namespace name="runs" file="/${context['plan'].groups.runs}"/>
<%def name="prepare()"></%def>
<%def name="skip_tile()">
${runs.skip_tile()}\
</%def>

<%def name="store_tiles(store_c, math, store_op)">
    {
${setup_slices()}\
${declare()}\
    .reg .b32 %tile_row, %last_row, %lane, %c_row, %c_col, %sums_addr;
    .reg .pred %in_bounds;
    ${plan.epilogue.vector.declaration}
    ${plan.c.addend.declaration}
${store_c.sums_to_shared(math)}\
${reduce_tile(plan.groups)}\
% if plan.groups.mirror is not None:
    // ---- (j, i), from the sums of (i, j)
${reduce_tile(plan.groups.mirror)}\
% endif
    }
</%def>

<%def name="reduce_tile(of)">
    {
    // ---- ${plan.walk.bands} bands of ${plan.walk.band_rows} rows; each thread has ${plan.c.vec} columns of a band
    and.b32 %lane, %thread, ${plan.walk.column_lane_mask};
% for n, column in enumerate(plan.walk.round_columns):
    shr.u32 %tile_row, %thread, ${plan.walk.log2_column_lanes};
    mul.lo.u32 %tile_row, %tile_row, ${plan.walk.band_rows};
    add.u32 %last_row, %tile_row, ${plan.walk.band_rows};
${begin_runs()}\
    .pragma "nounroll";
NEXT_ROW${n}:
    mad.lo.u32 %c_col, %lane, ${plan.c.vec}, ${column};
    add.u32 %c_row, %tile_row, %m0;
${walk.read_sums()}\
    add.u32 %c_col, %c_col, %n0;
${add_vector("@%in_bounds ", of)}\
    add.u32 %tile_row, %tile_row, 1;
    setp.lt.u32 %p, %tile_row, %last_row;
    @%p bra NEXT_ROW${n};
${runs.end(True)}\
% endfor
    }
</%def>

## The registers of runs, in the scope of what follows. %open: a run has a value.
<%def name="declare()">
    .reg .b64 %group_addr, %group_index, %one;
    .reg .b32 %run_row<${plan.c.vec}>, %run_column<${plan.c.vec}>, %half<2>;
    .reg .pred %open<${plan.c.vec}>, %take<${plan.c.vec}>, %write<${plan.c.vec}>, %reject, %same, %is_nan, %emit, %plus, %minus;
    .reg .${plan.groups.ptx_type} %emitted, %seen, %next;
    .reg .${plan.groups.bits_type} %bits, %seen_bits, %next_bits;
    ${plan.groups.run.declaration}
% for line in plan.groups.declarations:
    ${line}
% endfor
    mov.u64 %one, 1;
</%def>

<%def name="begin_runs()">
% for q in range(plan.c.vec):
    mov.u32 %run_row${q}, 0;
    setp.ne.u32 %open${q}, %run_row${q}, %run_row${q};
    mov.u32 %run_column${q}, 0;
    mov.${plan.groups.ptx_type} ${plan.groups.run[q]}, ${plan.groups.identity};
% endfor
</%def>

## Takes the vector of results at %c_row, %c_col; of those of (j, i) row and column are exchanged.
<%def name="add_vector(guard, of)">
    {
${values.declare(of.values)}\
% if of.values.exchanged:
${values.compute(plan.epilogue.stored, guard, ("%c_col", 0), ("%c_row", 0), of.values)}\
% else:
${values.compute(plan.epilogue.stored, guard, ("%c_row", 0), ("%c_col", 0), of.values)}\
% endif
% for q in range(plan.c.vec):
  % for line in of.take(q, guard):
    ${line}
  % endfor
    @%reject red.global.add.u64 [%rejected], %one;
% endfor
${runs.take(of.values, guard)}\
    }
</%def>

## Defs of the auxiliary kernel that completes sums: see splitk_kernels.mako.
<%def name="declare_scalars()">${values.declare_scalars()}</%def>
<%def name="load_scalars()">${values.load_scalars()}</%def>
<%def name="setup_slices()">
${values.setup()}\
${load_groups()}\
</%def>

## The parameters of groups.
<%def name="load_groups()">
    .reg .b64 %rejected;
    .reg .b32 %group_rows, %group_columns;
    ld.param.u64 %rejected, [rejected];
    cvta.to.global.u64 %rejected, %rejected;
    ld.param.u32 %group_rows, [group_rows];  ld.param.u32 %group_columns, [group_columns];
${runs.load()}\
</%def>
<%def name="begin_slices()"></%def>
<%def name="store_slices()">
${store_sum(plan.groups)}\
% if plan.groups.mirror is not None:
    // ---- (j, i), from the sum of (i, j)
${store_sum(plan.groups.mirror)}\
% endif
</%def>

<%def name="store_sum(of)">
    {
${declare()}\
${begin_runs()}\
${add_vector("", of)}\
${runs.end(False)}\
    }
</%def>
