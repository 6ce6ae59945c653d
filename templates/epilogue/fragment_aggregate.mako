## Values of the results in wgmma's fragments are reduced into the elements of C that their keys select. A thread joins the
## values of each of its rows along X while the key along Y stays the same. A group of 8 columns along Y whose key is that of
## the column before it takes a few instructions. One piece of code handles all other groups: it ends the runs, joins rows of a
## warp with equal keys, and writes the runs by atomic instructions, unless they are the identity.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="fragments" file="/epilogue/fragment_values.mako"/>
<%namespace name="groups" file="/epilogue/aggregate.mako"/>
<%namespace name="runs" file="/epilogue/value_runs.mako"/>
<%def name="store_tiles(store_c, math, store_op)">
    {
    .reg .b32 %c_x, %c_y;
${groups.load_groups()}\
${declare()}\
${constants.mad("%c_x", "%wg", plan.mainloop.wg_rows, "%x0")}\
    mov.b32 %c_y, %y0;
${fragments.bounds()}\
% if plan.groups.sink.ordered:
${store_tile()}\
% else:
${reduce_tile(plan.groups)}\
  % if plan.groups.mirror is not None:
    // ---- (j, i), from the sums of (i, j)
${reduce_tile(plan.groups.mirror)}\
  % endif
% endif
    }
</%def>

<%def name="declare()">
<% g = plan.groups %>\
    .reg .b64 %group_addr, %group_index, %one;
    .reg .b32 %half<2>, %first, %c_row, %c_col;
    .reg .pred %take<4>, %within, %emit, %reject, %same, %is_nan, %plus, %minus, %first_lane;
    .reg .${g.ptx_type} %emitted, %received, %seen, %next;
    .reg .${g.bits_type} %bits, %seen_bits, %next_bits;
    ${g.run.declaration}
    ${g.x_keys.declaration}
    ${g.y_keys.declaration}
% for line in g.declarations:
    ${line}
% endfor
    mov.u64 %one, 1;
</%def>

## ---- sums in a fixed order: the values of all pairs are stored
<%def name="store_tile()">
${fragments.load_rows()}\
% for batch in plan.values.batches(range(len(plan.epilogue.column_groups))):
    {
${fragments.begin_batch(batch)}\
  % for n, j in enumerate(batch):
    {
    // columns past the end of C are skipped
    sub.s32 %tmp0, ${plan.scheduler.y_extent}, %c_y;
    setp.le.s32 %p, %tmp0, ${plan.epilogue.column_groups[j][0]};
    @%p bra.uni GROUP_DONE;
${store_group(n, j)}\
GROUP_DONE:
    }
  % endfor
    }
% endfor
</%def>

## The values of group j of columns, number n of the batch, or the identity in place of those that are not reduced.
<%def name="store_group(n, j)">
<% g, v = plan.groups, plan.values %>\
% for e, column in enumerate(plan.epilogue.column_groups[j]):
    setp.gt.s32 %in_y${e}, %y_rem, ${column};
% endfor
% for m in range(g.mi):
    {
${fragments.declare()}\
${fragments.compute(m, j, n, plan.epilogue.fragments[m, j])}\
  % for r, value in zip(g.results[m], v.tiles[0].all):
    and.pred %within, %in_x${r.row}, %in_y${r.e};
    % for line in g.take(r.q, "@%within "):
    ${line}
    % endfor
    @%reject red.global.add.u64 [%rejected], %one;
    mov.${g.ptx_type} ${r.run}, ${g.identity};
    @%take${r.q} mov.${g.ptx_type} ${r.run}, ${value};
${store_value(r, plan.epilogue.column_groups[j])}\
  % endfor
    }
% endfor
</%def>

## Stores a value, or the identity in its place, in the workspace [M][N].
<%def name="store_value(r, columns)">
<%
    g = plan.groups
    x, y = g.pair
%>\
${constants.add(x, "%first_x", plan.epilogue.row_offsets[r.row])}\
${constants.add(y, "%first_y", columns[r.e])}\
    mul.wide.u32 %group_index, %c_row, %N;
    cvt.u64.u32 %group_addr, %c_col;
    add.u64 %group_index, %group_index, %group_addr;
    mad.lo.u64 %group_addr, %group_index, ${g.bytes}, %ordered;
    @%within st.global.${g.type} [%group_addr], ${r.run};
</%def>

