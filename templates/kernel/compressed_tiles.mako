## Products of a sparse matrix in compressed tiles: the warps of a block multiply different tiles of 32 rows of A with all
## columns of a slab of B. Each warp copies tiles ahead to slots of shared memory of its own.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="convert" file="/ptx/convert.mako"/>\
<%namespace name="expand" file="/${context['plan'].mainloop.expand}"/>\
<%namespace name="math" file="/${context['plan'].mainloop.math}"/>\
<%namespace name="rows_b" file="/${context['plan'].mainloop.b_access}"/>\
<% x, op = plan.mainloop, plan.arithmetic %>\
    .reg .b64 %tile_starts, %tile_data, %B, %C, %ptr_tile, %ptr_c;
    .reg .b32 %M, %N, %K, %ldb, %ldc, %thread, %lane, %warp, %smem, %slots, %slots_end, %slot, %filled, %decoded, %tmp0;
    .reg .b32 %row_tile, %first_column, %tiles, %first, %count, %ahead, %done, %begin, %end, %sums_at;
    .reg .s32 %pieces;
    .reg .pred %p, %some, %inside;
    .reg .${op.type} %alpha, %beta;

% for name in ("tile_starts", "tile_data", "B", "C"):
    ld.param.u64 %${name}, [${name}];  cvta.to.global.u64 %${name}, %${name};
% endfor
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];  ld.param.u32 %K, [K];  ld.param.u32 %ldb, [ldb];  ld.param.u32 %ldc, [ldc];
    ld.param.${op.type} %alpha, [alpha];  ld.param.${op.type} %beta, [beta];
${ptx.banner("block to rows and columns, warp to tiles: none if alpha is 0, then A and B are not read")}\
    mov.u32 %thread, %tid.x;
    mov.u32 %row_tile, %ctaid.x;
    mov.u32 %first_column, %ctaid.y;
    mul.lo.u32 %first_column, %first_column, ${x.columns};
    and.b32 %lane, %thread, 31;
    shr.u32 %warp, %thread, 5;
    add.u32 %tiles, %K, ${x.depth_mask};
    shr.u32 %tiles, %tiles, ${x.log2_depth};
    add.u32 %count, %tiles, ${x.warp_mask};
    shr.u32 %count, %count, ${x.log2_warps};
    mul.lo.u32 %first, %warp, %count;
    min.u32 %first, %first, %tiles;
    sub.u32 %tmp0, %tiles, %first;
    min.u32 %count, %count, %tmp0;
    setp.eq.${op.type} %p, %alpha, ${op.zero};
    @%p mov.b32 %count, 0;
    mad.lo.u32 %tmp0, %row_tile, %tiles, %first;
    mad.wide.u32 %tile_starts, %tmp0, 4, %tile_starts;
    mov.u32 %smem, smem;
    mad.lo.u32 %slots, %warp, ${x.warp_bytes}, %smem;
    add.u32 %slots_end, %slots, ${x.warp_bytes};
    mad.lo.u32 %decoded, %warp, ${x.decoded_bytes}, %smem;
    add.u32 %decoded, %decoded, ${x.decoded_at};
    mov.b32 %slot, %slots;
    mov.b32 %filled, %slots;
% for name in x.sums.all:
    mov.f32 ${name}, ${op.zero};
% endfor
${math.prepare()}\
${rows_b.prepare()}\
${ptx.banner(f"copy {x.tiles_ahead} tiles ahead")}\
    mov.b32 %ahead, 0;
    mov.b32 %done, 0;
    mov.b32 %begin, 0;
    mov.b32 %end, 0;
% for s in range(x.tiles_ahead):
${copy_tile(f"{s}")}\
% endfor
    setp.eq.u32 %p, %count, 0;
    @%p bra.uni TILES_DONE;
    .pragma "nounroll";
TILE_LOOP:
${copy_tile("NEXT")}\
${ptx.banner("wait for the copies of this tile, of all lanes")}\
    cp.async.wait_group ${x.tiles_ahead};
    bar.warp.sync 0xffffffff;
${rows_b.load()}\
${expand.expand()}\
${math.multiply()}\
${ptx.banner("the next slot, once all lanes have read this one")}\
    bar.warp.sync 0xffffffff;
    add.u32 %slot, %slot, ${x.slot_bytes};
    setp.eq.u32 %p, %slot, %slots_end;
    @%p mov.b32 %slot, %slots;
    add.u32 %done, %done, 1;
    setp.lt.u32 %p, %done, %count;
    @%p bra.uni TILE_LOOP;
TILES_DONE:
${ptx.banner("wait for all warps; their sums to shared memory")}\
    cp.async.wait_group 0;
    bar.sync 0;
    mad.lo.u32 %sums_at, %warp, ${x.sum_bytes}, %smem;
    shr.u32 %tmp0, %lane, ${x.lane_rows[0]};
    mad.lo.u32 %sums_at, %tmp0, ${x.row_sum_bytes}, %sums_at;
    and.b32 %tmp0, %lane, ${x.lane_rows[1]};
    mad.lo.u32 %sums_at, %tmp0, 8, %sums_at;
