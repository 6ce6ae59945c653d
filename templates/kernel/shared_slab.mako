## Products of a sparse matrix in CSR: a block copies tiles of a slab of columns of B to shared memory. Each warp multiplies
## rows of A by these tiles; it stages the nonzeros of a row in shared memory.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="convert" file="/ptx/convert.mako"/>\
<%namespace name="tiles" file="/${context['plan'].mainloop.tiles}"/>\
<% x, copy, op = plan.mainloop, plan.copy, plan.arithmetic %>\
    .reg .b64 %indptr, %indices, %values, %B, %C, %ptr_index, %ptr_value, %ptr_bounds, %ptr_c;
    .reg .b64 %from_b, %from_c, %copy_pitch, %offset64;
    .reg .b32 %M, %N, %K, %ldb, %ldc, %thread, %lane, %warp, %first_row, %rows, %row, %next_row, %tmp0;
    .reg .b32 %smem, %tile_at, %next_tile_at, %copy_to, %copy_row, %copy_bytes, %tile_row, %row_base;
    .reg .b32 %begin, %end, %next_begin, %next_end, %left, %nonzero, %rounds, %zeros, %index<${x.chunks}>, %stage_to, %staged, %from_staged;
    .reg .b32 %lane_bytes, %column, %place_staged<${x.chunks}>;
    .reg .${x.scalar} %loaded_value<${x.chunks}>;
    .reg .pred %p, %inside, %more, %reads_c, %multiplies, %has_row, %has_next, %copies<${copy.unrolled}>;
    .reg .pred %upper<${max(len(x.exchanges), 1)}>, %stores<${len(x.c_accesses)}>;
    .reg .${op.type} %alpha, %beta, %value_staged<${x.chunks}>;
% if x.splits_moved:
    .reg .b32 %half_low, %half_high;
% endif
${tiles.registers()}\

% for name in plan.problem.arrays:
    ld.param.u64 %${name}, [${name}];  cvta.to.global.u64 %${name}, %${name};
% endfor
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];  ld.param.u32 %K, [K];  ld.param.u32 %ldb, [ldb];  ld.param.u32 %ldc, [ldc];
    ld.param.${op.type} %alpha, [alpha];  ld.param.${op.type} %beta, [beta];
    setp.neu.${op.type} %multiplies, %alpha, ${op.zero};
    @!%multiplies mov.b32 %K, 0; // A and B are not read
${tiles.parameters()}\
${ptx.banner("thread to rows of C, and to columns of the slab")}\
    mov.u32 %smem, smem;
    mov.u32 %thread, %tid.x;
    shr.u32 %warp, %thread, 5;
    and.b32 %lane, %thread, 31;
    mov.u32 %first_row, %ctaid.x;
    mul.lo.u32 %first_row, %first_row, ${x.c_rows};
    sub.u32 %rows, %M, %first_row;
    min.u32 %rows, %rows, ${x.c_rows};
    mov.u32 %column, %ctaid.y;
    mul.lo.u32 %column, %column, ${x.slab};
    and.b32 %lane_bytes, %lane, ${x.lane_mask};
    shl.b32 %lane_bytes, %lane_bytes, 4;
    mad.lo.u32 %stage_to, %warp, ${x.warp_staged_bytes}, %smem;
    mad.lo.u32 %stage_to, %lane, ${x.staged}, %stage_to;
    add.u32 %stage_to, %stage_to, ${x.staged_at};
    shr.u32 %tmp0, %lane, ${x.log2_lanes};
    mad.lo.u32 %staged, %warp, ${x.warp_staged_bytes}, %smem;
    mad.lo.u32 %staged, %tmp0, ${x.read_bytes}, %staged;
    add.u32 %staged, %staged, ${x.staged_at};
    add.u32 %zeros, %smem, ${x.zeros_at};
% for n, (distance, _) in enumerate(x.exchanges):
    and.b32 %row, %lane, ${distance};
    setp.ne.u32 %upper${n}, %row, 0;
% endfor
    mul.lo.u32 %tmp0, %tmp0, ${x.kept};
    and.b32 %row, %lane, ${x.lane_mask};
    mad.lo.u32 %tmp0, %row, ${x.elements}, %tmp0;
    add.u32 %tmp0, %tmp0, %column;
    mad.wide.u32 %from_c, %tmp0, ${x.size}, %C;
% for v, access in enumerate(x.c_accesses):
    sub.u32 %row, %N, ${access.column};
    setp.lt.s32 %stores${v}, %tmp0, %row;
