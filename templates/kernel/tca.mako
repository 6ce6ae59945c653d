## TCA-SpMM: the nonzeros of a row, filled in by columns, are the right operand of a matrix instruction. Columns of B, gathered
## by index and transposed in shared memory, are the left operand. Sums of diagonals of the product are elements of C.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="convert" file="/ptx/convert.mako"/>\
<% x, op = plan.mainloop, plan.arithmetic %>\
    .reg .b64 %indptr, %indices, %values, %B, %C, %row_id, %place_of_warp, %num_warps;
    .reg .b64 %ptr, %ptr_index, %ptr_value, %from_column, %ptr_row, %ptr_c, %pitch64;
    .reg .b32 %N, %ldc, %pitch, %thread, %lane, %warp, %block, %first_row, %row, %id, %warps, %begin, %end, %length;
    .reg .b32 %left, %pair, %pair1, %column, %tile, %tile_step, %done, %store_at, %load_at, %scratch_at, %fragment_at;
    .reg .b32 %sums_at, %out_at, %tmp0, %tmp1, %row_barrier, %sparse, %word0, %word1, %gathered;
    .reg .pred %p, %has_row, %reads_c, %has0, %has1, %loads0, %loads1, %odd, %writes, %flushes, %stores_scratch;
    .reg .${op.type} %alpha, %beta;

% for name in plan.problem.arrays:
    ld.param.u64 %${name}, [${name}];  cvta.to.global.u64 %${name}, %${name};
% endfor
    ld.param.u64 %row_id, [row_id_for_each_warp];  cvta.to.global.u64 %row_id, %row_id;
    ld.param.u64 %place_of_warp, [warpid_within_row];  cvta.to.global.u64 %place_of_warp, %place_of_warp;
    ld.param.u64 %num_warps, [num_warps_per_row];  cvta.to.global.u64 %num_warps, %num_warps;
    ld.param.u32 %N, [N];  ld.param.u32 %pitch, [ldb];  ld.param.u32 %ldc, [ldc];
    ld.param.${op.type} %alpha, [alpha];  ld.param.${op.type} %beta, [beta];
${ptx.banner("the row of the warp; the length of the block's first row chooses the function")}\
    mov.u32 %block, %ctaid.x;
    mov.u32 %thread, %tid.x;
    and.b32 %lane, %thread, 31;
    shr.u32 %warp, %thread, 5;
    mul.wide.u32 %ptr, %block, ${x.warps_bytes};
    add.u64 %ptr_row, %row_id, %ptr;
    ld.global.nc.u32 %first_row, [%ptr_row];
    mad.wide.u32 %ptr_row, %warp, 4, %ptr_row;
    ld.global.nc.u32 %row, [%ptr_row];
    add.u64 %ptr_row, %place_of_warp, %ptr;
    mad.wide.u32 %ptr_row, %warp, 4, %ptr_row;
    ld.global.nc.u32 %id, [%ptr_row];
    mad.wide.u32 %ptr, %first_row, 4, %num_warps;
    ld.global.nc.u32 %warps, [%ptr];
    mad.wide.u32 %ptr, %first_row, 4, %indptr;
    ld.global.nc.u32 %begin, [%ptr];
    ld.global.nc.u32 %end, [%ptr+4];
    sub.u32 %length, %end, %begin;
    setp.ge.s32 %has_row, %row, 0;
    setp.neu.${op.type} %reads_c, %beta, ${op.zero};
    mul.lo.u32 %pitch, %pitch, 2;
    mul.wide.u32 %pitch64, %row, %ldc;
    mad.lo.u64 %ptr_row, %pitch64, 2, %C;
    mov.b32 %tile, 0;
    setp.eq.u32 %p, %length, 0;
    @%p bra EMPTY_ROWS;
    setp.gt.u32 %p, %length, ${x.nonzeros};
    @%p bra MULTIBLOCK_PER_ROW;
