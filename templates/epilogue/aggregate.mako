## Values of the results are reduced into the elements of C that their keys select. Each thread has some columns of a band of
## adjacent rows of the block's tile. It keeps a run for each column, the value of pairs with equal keys, and writes a run when
## its keys change: by atomic instructions, after runs of adjacent columns and of the lanes of a warp that have equal keys are
## joined.
<%namespace name="values" file="/epilogue/result_values.mako"/>
<%namespace name="walk" file="/epilogue/tile_walk.mako"/>
<%def name="prepare()"></%def>
<%def name="skip_tile()">
% if not plan.groups.sink.ordered:
${values.skip_tile()}\
% endif
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
${end_runs(True)}\
% endfor
    }
</%def>

## The registers of runs, in the scope of what follows. %open: a run has a value.
<%def name="declare()">
    .reg .b64 %group_addr, %group_index, %one;
    .reg .b32 %run_row<${plan.c.vec}>, %run_column<${plan.c.vec}>, %half<2>;
    .reg .pred %open<${plan.c.vec}>, %take<${plan.c.vec}>, %write<${plan.c.vec}>, %reject, %same, %is_nan, %emit, %plus, %minus;
    .reg .${plan.groups.kind} %emitted, %seen, %next;
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
    mov.${plan.groups.kind} ${plan.groups.run[q]}, ${plan.groups.identity};
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
% if plan.groups.sink.ordered:
${store_values(guard)}\
% else:
${extend_runs(of.values)}\
% endif
    }
</%def>

<%def name="extend_runs(of)">
<% row, column = of.tiles[1], of.tiles[2] %>\
% for q in range(plan.c.vec):
    // %write: the run ends before this pair
    setp.ne.u32 %same, ${row[q]}, %run_row${q};
    setp.ne.or.u32 %same, ${column[q]}, %run_column${q}, %same;
    and.pred %write${q}, %take${q}, %open${q};
    and.pred %write${q}, %write${q}, %same;
    not.pred %same, %write${q};
    and.pred %open${q}, %open${q}, %same;
% endfor
${write_runs(False)}\
% for q in range(plan.c.vec):
    @!%open${q} mov.${plan.groups.kind} ${plan.groups.run[q]}, ${plan.groups.identity};
  % for line in plan.groups.join(plan.groups.run[q], of.of(0)[q], f"@%take{q} "):
    ${line}
  % endfor
    @%take${q} mov.b32 %run_row${q}, ${row[q]};
    @%take${q} mov.b32 %run_column${q}, ${column[q]};
    or.pred %open${q}, %open${q}, %take${q};
% endfor
</%def>

<%def name="end_runs(whole_warps)">
% if not plan.groups.sink.ordered:
  % for q in range(plan.c.vec):
    and.pred %write${q}, %open${q}, %open${q};
  % endfor
${write_runs(whole_warps)}\
% endif
</%def>

## Writes the runs with %write: those of equal keys in adjacent columns at once.
<%def name="write_runs(whole_warps)">
% for p, q in zip(range(plan.c.vec), range(1, plan.c.vec)):
    setp.eq.u32 %same, %run_row${p}, %run_row${q};
    setp.eq.and.u32 %same, %run_column${p}, %run_column${q}, %same;
    and.pred %same, %same, %write${p};
    and.pred %same, %same, %write${q};
  % for line in plan.groups.join(plan.groups.run[q], plan.groups.run[p], "@%same "):
    ${line}
  % endfor
    not.pred %same, %same;
    and.pred %write${p}, %write${p}, %same;
% endfor
% for q in range(plan.c.vec):
    mov.${plan.groups.kind} %emitted, ${plan.groups.run[q]};
    and.pred %emit, %write${q}, %write${q};
  % if whole_warps:
${join_warp(q)}\
  % endif
    mul.wide.u32 %group_index, %run_row${q}, %group_columns;
    cvt.u64.u32 %group_addr, %run_column${q};
    add.u64 %group_index, %group_index, %group_addr;
    mad.lo.u64 %group_addr, %group_index, ${plan.groups.bytes}, %C;
${emit()}\
% endfor
</%def>

## If all lanes of the warp have the same keys, the first one writes for all.
<%def name="join_warp(q)">
    {
    .reg .b32 %first;
    .reg .${plan.groups.kind} %received;
    shfl.sync.idx.b32 %first, %run_row${q}, 0, 31, 0xffffffff;
    setp.eq.and.u32 %same, %first, %run_row${q}, %emit;
    shfl.sync.idx.b32 %first, %run_column${q}, 0, 31, 0xffffffff;
    setp.eq.and.u32 %same, %first, %run_column${q}, %same;
    vote.sync.all.pred %same, %same, 0xffffffff;
    @!%same bra.uni WARP_JOINED;
% for distance in (16, 8, 4, 2, 1):
  % for line in plan.groups.exchange("%received", "%emitted", distance):
    ${line}
  % endfor
  % for line in plan.groups.join("%emitted", "%received"):
    ${line}
  % endfor
% endfor
    and.b32 %first, %thread, 31;
    setp.eq.u32 %emit, %first, 0;
WARP_JOINED:
    }
</%def>

## Reduces %emitted in memory.
<%def name="emit()">
% if not plan.groups.atomics:
    {
    @!%emit bra WRITTEN;
    ld.relaxed.gpu.global.${plan.groups.bits_type} %seen_bits, [%group_addr];
TRY:
    mov.${plan.groups.bits_type} %seen, %seen_bits;
    mov.${plan.groups.bits_type} %bits, %seen_bits;
    mov.${plan.groups.kind} %next, %seen;
  % for line in plan.groups.join("%next", "%emitted"):
    ${line}
  % endfor
    mov.${plan.groups.bits_type} %next_bits, %next;
    atom.relaxed.gpu.global.cas.${plan.groups.bits_type} %seen_bits, [%group_addr], %bits, %next_bits;
    setp.ne.${plan.groups.bits_type} %same, %seen_bits, %bits;
    @%same bra TRY;
WRITTEN:
    }
% else:
  % if plan.groups.splits_sign:
    mov.${plan.groups.bits_type} %bits, %emitted;
    setp.nan.${plan.groups.type} %is_nan, %emitted, %emitted;
    @%is_nan mov.${plan.groups.bits_type} %bits, ${plan.groups.nan};
    setp.ge.s${plan.groups.bits} %same, %bits, 0;
    and.pred %plus, %emit, %same;
    not.pred %same, %same;
    and.pred %minus, %emit, %same;
  % endif
  % for guard, instruction in plan.groups.atomics:
    @${guard} red.relaxed.gpu.global.${instruction} [%group_addr], ${plan.groups.added};
  % endfor
% endif
</%def>

## Stores the values, or the identity in their place, in the workspace [M][N].
<%def name="store_values(guard)">
    mul.wide.u32 %group_index, %c_row, %N;
    cvt.u64.u32 %group_addr, %c_col;
    add.u64 %group_index, %group_index, %group_addr;
    mad.lo.u64 %group_addr, %group_index, ${plan.groups.bytes}, %ordered;
% for q, (value, offset) in enumerate(zip(plan.values.tiles[0].all, plan.groups.offsets)):
    mov.${plan.groups.kind} %emitted, ${plan.groups.identity};
    @%take${q} mov.${plan.groups.kind} %emitted, ${value};
    ${guard}st.global.${plan.groups.type} [%group_addr+${offset}], %emitted;
% endfor
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
% if plan.groups.sink.ordered:
    .reg .b64 %ordered;
    ld.param.u64 %ordered, [sink_offset];
    add.u64 %ordered, %ordered, %workspace;
% endif
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
${end_runs(False)}\
    }
</%def>