## ---- runs
<%def name="reduce_tile(g)">
    {
    // %run_key: the key along Y of %row_run; %steady: a bit of each group of columns that have the key of the column before them
    .reg .b32 %run_key, %steady, %columns, %group, %pick_y, %pick_rem, %taken;
    .reg .pred %bad_rows, %rows_same<${g.mi}>;
    ${g.row_run.declaration}
${load_x_keys(g)}\
${find_steady(g)}\
${fragments.load_rows(g.reduced)}\
% for r in g.row_run.all:
    mov.${g.ptx_type} ${r}, ${g.identity};
% endfor
    // columns of this tile, of 8 in a group
    sub.s32 %columns, ${plan.scheduler.y_extent}, %c_y;
    min.s32 %columns, %columns, ${g.columns_along_y};
${take_group(g, 0)}\
    mov.b32 %group, 0;
    .pragma "nounroll";
MIXED:
${end_run(g)}\
${next_group(g, 0, g.columns)}\
% for j in range(1, g.columns):
GROUP_${j}:
${take_group(g, j)}\
    and.b32 %tmp0, %steady, ${g.group_bits[j]};
    setp.eq.u32 %p, %tmp0, 0;
    mov.b32 %group, ${j};
    @%p bra.uni MIXED;
  % for results in g.results:
    % for r in results:
${join(g, r.row_run, r.run)}\
    % endfor
  % endfor
% endfor
LAST_GROUP:
    mov.b32 %group, ${g.columns};
    bra.uni MIXED;
GROUPS_DONE:
    }
</%def>

## The key of an axis at %index, if it is below the extent.
<%def name="read_key(g, axis, within, to)">
    {
    .reg .b64 %key_addr;
    .reg .b32 %key;
% for line in g.key_temporaries(axis, g.values.known):
    ${line}
% endfor
% for v in g.key_vectors(axis):
    .reg .${v.ptx_type} %${v.name}_at;
    mov.${v.ptx_type} %${v.name}_at, ${v.zero};
    mad.wide.u32 %key_addr, %index, ${v.bytes}, %${v.name};
    @${within} ld.global.nc.${v.access} %${v.name}_at, [%key_addr];
% endfor
% for line in g.key_lines(axis, g.values.known):
    ${line}
% endfor
    mov.b32 ${to}, %key;
    }
</%def>

## The keys of rows along X; %rows_same: those of a fragment of the warp are equal; %bad_rows: one of the warp is out of range.
<%def name="load_x_keys(g)">
    {
    .reg .b32 %index;
    .reg .pred %bad;
% for n, key in enumerate(g.x_keys.all):
${constants.add("%index", "%first_x", plan.epilogue.row_offsets[n])}\
${read_key(g, g.axes[0], f"%in_x{n}", key)}\
% endfor
    setp.ge.and.u32 %bad, ${g.x_keys[0, 0]}, %${g.extents[0]}, %in_x0;
% for n, key in list(enumerate(g.x_keys.all))[1:]:
    setp.ge.and.u32 %same, ${key}, %${g.extents[0]}, %in_x${n};
    or.pred %bad, %bad, %same;
% endfor
    vote.sync.any.pred %bad_rows, %bad, 0xffffffff;
% for m, rows in enumerate(plan.epilogue.fragment_rows):
    shfl.sync.idx.b32 %first, ${g.x_keys[m, 0]}, 0, 31, 0xffffffff;
  % for h, row in enumerate(rows):
    // rows past the end of C have no values
    setp.eq.u32 %within, %first, ${g.x_keys[m, h]};
    not.pred %bad, %in_x${row.number};
    or.pred %within, %within, %bad;
    % if h:
    and.pred %same, %same, %within;
    % else:
    mov.pred %same, %within;
    % endif
  % endfor
    vote.sync.all.pred %rows_same${m}, %same, 0xffffffff;
% endfor
    }
</%def>

## Each lane compares the keys of the columns of a group.
<%def name="find_steady(g)">
<%
    axis = g.axes[1]
%>\
    {
    .reg .b32 %index, %lane_key<8>, %lane_rem;
    shl.b32 %lane_rem, %lane, 3;
    add.u32 %index, %c_y, %lane_rem;
    sub.s32 %lane_rem, ${plan.scheduler.y_extent}, %index;
% for n in range(8):
    setp.gt.s32 %within, %lane_rem, ${n};
${read_key(g, axis, "%within", f"%lane_key{n}")}\
  % if n < 7:
    add.u32 %index, %index, 1;
  % endif
% endfor
    // the first run has the key of the first column
    shfl.sync.idx.b32 %run_key, %lane_key0, 0, 31, 0xffffffff;
    // all columns are within C
    mov.pred %same, %within;
    shfl.sync.up.b32 %first, %lane_key7, 1, 0, 0xffffffff;
% for n in range(8):
    setp.eq.and.u32 %same, %first, %lane_key${n}, %same;
% endfor
    setp.lt.and.u32 %same, %first, %${g.extents[1]}, %same;
    not.pred %within, %bad_rows;
    and.pred %same, %same, %within;
    vote.sync.ballot.b32 %steady, %same, 0xffffffff;
    }