${ptx.banner("multirow_per_block: the nonzeros of the warp's row")}\
    mov.b32 %length, 0;
    mad.wide.u32 %ptr, %row, 4, %indptr;
    @%has_row ld.global.nc.u32 %begin, [%ptr];
    @%has_row ld.global.nc.u32 %end, [%ptr+4];
    @%has_row sub.u32 %length, %end, %begin;
${lane_numbers()}\
    setp.lt.u32 %has0, %pair, %length;
    add.u32 %pair1, %pair, 1;
    setp.lt.u32 %has1, %pair1, %length;
${row_pointers()}\
${load_nonzeros()}\
${row_addresses()}\
    sub.u32 %tmp1, %warp, %id; // the first warp of the row
    mov.b32 %scratch_at, smem;
    mad.lo.u32 %store_at, %tmp1, ${x.buffer_bytes}, %scratch_at;
    mad.lo.u32 %sums_at, %tmp1, ${x.sum_bytes}, %scratch_at;
    mad.lo.u32 %scratch_at, %tmp1, ${x.scratch_bytes}, %scratch_at;
${store_nonzeros()}\
    setp.eq.u32 %flushes, %id, 0;
    and.pred %flushes, %flushes, %has_row;
    setp.lt.and.u32 %flushes, %lane, 8, %flushes;
% for share in x.shares[:-1]:
    setp.eq.u32 %p, %warps, ${share.warps};
    @%p bra ROWS_OF_${share.warps};
% endfor
% for share in reversed(x.shares):
  % if share.warps > 1:
ROWS_OF_${share.warps}:
  % endif
${rows_of(share)}\
% endfor
${multiblock_per_row()}\
${empty_rows()}\
DONE:
<%def name="after_entry()"></%def>\

## The nonzeros and the columns of B that a lane gathers: %pair and the next one, 8 columns.
<%def name="lane_numbers()">
<% x = plan.mainloop %>\
    shr.u32 %tmp0, %lane, 3;
    shl.b32 %tmp0, %tmp0, 1;
    mad.lo.u32 %pair, %id, ${x.part}, %tmp0;
    and.b32 %column, %lane, 7;
    setp.eq.u32 %stores_scratch, %column, 0;
    shl.b32 %column, %column, 3;
    mad.wide.u32 %from_column, %column, 2, %B;
    setp.eq.${plan.arithmetic.type} %p, %alpha, ${plan.arithmetic.zero};
    @%p mov.b32 %length, 0; // A and B are not read
</%def>

## The lane's first nonzeros of the row.
<%def name="row_pointers()">
    add.u32 %tmp0, %begin, %pair;
    mad.wide.u32 %ptr_index, %tmp0, 4, %indices;
    mad.wide.u32 %ptr_value, %tmp0, 2, %values;
</%def>

## Two nonzeros and their columns. Positions after the last nonzero load nothing.
<%def name="load_nonzeros()">
<% x = plan.mainloop %>\
% for h, index_offset, value_offset in ((0, 0, 0), (1, 4, 2)):
    mov.b32 ${x.index[h]}, 0;
    mov.b16 ${x.value[h]}, 0;
    @%has${h} ld.global.nc.u32 ${x.index[h]}, [%ptr_index+${index_offset}];
    @%has${h} ld.global.nc.b16 ${x.value[h]}, [%ptr_value+${value_offset}];
% endfor
</%def>

## The rows of B at the columns of the nonzeros.
<%def name="row_addresses()">
<% x = plan.mainloop %>\
% for h in (0, 1):
    mad.wide.u32 ${x.from_b[h]}, ${x.index[h]}, %pitch, %from_column;
% endfor
</%def>

## The nonzeros of a lane from %done on.
<%def name="load_part()">
    add.u32 %tmp0, %done, %pair;
    add.u32 %pair1, %tmp0, 1;
    setp.lt.u32 %has0, %tmp0, %length;
    setp.lt.u32 %has1, %pair1, %length;
${load_nonzeros()}\
</%def>