% for offset, names, access in x.sum_vectors:
    st.shared.${access} [%sums_at+${offset}], ${operand_list(names)};
% endfor
    bar.sync 0;
${ptx.banner("a thread adds the sums of all warps, in order; epilogue: C = alpha * sum + beta * C")}\
    .reg .f32 %total, %warp_sum;
    .reg .b32 %element, %row, %column;
    mov.b32 %element, %thread;
    setp.ge.u32 %p, %element, ${x.elements};
    @%p bra DONE;
STORE_LOOP:
    mad.lo.u32 %sums_at, %element, 4, %smem;
    ld.shared.f32 %total, [%sums_at];
% for offset in x.other_sums:
    ld.shared.f32 %warp_sum, [%sums_at+${offset}];
    add.rn.f32 %total, %total, %warp_sum;
% endfor
    shr.u32 %row, %element, ${x.log2_columns};
    mad.lo.u32 %row, %row_tile, ${x.rows}, %row;
    and.b32 %column, %element, ${x.column_mask};
    add.u32 %column, %column, %first_column;
    add.u32 %element, %element, ${x.threads};
    setp.lt.u32 %some, %element, ${x.elements};
    setp.lt.u32 %inside, %row, %M;
    setp.lt.and.u32 %inside, %column, %N, %inside;
    @!%inside bra STORED;
    mul.wide.u32 %ptr_c, %row, %ldc;
    cvt.u64.u32 %ptr_tile, %column;
    add.u64 %ptr_c, %ptr_c, %ptr_tile;
    mad.lo.u64 %ptr_c, %ptr_c, ${x.size}, %C;
    ${op.mul} %total, %total, %alpha;
    setp.eq.${op.type} %p, %beta, ${op.zero};
    @%p bra STORE;
% if x.size == 2:
    ld.global.b16 ${x.element[0]}, [%ptr_c];
${convert.widen(x.ptx_type, "%warp_sum", x.element[0])}\
% else:
    ld.global.f32 %warp_sum, [%ptr_c];
% endif
    ${op.fma} %total, %warp_sum, %beta, %total;
STORE:
% if x.size == 2:
    cvt.rn.${x.ptx_type}.f32 ${x.element[0]}, %total;
    st.global.b16 [%ptr_c], ${x.element[0]};
% else:
    st.global.f32 [%ptr_c], %total;
% endif
STORED:
    @%some bra STORE_LOOP;
DONE:
<%def name="after_entry()"></%def>\

## Copies the tile %ahead of the warp, if there is one, to the slot %filled; lanes keep the places of 32 tiles.
<%def name="copy_tile(label)">
<% x = plan.mainloop %>\
    setp.ge.u32 %p, %ahead, %count;
    @%p bra.uni COPIED_${label};
    {
    .reg .b32 %from, %piece_at, %tile_lane, %left;
    and.b32 %tile_lane, %ahead, 31;
    setp.ne.u32 %p, %tile_lane, 0;
    @%p bra.uni PLACES_${label};
    add.u32 %from, %ahead, %lane;
    setp.lt.u32 %p, %from, %count;
    mad.wide.u32 %ptr_tile, %from, 4, %tile_starts;
    @%p ld.global.nc.u32 %begin, [%ptr_tile];
    @%p ld.global.nc.u32 %end, [%ptr_tile+4];
PLACES_${label}:
    shfl.sync.idx.b32 %from, %begin, %tile_lane, 31, 0xffffffff;
    shfl.sync.idx.b32 %pieces, %end, %tile_lane, 31, 0xffffffff;
    sub.s32 %pieces, %pieces, %from;
    mad.wide.u32 %ptr_tile, %from, ${x.piece}, %tile_data;
    mad.wide.u32 %ptr_tile, %lane, ${x.piece}, %ptr_tile;
    mad.lo.u32 %piece_at, %lane, ${x.piece}, %filled;
    sub.s32 %left, %pieces, %lane;
% for piece, offset, asks in x.piece_copies:
  % if asks:
    setp.le.s32 %p, %pieces, ${piece};
    @%p bra.uni TILE_COPIED_${label};
  % endif
    setp.gt.s32 %p, %left, ${piece};
    @%p cp.async.cg.shared.global [%piece_at+${offset}], [%ptr_tile+${offset}], ${x.piece};
% endfor
TILE_COPIED_${label}:
    }
${rows_b.copy()}\
    add.u32 %filled, %filled, ${x.slot_bytes};
    setp.eq.u32 %p, %filled, %slots_end;
    @%p mov.b32 %filled, %slots;
    add.u32 %ahead, %ahead, 1;
COPIED_${label}:
    cp.async.commit_group;
</%def>