</%def>

## The values of group j of columns, or the identity in place of those that are not reduced. Results past the end of C have values.
<%def name="take_group(g, j)">
<% v = g.reduced %>\
% for line in g.none_taken:
    ${line}
% endfor
    {
${fragments.begin_batch([j], v)}\
% for m in range(g.mi):
    {
${fragments.declare(v)}\
${fragments.compute(m, j, 0, plan.epilogue.fragments[m, j], v)}\
  % for r in g.results[m]:
    mov.${g.ptx_type} ${r.run}, ${v.tiles[0][r.q]};
    % if g.conditional:
    @!${v.tiles[1][r.q]} mov.${g.ptx_type} ${r.run}, ${g.identity};
    @${v.tiles[1][r.q]} or.b32 %taken, %taken, ${r.bit};
    % endif
  % endfor
    }
% endfor
    }
</%def>

## Takes group %group, whose columns may have other keys than the run: those with its key are joined to it; if there are others, it
## is written, and the key of the last column begins the next run. If the group is past the last one, writes the run.
<%def name="end_run(g)">
<%
    axis = g.axes[1]
%>\
    {
    .reg .b32 %index;
    .reg .pred %bad, %ends;
    shl.b32 %pick_rem, %group, 3;
    setp.ge.s32 %ends, %pick_rem, %columns;
    @%ends bra.uni WRITE_RUN;
    add.u32 %pick_y, %first_y, %pick_rem;
    sub.s32 %pick_rem, %y_rem, %pick_rem;
% for e in range(2):
    setp.gt.s32 %in_y${e}, %pick_rem, ${e};
${constants.add("%index", "%pick_y", e)}\
${read_key(g, axis, f"%in_y{e}", g.y_keys[e])}\
% endfor
% for results in g.results:
  % for r in results:
    @!%in_x${r.row} mov.${g.ptx_type} ${r.run}, ${g.identity};
    @!%in_y${r.e} mov.${g.ptx_type} ${r.run}, ${g.identity};
  % endfor
% endfor
${reject(g)}\
    // ---- columns with the key of the run
${take_columns(g)}\
    setp.ne.and.u32 %bad, ${g.y_keys[0]}, %run_key, %in_y0;
    setp.ne.and.u32 %same, ${g.y_keys[1]}, %run_key, %in_y1;
    or.pred %bad, %bad, %same;
    vote.sync.any.pred %bad, %bad, 0xffffffff;
    @!%bad bra.uni RUN_CONTINUES;
WRITE_RUN:
${write_run(g)}\
    @%ends bra.uni GROUPS_DONE;
    // ---- columns with the key of the last one
    shfl.sync.idx.b32 %run_key, ${g.y_keys[1]}, 3, 31, 0xffffffff;
${take_columns(g)}\
    // ---- columns with other keys
    setp.ne.u32 %bad, 0, 0;
% for r in g.run.all:
    ${g.differs} %emit, ${r}, ${g.identity};
    or.pred %bad, %bad, %emit;
% endfor
    vote.sync.any.pred %bad, %bad, 0xffffffff;
    @!%bad bra.uni RUN_CONTINUES;
${write_others(g)}\
RUN_CONTINUES:
    }
</%def>

## Counts the pairs with keys out of range, whose values become the identity.
<%def name="reject(g)">
<% x_groups, y_groups = g.extents %>\
    {
    setp.ge.and.u32 %bad, ${g.y_keys[0]}, %${y_groups}, %in_y0;
    setp.ge.and.u32 %same, ${g.y_keys[1]}, %${y_groups}, %in_y1;
    or.pred %bad, %bad, %same;
    or.pred %bad, %bad, %bad_rows;
    vote.sync.any.pred %bad, %bad, 0xffffffff;
    @!%bad bra.uni IN_RANGE;
% for results in g.results:
  % for r in results:
    setp.ge.u32 %reject, ${r.x_key}, %${x_groups};
    setp.ge.or.u32 %reject, ${r.y_key}, %${y_groups}, %reject;
    and.pred %reject, %reject, %in_x${r.row};
    and.pred %reject, %reject, %in_y${r.e};
    @%reject mov.${g.ptx_type} ${r.run}, ${g.identity};
    % if g.conditional:
    and.b32 %first, %taken, ${r.bit};
    setp.ne.and.u32 %reject, %first, 0, %reject;
    % endif
    @%reject red.global.add.u64 [%rejected], %one;
  % endfor
% endfor
IN_RANGE:
    }