% endfor
    setp.neu.${op.type} %reads_c, %beta, ${op.zero};
${tiles.sums_address()}\
${ptx.banner("thread to the elements of a tile that it copies: columns after the last are zeros")}\
    and.b32 %tmp0, %thread, ${copy.row_mask};
    shr.u32 %copy_row, %thread, ${copy.log2_threads_row};
    mul.lo.u32 %copy_to, %tmp0, ${copy.bytes};
    mad.lo.u32 %copy_to, %copy_row, ${x.row_bytes}, %copy_to;
    mad.lo.u32 %tmp0, %tmp0, ${copy.elements}, %column;
    setp.lt.u32 %inside, %tmp0, %N;
    selp.b32 %tmp0, %tmp0, %column, %inside;
    selp.b32 %copy_bytes, ${copy.bytes}, 0, %inside;
    mul.wide.u32 %offset64, %copy_row, %ldb;
    cvt.u64.u32 %from_b, %tmp0;
    add.u64 %from_b, %from_b, %offset64;
    mad.lo.u64 %from_b, %from_b, ${x.size}, %B;
    mul.wide.u32 %copy_pitch, %ldb, ${copy.pitch_bytes};
    setp.lt.u32 %p, %thread, ${x.lanes};
    mad.lo.u32 %tmp0, %thread, 16, %zeros;
    mov.b32 %row, 0;
    @%p st.shared.v4.b32 [%tmp0], {%row, %row, %row, %row};
${ptx.banner("the first two rows of the warp, and the first nonzeros of the first one")}\
    setp.lt.u32 %has_row, %warp, %rows;
    mov.b32 %next_row, %warp;
    add.u32 %tmp0, %first_row, %warp;
${tiles.first_bounds()}\
${load_bounds()}\
${copy_tile("%smem", "0")}\
    mov.b32 %nonzero, %next_begin;
    mov.b32 %end, %next_end;
${load_nonzeros()}\
${load_bounds()}\
    mov.b32 %tile_at, %smem;
    mov.b32 %row_base, %smem;
${tiles.begin()}\
${ptx.banner("wait for the tile, and for all warps")}\
% for line in copy.wait:
    ${line}
% endfor
    bar.sync 0;
${tiles.count()}\
% if x.buffers == 2:
    add.u32 %tile_row, %tile_row, ${x.tile_k};
    add.u32 %tmp0, %smem, %smem;
    add.u32 %tmp0, %tmp0, ${x.tile_bytes};
    sub.u32 %next_tile_at, %tmp0, %tile_at;
    @%last_tile bra.uni COPIED;
${copy_tile("%next_tile_at", "%tile_row")}\
COPIED:
% endif
${ptx.banner("loop over the rows of the warp")}\
    @!%has_row bra.uni ROWS_DONE;
    mov.b32 %row, %warp;
    .pragma "nounroll";
ROW_LOOP:
% for name in x.sums.all:
    mov.${op.type} ${name}, ${op.zero};
% endfor
${ptx.banner(f"{x.chunk} nonzeros: addresses in the tile and values to shared memory; those after the last multiply zeros")}\
    .pragma "nounroll";
NONZERO_LOOP:
    sub.u32 %left, %end, %nonzero;
% for i, nonzero in enumerate(x.chunk_nonzeros):
    add.u32 %tmp0, %lane, ${nonzero};
    setp.lt.u32 %inside, %tmp0, %left;
    mov.b32 %place_staged${i}, %zeros;
    mov.${op.type} %value_staged${i}, ${op.zero};
    @%inside mad.lo.u32 %place_staged${i}, %index${i}, ${x.row_bytes}, %row_base;
  % if x.converts:
${convert.widen(x.ptx_type, f"%value_staged{i}", f"%loaded_value{i}", "@%inside ")}\
  % else:
    @%inside mov.${op.type} %value_staged${i}, %loaded_value${i};
  % endif
% endfor
    bar.warp.sync 0xffffffff;
% for type, registers, offset in x.staged_stores:
    st.shared.${type} [%stage_to+${offset}], ${registers};
% endfor
    bar.warp.sync 0xffffffff;
${ptx.banner("the next nonzeros of the row, or of the next row")}\
    setp.gt.u32 %more, %left, ${x.chunk};
    add.u32 %nonzero, %nonzero, ${x.chunk};
    @!%more mov.b32 %nonzero, %next_begin;
    @!%more mov.b32 %end, %next_end;