## The two nonzeros to the scratch of the row.
<%def name="store_nonzeros()">
<% x = plan.mainloop %>\
    mov.b32 %sparse, ${x.value[:]};
    mad.lo.u32 %tmp0, %pair, 2, %scratch_at;
    @%stores_scratch st.shared.b32 [%tmp0], %sparse;
</%def>

## 8 columns of two rows of B, from column %gathered; those after the last are zero.
<%def name="gather()">
<% x = plan.mainloop %>\
% for r in x.loaded.all:
    mov.${x.loaded.ptx_type} ${r}, 0;
% endfor
% for j, (at, column, offset) in enumerate(x.accesses):
  % if j:
    add.u32 ${at}, %gathered, ${column};
  % endif
  % for h in (0, 1):
    setp.lt.and.u32 %loads${h}, ${at}, %N, %has${h};
    @%loads${h} ld.global.nc.${x.access} ${x.loaded[h, j, :]}, [${x.from_b[h]}+${offset}];
  % endfor
% endfor
</%def>

## The gathered elements, transposed: a word has those of two nonzeros in one column.
<%def name="store_columns(share)">
<% x = plan.mainloop %>\
% if x.vec == 1:
  % for j, (offset,) in enumerate(x.column_offsets[share]):
    mov.b32 %word0, {${x.loaded[0, j, 0]}, ${x.loaded[1, j, 0]}};
    st.shared.b32 [%store_at+${offset}], %word0;
  % endfor
% else:
  % for first, second, (offset0, offset1) in zip(x.loaded_words[0], x.loaded_words[1], x.column_offsets[share]):
    prmt.b32 %word0, ${first}, ${second}, 0x5410;
    prmt.b32 %word1, ${first}, ${second}, 0x7632;
    st.shared.b32 [%store_at+${offset0}], %word0;
    st.shared.b32 [%store_at+${offset1}], %word1;
  % endfor
% endif
</%def>

## Adds the products of every fragment to its accumulators.
<%def name="multiply(share)">
<% x = plan.mainloop %>\
% for q, (offset0, offset1) in enumerate(share.fragments):
    ld.shared.b32 %word0, [%load_at+${offset0}];
    ld.shared.b32 %word1, [%load_at+${offset1}];
    ${x.instruction} ${x.sums[q, :]}, {%word0, %word1}, {%sparse}, ${x.sums[q, :]};
% endfor
</%def>

<%def name="clear()">
% for r in plan.mainloop.sums.all:
    mov.f32 ${r}, ${plan.arithmetic.zero};
% endfor
</%def>

## The sums of diagonals of all parts of a fragment, to the sums in shared memory.
<%def name="add_diagonals(share)">
<% x = plan.mainloop %>\
% for diagonal, even, odd in x.fragment_sums:
  % if share.warps == 1:
    mov.f32 ${diagonal}, ${even};
  % else:
    selp.f32 ${diagonal}, ${odd}, ${even}, %odd;
  % endif
% endfor
% for distance in share.distances:
  % for moved, diagonal in zip(x.moved.all, x.diagonal.all):
    shfl.sync.down.b32 ${moved}, ${diagonal}, ${distance}, 31, 0xffffffff;
  % endfor
  % for moved, diagonal in zip(x.moved.all, x.diagonal.all):
    add.rn.f32 ${diagonal}, ${diagonal}, ${moved};
  % endfor
% endfor
% for diagonal, offset in zip(x.diagonal.all, share.sums):
    @%writes st.shared.f32 [%out_at+${offset}], ${diagonal};
% endfor
</%def>

## The places of a lane in the buffer and in the sums of its row. %store_at, %sums_at: the row's first ones.
<%def name="places(share)">
<% x = plan.mainloop %>\
    mad.lo.u32 %load_at, %lane, 4, %store_at;
    mad.lo.u32 %load_at, %id, 256, %load_at;
