## Compressed tiles of a sparse matrix in CSR. Kernels count the nonzeros of each tile, find where the tiles begin, mark the
## nonzeros in the bitmaps, and store each value behind the values of lower bits.
<%inherit file="module.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="lanes" file="/ptx/shuffle.mako"/>\
<% tiles = plan.preparation %>\
.visible .entry count_tile_nonzeros(
% for line in tiles.counted.declarations:
    ${line}
% endfor
)
.maxntid ${tiles.threads}, 1, 1
{
${nonzeros_of_row(tiles.counted.names[:-2])}\
COUNT_LOOP:
${load_column()}\
    red.global.add.u32 [%ptr_tile], 1;
${next_nonzero("COUNT_LOOP")}\
}

.visible .entry scan_tiles(
% for line in tiles.scanned.declarations:
    ${line}
% endfor
)
.maxntid ${tiles.scan_threads}, 1, 1
{
    .reg .b64 %tile_starts, %sizes, %ptr;
    .reg .b32 %tiles, %thread, %lane, %warp, %item, %tiles_left, %pieces<${tiles.scan_each}>, %sum, %inclusive, %shuffled;
    .reg .b32 %before, %nonzeros, %warp_total, %warp_slot, %lane_slot;
    .reg .pred %p, %inside<${tiles.scan_each}>;
    .shared .align 4 .b8 warp_sums[${tiles.scan_sum_bytes}];

    ld.param.u64 %tile_starts, [tile_starts];  ld.param.u64 %sizes, [sizes];  ld.param.u32 %tiles, [tiles];
    cvta.to.global.u64 %tile_starts, %tile_starts;
    cvta.to.global.u64 %sizes, %sizes;
    mov.u32 %thread, %tid.x;
    and.b32 %lane, %thread, 31;
    shr.u32 %warp, %thread, 5;
    mov.u32 %lane_slot, warp_sums;
    mad.lo.u32 %warp_slot, %warp, 4, %lane_slot;
    mad.lo.u32 %lane_slot, %lane, 4, %lane_slot;
    mul.lo.u32 %item, %thread, ${tiles.scan_each};
    mad.wide.u32 %ptr, %item, 4, %tile_starts;
    mov.b32 %before, 0;
    mov.b32 %tiles_left, %tiles;
${ptx.banner(f"loop over {tiles.scan_step} tiles: the units of {tiles.scan_each} a thread, and their sum with those of lower lanes")}\
SCAN:
    mov.b32 %sum, 0;
% for i, offset in enumerate(tiles.scan_offsets):
    add.u32 %shuffled, %item, ${i};
    setp.lt.u32 %inside${i}, %shuffled, %tiles;
    mov.b32 %pieces${i}, 0;
    @%inside${i} ld.global.u32 %pieces${i}, [%ptr+${offset}];
    mov.b32 %nonzeros, %pieces${i};
    mov.b32 %pieces${i}, 0;
  % for rounded, each in tiles.rounded_parts:
    mad.lo.u32 %shuffled, %nonzeros, ${each}, ${rounded};
    shr.u32 %shuffled, %shuffled, ${tiles.log2_piece};
    add.u32 %pieces${i}, %pieces${i}, %shuffled;
  % endfor
    @!%inside${i} mov.b32 %pieces${i}, 0;
    add.u32 %sum, %sum, %pieces${i};
% endfor
    mov.b32 %inclusive, %sum;
${lanes.add_lower("%inclusive", "%shuffled")}\
    setp.eq.u32 %p, %lane, 31;
    @%p st.shared.u32 [%warp_slot], %inclusive;
${ptx.banner("wait for the sums of all warps, and store the place of each tile")}\
    bar.sync 0;
    ld.shared.u32 %warp_total, [%lane_slot];
    setp.lt.u32 %p, %lane, %warp;
    selp.u32 %shuffled, %warp_total, 0, %p;
    redux.sync.add.u32 %shuffled, %shuffled, 0xffffffff;
    redux.sync.add.u32 %warp_total, %warp_total, 0xffffffff;
    add.u32 %shuffled, %shuffled, %before;
    add.u32 %shuffled, %shuffled, %inclusive;
    sub.u32 %shuffled, %shuffled, %sum;
% for i, offset in enumerate(tiles.scan_offsets):
    @%inside${i} st.global.u32 [%ptr+${offset}], %shuffled;
    add.u32 %shuffled, %shuffled, %pieces${i};
% endfor
    add.u32 %before, %before, %warp_total;
    add.u64 %ptr, %ptr, ${tiles.scan_step_bytes};
    add.u32 %item, %item, ${tiles.scan_step};
${ptx.banner("wait until all warps have read the sums")}\
    bar.sync 0;
    setp.gt.u32 %p, %tiles_left, ${tiles.scan_step};
    sub.u32 %tiles_left, %tiles_left, ${tiles.scan_step};
    @%p bra SCAN;
    setp.eq.u32 %p, %thread, 0;
    mad.wide.u32 %ptr, %tiles, 4, %tile_starts;
    @%p st.global.u32 [%ptr], %before;
    @%p st.global.u32 [%sizes], %before;
    ret;
}