</%def>

## Joins the columns with the key of the run to it.
<%def name="take_columns(g)">
% for e in range(2):
    setp.eq.u32 %same, ${g.y_keys[e]}, %run_key;
  % for results in g.results:
    % for r in results[e::2]:
    mov.${g.ptx_type} %received, ${g.identity};
    @%same mov.${g.ptx_type} %received, ${r.run};
${join(g, r.row_run, "%received")}\
    @%same mov.${g.ptx_type} ${r.run}, ${g.identity};
    % endfor
  % endfor
% endfor
</%def>

## Writes what rows have of the columns with the key of the run.
<%def name="write_run(g)">
    and.b32 %first, %lane, 3;
% for m in range(g.mi):
    {
  % for h, row in enumerate(plan.epilogue.fragment_rows[m]):
    @!%in_x${row.number} mov.${g.ptx_type} ${g.row_run[m, h]}, ${g.identity};
  % endfor
    @!%rows_same${m} bra.uni ROWS_DIFFER;
    // all rows of the warp have one key
${join(g, g.row_run[m, 0], g.row_run[m, 1])}\
  % for line in g.join_warp(g.row_run[m, 0]):
    ${line}
  % endfor
    setp.eq.u32 %first_lane, %lane, 0;
${emit(g, g.row_run[m, 0], g.x_keys[m, 0], "%run_key", "%first_lane")}\
    bra.uni RUN_WRITTEN;
ROWS_DIFFER:
    // four lanes have the columns of a row
    setp.eq.u32 %first_lane, %first, 0;
  % for h in range(2):
    % for line in g.join_lanes(g.row_run[m, h], (1, 2)):
    ${line}
    % endfor
${emit(g, g.row_run[m, h], g.x_keys[m, h], "%run_key", "%first_lane")}\
  % endfor
RUN_WRITTEN:
  % for h in range(2):
    mov.${g.ptx_type} ${g.row_run[m, h]}, ${g.identity};
  % endfor
    }
% endfor
</%def>

## Writes the values of columns with other keys: where all rows of a fragment of the warp have one key, lanes join them.
<%def name="write_others(g)">
% for m in range(g.mi):
    {
    @!%rows_same${m} bra.uni ALL_DIFFER;
    // eight lanes have the rows of a column
    setp.lt.u32 %first_lane, %lane, 4;
  % for r, lower in zip(g.results[m][:2], g.results[m][2:]):
${join(g, r.run, lower.run)}\
    % for line in g.join_lanes(r.run, (4, 8, 16)):
    ${line}
    % endfor
${emit(g, r.run, r.x_key, r.y_key, "%first_lane")}\
  % endfor
    bra.uni OTHERS_WRITTEN;
ALL_DIFFER:
  % for r in g.results[m]:
${emit(g, r.run, r.x_key, r.y_key, "")}\
  % endfor
OTHERS_WRITTEN:
    }
% endfor
</%def>

## Branches to the code of the group after %group, one of ``first`` to ``end`` − 1.
<%def name="next_group(g, first, end)">
% if (first, end) not in g.halves:
    bra.uni ${g.group_labels[end]};
% else:
<% middle = g.halves[first, end] %>\
    {
    setp.ge.u32 %p, %group, ${middle};
    @%p bra.uni UPPER;
${next_group(g, first, middle)}\
UPPER:
${next_group(g, middle, end)}\
    }
% endif
</%def>

<%def name="join(g, into, other)">
% for line in g.join(into, other):
    ${line}
% endfor
</%def>

## Reduces a value in memory, where a lane has one that changes its element. Keys out of range have no values.
<%def name="emit(g, value, x_key, y_key, lanes)">
    {
    ${g.differs} %emit, ${value}, ${g.identity};
% if lanes:
    and.pred %emit, %emit, ${lanes};
% endif
    mov.${g.ptx_type} %emitted, ${value};
% if g.swaps_keys:
    mul.wide.u32 %group_index, ${y_key}, %group_columns;
    cvt.u64.u32 %group_addr, ${x_key};
% else:
    mul.wide.u32 %group_index, ${x_key}, %group_columns;
    cvt.u64.u32 %group_addr, ${y_key};
% endif
    add.u64 %group_index, %group_index, %group_addr;
    mad.lo.u64 %group_addr, %group_index, ${g.bytes}, %C;
${runs.emit()}\
    }
</%def>