% if share.shift:
    shr.u32 %tmp0, %id, ${share.group_shift};
    mad.lo.u32 %load_at, %tmp0, 16, %load_at;
% endif
    and.b32 %tmp0, %lane, 7;
    mad.lo.u32 %store_at, %tmp0, ${share.lane_bytes}, %store_at;
    mad.lo.u32 %store_at, %pair, 2, %store_at;
    shr.u32 %tmp0, %lane, ${share.column_shift};
    mad.lo.u32 %out_at, %id, ${share.columns}, %tmp0;
    mad.lo.u32 %out_at, %out_at, 4, %sums_at;
    and.b32 %tmp0, %lane, ${share.stride_mask};
    setp.eq.u32 %writes, %tmp0, 0;
    and.b32 %tmp0, %lane, 4;
    setp.ne.u32 %odd, %tmp0, 0;
</%def>

## Rows of up to 8 * w nonzeros with w warps each: the sparse operand is loaded once for all tiles of columns.
<%def name="rows_of(share)">
<% x = plan.mainloop %>\
${ptx.banner(share.title)}\
% if x.row_barriers:
    @!%has_row bra DONE;
    shr.u32 %row_barrier, %warp, ${share.shift};
    add.u32 %row_barrier, %row_barrier, 1;
% endif
${places(share)}\
    // ---- wait: the nonzeros of all rows are in shared memory
    ${x.barriers[share]};
    mov.b32 %sparse, 0;
    mad.lo.u32 %tmp0, %lane, 4, %scratch_at;
    setp.lt.and.u32 %p, %lane, ${share.words}, %has_row;
    @%p ld.shared.b32 %sparse, [%tmp0];
TILE_OF_${share.warps}:
    @!%has_row bra GATHERED_${share.warps};
    add.u32 %gathered, %tile, %column;
${gather()}\
${store_columns(share)}\
GATHERED_${share.warps}:
    // ---- wait: the columns of this tile are in shared memory
    ${x.barriers[share]};
    @!%has_row bra MULTIPLIED_${share.warps};
${clear()}\
${multiply(share)}\
${add_diagonals(share)}\
MULTIPLIED_${share.warps}:
    // ---- wait: the sums of this tile are in shared memory
    ${x.barriers[share]};
${flush(f"FLUSHED_{share.warps}")}\
% for h in (0, 1):
    add.u64 ${x.from_b[h]}, ${x.from_b[h]}, ${x.columns_bytes};
% endfor
    add.u32 %tile, %tile, ${x.columns};
    setp.lt.u32 %p, %tile, %N;
    @%p bra TILE_OF_${share.warps};
    bra DONE;
</%def>

## A long row: its blocks divide its tiles of columns; accumulators keep the sums over all parts of 64 nonzeros.
<%def name="multiblock_per_row()">
<% x = plan.mainloop; share = x.shares[0] %>\
${ptx.banner("multiblock_per_row: each block has some tiles of columns of one row")}\
MULTIBLOCK_PER_ROW:
    shr.u32 %tmp0, %id, ${share.shift};
    mul.lo.u32 %tile, %tmp0, ${x.columns};
    mul.lo.u32 %tile_step, %warps, ${x.block_columns};
    mov.b32 %id, %warp;
${lane_numbers()}\
    mov.b32 %scratch_at, smem;
    mov.b32 %store_at, %scratch_at;
    mov.b32 %sums_at, %scratch_at;
${places(share)}\
    mad.lo.u32 %fragment_at, %lane, 4, %scratch_at;
    setp.lt.u32 %flushes, %thread, 8;
LONG_TILE:
    mov.b32 %done, 0;
    add.u32 %gathered, %tile, %column;
    mad.wide.u32 %from_column, %gathered, 2, %B;
${row_pointers()}\
${load_part()}\
${clear()}\
${ptx.banner("loop over parts of 64 nonzeros; those of the next part are loaded while columns are")}\
LONG_LOOP:
${row_addresses()}\
${store_nonzeros()}\
${gather()}\
    add.u64 %ptr_index, %ptr_index, ${x.index_bytes};
    add.u64 %ptr_value, %ptr_value, ${x.value_bytes};
    add.u32 %done, %done, ${x.nonzeros};