${load_nonzeros()}\
${ptx.banner(f"products, {x.depths[0]} nonzeros of each group at once")}\
    min.u32 %left, %left, ${x.chunk};
    add.u32 %rounds, %left, ${x.round_nonzeros_mask};
    shr.u32 %rounds, %rounds, ${x.log2_round_nonzeros};
    shl.b32 %rounds, %rounds, ${x.log2_read};
    mov.b32 %from_staged, %staged;
    setp.lt.u32 %p, %rounds, ${x.depths[0]};
    @%p bra.uni REMAINDER;
    .pragma "nounroll";
PRODUCT_LOOP:
${multiply(x.steps[0])}\
    sub.u32 %rounds, %rounds, ${x.depths[0]};
    setp.ge.u32 %p, %rounds, ${x.depths[0]};
    @%p bra.uni PRODUCT_LOOP;
REMAINDER:
% if len(x.depths) > 1:
    setp.eq.u32 %p, %rounds, 0;
    @%p bra.uni NONZEROS_DONE;
% endif
% for step in x.steps[1:]:
    and.b32 %tmp0, %rounds, ${step.depth};
    setp.eq.u32 %p, %tmp0, 0;
    @%p bra.uni AFTER_${step.depth};
${multiply(step)}\
AFTER_${step.depth}:
% endfor
NONZEROS_DONE:
    @%more bra.uni NONZERO_LOOP;
${load_bounds()}\
% if x.exchanges:
${ptx.banner("the sums of the groups: each lane keeps half of its columns, and adds those of another lane")}\
% endif
% for n, (distance, sums) in enumerate(x.exchanged_sums):
  % for low, high, moved in sums:
    selp.${x.shuffled} ${moved}, ${low}, ${high}, %upper${n};
    selp.${x.shuffled} ${low}, ${high}, ${low}, %upper${n};
  % endfor
  % for _, _, moved in sums:
    % if x.splits_moved:
    mov.b64 {%half_low, %half_high}, ${moved};
    shfl.sync.bfly.b32 %half_low, %half_low, ${distance}, 31, 0xffffffff;
    shfl.sync.bfly.b32 %half_high, %half_high, ${distance}, 31, 0xffffffff;
    mov.b64 ${moved}, {%half_low, %half_high};
    % else:
    shfl.sync.bfly.b32 ${moved}, ${moved}, ${distance}, 31, 0xffffffff;
    % endif
  % endfor
  % for low, _, moved in sums:
    ${op.add} ${low}, ${low}, ${moved};
  % endfor
% endfor
${tiles.add_sums()}\
${ptx.banner("epilogue: C = alpha * sums + beta * C")}\
    add.u32 %tmp0, %row, %first_row;
    mul.wide.u32 %ptr_c, %tmp0, %ldc;
    mad.lo.u64 %ptr_c, %ptr_c, ${x.size}, %from_c;
% for i in range(x.kept):
    ${op.mul} ${x.sums[i]}, ${x.sums[i]}, %alpha;
% endfor
% for v, access in enumerate(x.c_accesses):
    @!%stores${v} bra STORED;
    @!%reads_c bra.uni STORE_${v};
    ld.global.${x.access_c} ${x.c_vector[:]}, [%ptr_c+${access.offset}];
  % if x.c_pairs:
    % for word, low, high in x.c_pairs:
${convert.widen_pair(x.ptx_type, low, high, word, x.half.all)}\
    % endfor
  % elif x.converts:
${convert.widen(x.ptx_type, x.wide[0], x.c_vector[0])}\
  % endif
  % for sum, element in zip(access.sums, x.c_elements):
    ${op.fma} ${sum}, ${element}, %beta, ${sum};
  % endfor
STORE_${v}:
  % if x.c_pairs:
    % for word, low, high in access.pairs:
    cvt.rn.${x.ptx_type}.${op.type} ${x.half[0]}, ${low};
    cvt.rn.${x.ptx_type}.${op.type} ${x.half[1]}, ${high};
    mov.b32 ${word}, ${x.half[:]};
    % endfor
  % elif x.converts:
    cvt.rn.${x.ptx_type}.${op.type} ${x.c_vector[0]}, ${access.sums[0]};
  % endif
    st.global.${x.access_c} [%ptr_c+${access.offset}], ${access.stored};
% endfor
STORED:
    add.u32 %row, %row, ${x.warps};
    setp.lt.u32 %p, %row, %rows;
    @%p bra.uni ROW_LOOP;
ROWS_DONE:
${tiles.next_tile(copy_tile)}\
<%def name="after_entry()"></%def>\