% if not tiles.offsets:
.visible .entry mark_nonzeros(
  % for line in tiles.marked.declarations:
    ${line}
  % endfor
)
.maxntid ${tiles.threads}, 1, 1
{
${nonzeros_of_row(tiles.marked.names[:-2])}\
MARK_LOOP:
${load_column()}\
${place()}\
    shl.b32 %bit, 1, %bit;
    mad.wide.u32 %ptr_word, %word, 4, %ptr_tile;
    red.global.or.b32 [%ptr_word], %bit;
${next_nonzero("MARK_LOOP")}\
}

% endif
.visible .entry place_nonzeros(
% for line in tiles.placed.declarations:
    ${line}
% endfor
)
.maxntid ${tiles.threads}, 1, 1
{
    .reg .b${tiles.bits} %value;
    .reg ${tiles.place_registers};
${nonzeros_of_row(tiles.placed.names[:-2])}\
PLACE_LOOP:
${load_column()}\
% if tiles.offsets:
${place_by_offset()}\
% else:
${place_by_bit()}\
% endif
${next_nonzero("PLACE_LOOP")}\
}

## A warp for each row, several for a long one: %next: the nonzero of a lane; %first_tile: the first tile of the row.
<%def name="nonzeros_of_row(names)">
<% tiles = plan.preparation %>\
    .reg .b64 ${", ".join(f"%{name}" for name in names)}, %ptr_index, %ptr_tile, %ptr_word;
    .reg .b32 %M, %columns, %thread, %row, %warp, %step, %next, %end, %column, %first_tile, %tile, %word, %bit, %field;
    .reg .pred %p;

% for name in names:
    ld.param.u64 %${name}, [${name}];  cvta.to.global.u64 %${name}, %${name};
% endfor
    ld.param.u32 %M, [M];  ld.param.u32 %columns, [columns];
${ptx.banner("warp to row, lane to nonzeros; the blocks along y divide a row")}\
    mov.u32 %thread, %tid.x;
    mov.u32 %row, %ctaid.x;
    shr.u32 %warp, %thread, 5;
    mad.lo.u32 %row, %row, ${tiles.warps}, %warp;
    setp.ge.u32 %p, %row, %M;
    @%p bra DONE;
    mad.wide.u32 %ptr_index, %row, 4, %indptr;
    ld.global.nc.u32 %next, [%ptr_index];
    ld.global.nc.u32 %end, [%ptr_index+4];
    and.b32 %thread, %thread, 31;
    add.u32 %next, %next, %thread;
    mov.u32 %tile, %ctaid.y;
    mad.lo.u32 %next, %tile, 32, %next;
    mov.u32 %step, %nctaid.y;
    shl.b32 %step, %step, 5;
    shr.u32 %first_tile, %row, ${tiles.log2_rows};
    mul.lo.u32 %first_tile, %first_tile, %columns;
    setp.ge.u32 %p, %next, %end;
    @%p bra DONE;
${ptx.banner("loop over nonzeros")}\
</%def>