${load_part()}\
${store_columns(share)}\
    // ---- wait: 64 nonzeros and their columns are in shared memory
    bar.sync 0;
    ld.shared.b32 %sparse, [%fragment_at];
${multiply(share)}\
    // ---- wait: all warps have read them
    bar.sync 0;
    setp.lt.u32 %p, %done, %length;
    @%p bra LONG_LOOP;
${ptx.banner("sums of diagonals, once per tile")}\
${add_diagonals(share)}\
    // ---- wait: the sums of this tile are in shared memory
    bar.sync 0;
${flush("LONG_FLUSHED")}\
    add.u32 %tile, %tile, %tile_step;
    setp.lt.u32 %p, %tile, %N;
    @%p bra LONG_TILE;
    bra DONE;
</%def>

## Eight lanes store the sums of a tile of columns: C = alpha * sums + beta * C.
<%def name="flush(label)">
<% x, op = plan.mainloop, plan.arithmetic %>\
    @!%flushes bra ${label};
    mad.lo.u32 %tmp1, %lane, 8, %tile;
    mad.wide.u32 %ptr_c, %tmp1, 2, %ptr_row;
    mad.lo.u32 %tmp0, %lane, 32, %sums_at;
% for registers, offset in x.result_loads:
    ld.shared.v4.f32 ${registers}, [%tmp0+${offset}];
% endfor
% for r in x.result.all:
    ${op.mul} ${r}, ${r}, %alpha;
% endfor
${store_c(label)}\
${label}:
</%def>

## 8 elements of C from column %tmp1 at %ptr_c: %result + beta * C.
<%def name="store_c(label)">
<% x, op = plan.mainloop, plan.arithmetic %>\
% for j, (_, _, offset) in enumerate(x.accesses):
  % if j:
    add.u32 %tmp1, %tmp1, ${x.vec};
  % endif
    setp.lt.u32 %p, %tmp1, %N;
    @!%p bra ${label};
    @!%reads_c bra ${label}_STORE_${j};
    ld.global.${x.access} ${x.stored[j, :]}, [%ptr_c+${offset}];
  % if x.vec == 1:
${convert.widen(x.ptx_type, x.moved[0, 0], x.stored[j, 0])}\
    ${op.fma} ${x.result[j]}, ${x.moved[0, 0]}, %beta, ${x.result[j]};
  % else:
    % for word, low, high in x.stored_words[j]:
${convert.widen_pair(x.ptx_type, x.moved[0, 0], x.moved[0, 1], word, x.half.all)}\
    ${op.fma} ${low}, ${x.moved[0, 0]}, %beta, ${low};
    ${op.fma} ${high}, ${x.moved[0, 1]}, %beta, ${high};
    % endfor
  % endif
${label}_STORE_${j}:
  % for line in x.roundings[j]:
    ${line}
  % endfor
    st.global.${x.access} [%ptr_c+${offset}], ${x.stored[j, :]};
% endfor
</%def>

## Rows without nonzeros: C = beta * C, a warp per row.
<%def name="empty_rows()">
<% x = plan.mainloop %>\
${ptx.banner("empty rows: a warp sets each")}\
EMPTY_ROWS:
    @!%has_row bra DONE;
    shl.b32 %column, %lane, 3;
EMPTY_LOOP:
    setp.ge.u32 %p, %column, %N;
    @%p bra DONE;
    mov.b32 %tmp1, %column;
    mad.wide.u32 %ptr_c, %column, 2, %ptr_row;
% for r in x.result.all:
    mov.f32 ${r}, ${plan.arithmetic.zero};
% endfor
${store_c("EMPTY_SET")}\
EMPTY_SET:
    add.u32 %column, %column, 256;
    bra EMPTY_LOOP;
</%def>