## The first nonzero and the end of the next row, or of the warp's first row in the next tile; of none, an empty range.
<%def name="load_bounds()">
<% x = plan.mainloop %>\
    mov.b32 %next_begin, 0;
    mov.b32 %next_end, 0;
${tiles.has_next()}\
    @%has_next ld.global.nc.u32 %next_begin, [%ptr_bounds];
    @%has_next ld.global.nc.u32 %next_end, [%ptr_bounds+4];
    add.u32 %next_row, %next_row, ${x.warps};
${tiles.next_bounds()}\
</%def>

## Column indices and values, from the first nonzero that is not staged.
<%def name="load_nonzeros()">
<% x = plan.mainloop %>\
    add.u32 %tmp0, %nonzero, %lane;
    mad.wide.u32 %ptr_index, %tmp0, 4, %indices;
    mad.wide.u32 %ptr_value, %tmp0, ${x.size}, %values;
% for i, (index_offset, value_offset) in enumerate(x.chunk_offsets):
  % if i:
    add.u32 %tmp0, %tmp0, 32;
  % endif
    setp.lt.u32 %inside, %tmp0, %end;
    @%inside ld.global.nc.u32 %index${i}, [%ptr_index+${index_offset}];
    @%inside ld.global.nc.${x.scalar} %loaded_value${i}, [%ptr_value+${value_offset}];
% endfor
</%def>

## Copies rows of B from the row ``first`` on to the tile at ``to``.
<%def name="copy_tile(to, first)">
<% x, copy = plan.mainloop, plan.copy %>\
    {
    .reg .b64 %ptr_copy;
    .reg .b32 %copied_to, %rows_left, %tile_left;
    sub.u32 %tile_left, %K, ${first};
    min.u32 %tile_left, %tile_left, ${x.tile_k};
    sub.s32 %rows_left, %tile_left, %copy_row;
    add.u32 %copied_to, %copy_to, ${to};
    mul.wide.u32 %ptr_copy, %ldb, ${first};
    mad.lo.u64 %ptr_copy, %ptr_copy, ${x.size}, %from_b;
% if copy.iterations > 1:
    .pragma "nounroll";
COPY_LOOP:
% endif
% for u, (row, offset) in enumerate(copy.accesses):
    setp.gt.s32 %copies${u}, %rows_left, ${row};
  % if copy.asynchronous:
    @%copies${u} cp.async.${copy.cache}.shared.global [%copied_to+${offset}], [%ptr_copy], ${copy.bytes}, %copy_bytes;
  % else:
    mov.b16 ${copy.loaded[u]}, 0;
    @%copies${u} ld.global.nc.b16 ${copy.loaded[u]}, [%ptr_copy];
  % endif
    add.u64 %ptr_copy, %ptr_copy, %copy_pitch;
% endfor
% if not copy.asynchronous:
  % for u, (_, offset) in enumerate(copy.accesses):
    @%copies${u} st.shared.b16 [%copied_to+${offset}], ${copy.loaded[u]};
  % endfor
% endif
% if copy.iterations > 1:
    add.u32 %copied_to, %copied_to, ${copy.step_bytes};
    sub.s32 %rows_left, %rows_left, ${copy.step_rows};
    sub.s32 %tile_left, %tile_left, ${copy.step_rows};
    setp.gt.s32 %p, %tile_left, 0;
    @%p bra.uni COPY_LOOP;
% endif
% for line in copy.commit:
    ${line}
% endfor
    }
</%def>

## The next nonzeros of each group: their places and values, then the rows of the tile, then the products in order.
<%def name="multiply(step)">
<% x, op = plan.mainloop, plan.arithmetic %>\
% for type, registers, offset in step.reads:
    ld.shared.${type} ${registers}, [%from_staged+${offset}];
% endfor
% for q in range(step.depth):
    add.u32 ${x.place[q]}, ${x.place[q]}, %lane_bytes;
    ld.shared.${x.access} ${x.loaded[q, :]}, [${x.place[q]}];
% endfor
    add.u32 %from_staged, %from_staged, ${step.bytes};
% for q in range(step.depth):
  % for word, low, high in x.loaded_pairs[q]:
${convert.widen_pair(x.ptx_type, low, high, word, x.half.all)}\
  % endfor
  % for sum, element in zip(x.sums.all, x.tile_elements[q]):
    ${op.fma} ${sum}, ${x.value[q]}, ${element}, ${sum};
  % endfor
% endfor
</%def>