## The column of a nonzero. %ptr_tile: its tile, or the counter of that before tiles have places.
<%def name="load_column()">
<% tiles = plan.preparation %>\
    mad.wide.u32 %ptr_index, %next, 4, %indices;
    ld.global.nc.u32 %column, [%ptr_index];
    shr.u32 %tile, %column, ${tiles.log2_columns};
    add.u32 %tile, %first_tile, %tile;
    mad.wide.u32 %ptr_tile, %tile, 4, %tile_starts;
</%def>

## %ptr_tile: the address of the tile; %word, %bit: the place of the nonzero in the bitmap.
<%def name="place()">
<% tiles = plan.preparation %>\
    ld.global.nc.u32 %tile, [%ptr_tile];
    mul.wide.u32 %ptr_tile, %tile, ${tiles.piece};
    add.u64 %ptr_tile, %ptr_tile, %tile_data;
${number("%word", tiles.word_fields)}\
${number("%bit", tiles.bit_fields)}\
</%def>

<%def name="next_nonzero(label)">
    add.u32 %next, %next, %step;
    setp.lt.u32 %p, %next, %end;
    @%p bra ${label};
DONE:
    ret;
</%def>

## The nonzero is stored after those of the bits before its own.
<%def name="place_by_bit()">
<% tiles = plan.preparation %>\
${place()}\
${ptx.banner("the bits before its own")}\
    mad.wide.u32 %ptr_word, %word, 4, %ptr_tile;
    ld.global.u32 %marks, [%ptr_word];
    shl.b32 %bit, 1, %bit;
    sub.u32 %bit, %bit, 1;
    and.b32 %marks, %marks, %bit;
    popc.b32 %before, %marks;
COUNT_WORDS:
    setp.eq.u32 %p, %word, 0;
    @%p bra COUNTED_WORDS;
    sub.u32 %word, %word, 1;
    mad.wide.u32 %ptr_word, %word, 4, %ptr_tile;
    ld.global.u32 %marks, [%ptr_word];
    popc.b32 %marks, %marks;
    add.u32 %before, %before, %marks;
    bra COUNT_WORDS;
COUNTED_WORDS:
    mad.wide.u32 %ptr_word, %next, ${tiles.size}, %values;
    ld.global.nc.b${tiles.bits} %value, [%ptr_word];
    mad.wide.u32 %ptr_word, %before, ${tiles.size}, %ptr_tile;
    st.global.b${tiles.bits} [%ptr_word+${tiles.bitmap_bytes}], %value;
</%def>

## The nonzero gets the next number of its tile, in any order; its value is stored from the end of the tile backwards.
<%def name="place_by_offset()">
<% tiles = plan.preparation %>\
    .reg .b64 %ptr_value;
    ld.global.nc.u32 %tile, [%ptr_tile+4];
    mul.wide.u32 %ptr_value, %tile, ${tiles.piece};
    add.u64 %ptr_value, %ptr_value, %tile_data;
    ld.global.nc.u32 %tile, [%ptr_tile];
    mul.wide.u32 %ptr_tile, %tile, ${tiles.piece};
    add.u64 %ptr_tile, %ptr_tile, %tile_data;
${number("%word", tiles.offset_fields)}\
    cvt.u16.u32 %offset, %word;
    atom.global.add.u32 %bit, [%ptr_tile], 1;
    mad.wide.u32 %ptr_word, %bit, ${tiles.offset_bytes}, %ptr_tile;
    st.global.b16 [%ptr_word+${tiles.count_bytes}], %offset;
    mad.wide.u32 %ptr_word, %next, ${tiles.size}, %values;
    ld.global.nc.b${tiles.bits} %value, [%ptr_word];
    add.u32 %bit, %bit, 1;
    mul.wide.u32 %ptr_word, %bit, ${tiles.size};
    sub.u64 %ptr_word, %ptr_value, %ptr_word;
    st.global.b${tiles.bits} [%ptr_word], %value;
</%def>

## The bits of the row and the column of the nonzero that make a number.
<%def name="number(to, fields)">
    mov.b32 ${to}, 0;
% for name, first, bits, at in fields:
    bfe.u32 %field, %${name}, ${first}, ${bits};
    bfi.b32 ${to}, %field, ${to}, ${at}, ${bits};
% endfor
</%def>
