## Row windows of a sparse matrix in CSR. A block marks the distinct columns of a window in a bitmap, and numbers the marks in
## ascending order. Columns of a row may be in any order. A window that spans more columns than the bitmap has bits is prepared
## in several ranges of columns.
<%inherit file="module.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<% windows = plan.preparation %>\
.visible .entry count_window_blocks(
% for line in windows.counted.declarations:
    ${line}
% endfor
)
.maxntid ${windows.threads}, 1, 1
{
${declarations(1)}\
    .reg .b32 %vectors;

% for name in windows.counted.names[:-1]:
    ld.param.u64 %${name}, [${name}];  cvta.to.global.u64 %${name}, %${name};
% endfor
    ld.param.u32 %M, [M];
${window()}\
    mov.b32 %vectors, 0;
    @%empty bra COUNTED;
${columns()}\
RANGE:
${mark()}\
${ptx.banner("count the marks of each warp's words")}\
${first_word()}\
COUNT:
${load_words()}\
    @!%some bra COUNTED_WORDS;
% for i in range(4):
    popc.b32 %number, %marks${i};
    add.u32 %vectors, %vectors, %number;
% endfor
COUNTED_WORDS:
${next_word("COUNT")}\
${next_range()}\
    redux.sync.add.u32 %vectors, %vectors, 0xffffffff;
${ptx.banner("wait for the counts of all warps, and store the number of blocks")}\
${warp_numbers("%vectors")}\
    redux.sync.add.u32 %vectors, %number, 0xffffffff;
    add.u32 %vectors, %vectors, ${windows.depth_mask};
    shr.u32 %vectors, %vectors, ${windows.log2_depth};
COUNTED:
    setp.eq.u32 %p, %thread, 0;
    mad.wide.u32 %ptr, %window, 4, %window_starts;
    @%p st.global.u32 [%ptr], %vectors;
    ret;
}

.visible .entry scan_window_blocks(
% for line in windows.scanned.declarations:
    ${line}
% endfor
)
.maxntid ${windows.scan_threads}, 1, 1
{
    .reg .b64 %window_starts, %sizes, %ptr;
    .reg .b32 %windows, %thread, %lane, %warp, %item, %windows_left, %blocks<${windows.scan_each}>, %sum, %inclusive, %shuffled;
    .reg .b32 %before, %warp_total, %warp_slot, %lane_slot;
    .reg .pred %p, %inside<${windows.scan_each}>;
    .shared .align 4 .b8 warp_sums[${windows.scan_sum_bytes}];

    ld.param.u64 %window_starts, [window_starts];  ld.param.u64 %sizes, [sizes];  ld.param.u32 %windows, [windows];
    cvta.to.global.u64 %window_starts, %window_starts;
    cvta.to.global.u64 %sizes, %sizes;
    mov.u32 %thread, %tid.x;
    and.b32 %lane, %thread, 31;
    shr.u32 %warp, %thread, 5;
    mov.u32 %lane_slot, warp_sums;
    mad.lo.u32 %warp_slot, %warp, 4, %lane_slot;
    mad.lo.u32 %lane_slot, %lane, 4, %lane_slot;
    mul.lo.u32 %item, %thread, ${windows.scan_each};
    mad.wide.u32 %ptr, %item, 4, %window_starts;
    mov.b32 %before, 0;
    mov.b32 %windows_left, %windows;
${ptx.banner(f"loop over {windows.scan_step} windows: the blocks of {windows.scan_each} a thread, and their sum with those of lower lanes")}\
SCAN:
    mov.b32 %sum, 0;
% for i, at in enumerate(windows.scan_offsets):
    add.u32 %shuffled, %item, ${i};
    setp.lt.u32 %inside${i}, %shuffled, %windows;
    mov.b32 %blocks${i}, 0;
    @%inside${i} ld.global.u32 %blocks${i}, [%ptr+${at}];
    add.u32 %sum, %sum, %blocks${i};
% endfor
    mov.b32 %inclusive, %sum;
${add_lower_lanes("%inclusive")}\
    setp.eq.u32 %p, %lane, 31;
    @%p st.shared.u32 [%warp_slot], %inclusive;
${ptx.banner("wait for the sums of all warps, and store the first block of each window")}\
    bar.sync 0;
    ld.shared.u32 %warp_total, [%lane_slot];
    setp.lt.u32 %p, %lane, %warp;
    selp.u32 %shuffled, %warp_total, 0, %p;
    redux.sync.add.u32 %shuffled, %shuffled, 0xffffffff;
    redux.sync.add.u32 %warp_total, %warp_total, 0xffffffff;
    add.u32 %shuffled, %shuffled, %before;
    add.u32 %shuffled, %shuffled, %inclusive;
    sub.u32 %shuffled, %shuffled, %sum;
% for i, at in enumerate(windows.scan_offsets):
    @%inside${i} st.global.u32 [%ptr+${at}], %shuffled;
    add.u32 %shuffled, %shuffled, %blocks${i};
% endfor
    add.u32 %before, %before, %warp_total;
    add.u64 %ptr, %ptr, ${windows.scan_step_bytes};
    add.u32 %item, %item, ${windows.scan_step};
${ptx.banner("wait until all warps have read the sums")}\
    bar.sync 0;
    setp.gt.u32 %p, %windows_left, ${windows.scan_step};
    sub.u32 %windows_left, %windows_left, ${windows.scan_step};
    @%p bra SCAN;
    setp.eq.u32 %p, %thread, 0;
    mad.wide.u32 %ptr, %windows, 4, %window_starts;
    @%p st.global.u32 [%ptr], %before;
    @%p st.global.u32 [%sizes], %before;
    ret;
}

.visible .entry fill_window_blocks(
% for line in windows.filled.declarations:
    ${line}
% endfor
)
.maxntid ${windows.threads}, 1, 1
{
${declarations(2)}\
    .reg .b64 %values, %window_columns, %window_values;
    .reg .b32 %start, %blocks, %ranked, %warp_base, %before, %shuffled, %rank, %place, %block, %value, %sum, %rank<4>, %pointer<9>;
    .reg .b16 %half;

% for name in windows.filled.names[:-1]:
    ld.param.u64 %${name}, [${name}];  cvta.to.global.u64 %${name}, %${name};
% endfor
    ld.param.u32 %M, [M];
${window()}\
    @%empty bra FILLED;
    mad.wide.u32 %ptr, %window, 4, %window_starts;
    ld.global.nc.u32 %start, [%ptr];
    ld.global.nc.u32 %blocks, [%ptr+4];
    sub.u32 %blocks, %blocks, %start;
    mad.wide.u32 %window_columns, %start, ${windows.column_bytes}, %window_columns;
    mad.wide.u32 %window_values, %start, ${windows.block_bytes}, %window_values;
% for i in range(1, windows.rows):
    add.u32 %tmp0, %row, ${i};
    min.u32 %tmp0, %tmp0, %M;
    mad.wide.u32 %ptr, %tmp0, 4, %indptr;
    ld.global.nc.u32 %pointer${i}, [%ptr];
% endfor
${ptx.banner("zeros, 16 bytes a thread")}\
    mul.lo.u32 %rounds, %blocks, ${windows.block_stores};
    mov.b32 %round, %thread;
    mov.b32 %value, 0;
ZERO:
    setp.lt.u32 %inside, %round, %rounds;
    mad.wide.u32 %ptr, %round, 16, %window_values;
    @%inside st.global.v4.b32 [%ptr], {%value, %value, %value, %value};
    add.u32 %round, %round, ${windows.threads};
    setp.lt.u32 %p, %round, %rounds;
    @%p bra ZERO;
${columns()}\
    mov.b32 %ranked, 0;
RANGE:
${mark()}\
${ptx.banner("number the marks of each warp's words")}\
${first_word()}\
    mov.b32 %before, 0;
NUMBER:
${load_words()}\
    vote.sync.any.pred %p, %some, 0xffffffff;
    @!%p bra NUMBERED;
    mov.b32 %sum, 0;
% for i in range(4):
    popc.b32 %number, %marks${i};
    mov.b32 %rank${i}, %sum;
    add.u32 %sum, %sum, %number;
% endfor
    mov.b32 %rank, %sum;
${add_lower_lanes("%rank")}\
    shfl.sync.idx.b32 %shuffled, %rank, 31, 31, 0xffffffff;
    sub.u32 %rank, %rank, %sum;
    add.u32 %rank, %rank, %before;
    add.u32 %before, %before, %shuffled;
% for i in range(4):
    add.u32 %rank${i}, %rank${i}, %rank;
% endfor
    st.shared.v4.u32 [%word+${windows.bitmap_bytes}], {%rank0, %rank1, %rank2, %rank3};
NUMBERED:
${next_word("NUMBER")}\
${ptx.banner("wait for the numbers of all warps; add those of lower warps and ranges, and store the columns")}\
${warp_numbers("%before")}\
    setp.lt.u32 %p, %lane, %warp;
    selp.u32 %warp_base, %number, 0, %p;
    redux.sync.add.u32 %warp_base, %warp_base, 0xffffffff;
    redux.sync.add.u32 %number, %number, 0xffffffff;
    add.u32 %warp_base, %warp_base, %ranked;
    add.u32 %ranked, %ranked, %number;
${first_word()}\
    mad.lo.u32 %number, %number, 32, %base;
EMIT:
${load_words()}\
    @!%some bra EMITTED;
    ld.shared.v4.u32 {%rank0, %rank1, %rank2, %rank3}, [%word+${windows.bitmap_bytes}];
% for i in range(4):
    add.u32 %rank${i}, %rank${i}, %warp_base;
% endfor
    st.shared.v4.u32 [%word+${windows.bitmap_bytes}], {%rank0, %rank1, %rank2, %rank3};
% for i, bit in enumerate((0, 32, 64, 96)):
    mov.b32 %marks, %marks${i};
    mov.b32 %rank, %rank${i};
    setp.eq.u32 %p, %marks, 0;
    @%p bra EMITTED_${i};
EMIT_MARK_${i}:
    brev.b32 %tmp0, %marks;
    bfind.shiftamt.u32 %tmp0, %tmp0; // the lowest mark
    add.u32 %column, %number, %tmp0;
    add.u32 %column, %column, ${bit};
${place()}\
    st.global.u32 [%ptr], %column;
    add.u32 %rank, %rank, 1;
    sub.u32 %tmp0, %marks, 1;
    and.b32 %marks, %marks, %tmp0;
    setp.ne.u32 %p, %marks, 0;
    @%p bra EMIT_MARK_${i};
EMITTED_${i}:
% endfor
EMITTED:
    add.u32 %number, %number, 4096;
${next_word("EMIT")}\
${ptx.banner("wait for the numbers of all words, and for the zeros; store each value at its row and vector")}\
    bar.sync 0;
    add.u32 %nonzero, %begin, %thread;
PLACE:
    setp.ge.u32 %p, %nonzero, %end;
    @%p bra PLACED;
${offset()}\
    @!%inside bra PLACE_NEXT;
    ld.shared.u32 %marks, [%word];
    ld.shared.u32 %rank, [%word+${windows.bitmap_bytes}];
    sub.u32 %bit, %bit, 1;
    and.b32 %marks, %marks, %bit;
    popc.b32 %number, %marks;
    add.u32 %rank, %rank, %number;
${place()}\
% for i in range(1, windows.rows):
    setp.ge.u32 %p, %nonzero, %pointer${i};
    @%p add.u32 %place, %place, ${windows.depth};
% endfor
    mad.wide.u32 %ptr, %block, ${windows.block_bytes}, %window_values;
    mad.wide.u32 %ptr, %place, ${windows.size}, %ptr;
    mad.wide.u32 %ptr_index, %nonzero, ${windows.size}, %values;
% if windows.size == 2:
    ld.global.nc.b16 %half, [%ptr_index];
    st.global.b16 [%ptr], %half;
% else:
    ld.global.nc.b32 %value, [%ptr_index];
    cvt.rna.tf32.f32 %value, %value;
    st.global.b32 [%ptr], %value;
% endif
PLACE_NEXT:
    add.u32 %nonzero, %nonzero, ${windows.threads};
    bra PLACE;
PLACED:
${next_range()}\
${ptx.banner("pads: vectors without a column")}\
    add.u32 %rank, %ranked, %thread;
    mul.lo.u32 %number, %blocks, ${windows.depth};
    setp.lt.u32 %inside, %rank, %number;
${place()}\
    mov.b32 %column, ${windows.absent};
    @%inside st.global.u32 [%ptr], %column;
FILLED:
    ret;
}

## Registers and shared memory of the kernels with a block a window. ``arrays``: of as many words as the bitmap.
<%def name="declarations(arrays)">
<% windows = plan.preparation %>\
    .reg .b64 %indptr, %indices, %window_starts, %ptr, %ptr_index;
    .reg .b32 %M, %thread, %lane, %warp, %window, %row, %begin, %end, %least, %most, %nonzero, %column, %base, %columns;
    .reg .b32 %round, %rounds, %word, %bitmap, %bit, %marks, %marks<4>, %number, %slots, %tmp0;
    .reg .pred %p, %empty, %inside, %some;
    .shared .align 16 .b8 bitmap[${windows.arrays_bytes[arrays]}];
    .shared .align 8 .b8 slots[${windows.slot_bytes}];
</%def>

## The nonzeros of the window of the block.
<%def name="window()">
<% windows = plan.preparation %>\
${ptx.banner("block to row window, and its nonzeros")}\
    mov.u32 %thread, %tid.x;
    and.b32 %lane, %thread, 31;
    shr.u32 %warp, %thread, 5;
    mov.u32 %bitmap, bitmap;
    mov.u32 %slots, slots;
    mov.u32 %window, %ctaid.x;
    mul.lo.u32 %row, %window, ${windows.rows};
    mad.wide.u32 %ptr, %row, 4, %indptr;
    ld.global.nc.u32 %begin, [%ptr];
    add.u32 %tmp0, %row, ${windows.rows};
    min.u32 %tmp0, %tmp0, %M;
    mad.wide.u32 %ptr, %tmp0, 4, %indptr;
    ld.global.nc.u32 %end, [%ptr];
    setp.eq.u32 %empty, %begin, %end;
</%def>

## The least and the greatest column of the window; the first range begins at the word of the least.
<%def name="columns()">
<% windows = plan.preparation %>\
${ptx.banner("the least and the greatest column")}\
    mov.b32 %least, 0xffffffff;
    mov.b32 %most, 0;
    add.u32 %nonzero, %begin, %thread;
EXTREMES:
    setp.ge.u32 %p, %nonzero, %end;
    @%p bra EXTREMES_OF_WARPS;
    mad.wide.u32 %ptr_index, %nonzero, 4, %indices;
    ld.global.nc.u32 %column, [%ptr_index];
    min.u32 %least, %least, %column;
    max.u32 %most, %most, %column;
    add.u32 %nonzero, %nonzero, ${windows.threads};
    bra EXTREMES;
EXTREMES_OF_WARPS:
    redux.sync.min.u32 %least, %least, 0xffffffff;
    redux.sync.max.u32 %most, %most, 0xffffffff;
    setp.eq.u32 %p, %lane, 0;
    mad.lo.u32 %word, %warp, 8, %slots;
    @%p st.shared.v2.u32 [%word], {%least, %most};
${ptx.banner("wait for the columns of all warps")}\
    bar.sync 0;
    and.b32 %word, %lane, ${windows.warp_mask};
    mad.lo.u32 %word, %word, 8, %slots;
    ld.shared.v2.u32 {%least, %most}, [%word];
    redux.sync.min.u32 %least, %least, 0xffffffff;
    redux.sync.max.u32 %most, %most, 0xffffffff;
    and.b32 %base, %least, 0xffffffe0;
</%def>

## Marks the columns of a range. %rounds: groups of 4 words of the bitmap that a thread has.
<%def name="mark()">
<% windows = plan.preparation %>\
${ptx.banner("clear the words of a range of columns")}\
    sub.u32 %columns, %most, %base;
    shr.u32 %columns, %columns, 5;
    add.u32 %columns, %columns, 1;
    min.u32 %columns, %columns, ${windows.bitmap};
    add.u32 %rounds, %columns, ${windows.round_mask};
    shr.u32 %rounds, %rounds, ${windows.log2_round_words};
    shl.b32 %columns, %columns, 5;
    mad.lo.u32 %word, %thread, 16, %bitmap;
    mov.b32 %round, 0;
    mov.b32 %marks, 0;
CLEAR:
    st.shared.v4.u32 [%word], {%marks, %marks, %marks, %marks};
    add.u32 %word, %word, ${windows.round_bytes};
    add.u32 %round, %round, 1;
    setp.lt.u32 %p, %round, %rounds;
    @%p bra CLEAR;
${ptx.banner("wait for the zeros, and mark the columns of the range")}\
    bar.sync 0;
    add.u32 %nonzero, %begin, %thread;
MARK:
    setp.ge.u32 %p, %nonzero, %end;
    @%p bra MARKED;
${offset()}\
    @%inside red.shared.or.b32 [%word], %bit;
    add.u32 %nonzero, %nonzero, ${windows.threads};
    bra MARK;
MARKED:
${ptx.banner("wait for all marks")}\
    bar.sync 0;
</%def>

## The word and the bit of the column of nonzero %nonzero. %inside: it is in the range.
<%def name="offset()">
    mad.wide.u32 %ptr_index, %nonzero, 4, %indices;
    ld.global.nc.u32 %column, [%ptr_index];
    sub.u32 %column, %column, %base;
    setp.lt.u32 %inside, %column, %columns;
    shr.u32 %word, %column, 5;
    mad.lo.u32 %word, %word, 4, %bitmap;
    and.b32 %column, %column, 31;
    mov.b32 %bit, 1;
    shl.b32 %bit, %bit, %column;
</%def>

## The first 4 words of a lane; a warp has adjacent words. %number: the index of the first one.
<%def name="first_word()">
    shl.b32 %number, %rounds, 5;
    mad.lo.u32 %number, %warp, %number, %lane;
    mad.lo.u32 %word, %number, 16, %bitmap;
    shl.b32 %number, %number, 2;
    mov.b32 %round, 0;
</%def>

## Four words. %some: they have a mark.
<%def name="load_words()">
    ld.shared.v4.u32 {%marks0, %marks1, %marks2, %marks3}, [%word];
    or.b32 %tmp0, %marks0, %marks1;
    or.b32 %tmp0, %tmp0, %marks2;
    or.b32 %tmp0, %tmp0, %marks3;
    setp.ne.u32 %some, %tmp0, 0;
</%def>

<%def name="next_word(label)">
    add.u32 %word, %word, 512;
    add.u32 %round, %round, 1;
    setp.lt.u32 %p, %round, %rounds;
    @%p bra ${label};
</%def>

<%def name="next_range()">
<% windows = plan.preparation %>\
    sub.u32 %tmp0, %most, %base;
    setp.lt.u32 %p, %tmp0, ${windows.range_columns};
    add.u32 %base, %base, ${windows.range_columns};
    @%p bra RANGES_END;
${ptx.banner("wait until all warps have read the bitmap; the next range")}\
    bar.sync 0;
    bra RANGE;
RANGES_END:
</%def>

## %number: ``value`` of the warp with the number of the lane, 0 in lanes without one.
<%def name="warp_numbers(value)">
<% windows = plan.preparation %>\
    setp.eq.u32 %p, %lane, 0;
    mad.lo.u32 %word, %warp, 4, %slots;
    @%p st.shared.u32 [%word], ${value};
    bar.sync 0;
    setp.lt.u32 %p, %lane, ${windows.warps};
    mad.lo.u32 %word, %lane, 4, %slots;
    mov.b32 %number, 0;
    @%p ld.shared.u32 %number, [%word];
</%def>

## Adds the values of lower lanes.
<%def name="add_lower_lanes(sum)">
% for distance in (1, 2, 4, 8, 16):
    shfl.sync.up.b32 %shuffled|%p, ${sum}, ${distance}, 0, 0xffffffff;
    @%p add.u32 ${sum}, ${sum}, %shuffled;
% endfor
</%def>

## %block: the block of vector %rank of the window; %place: its place there; %ptr: the address of its column.
<%def name="place()">
<% windows = plan.preparation %>\
    shr.u32 %block, %rank, ${windows.log2_depth};
    and.b32 %place, %rank, 3;
    shl.b32 %place, %place, ${windows.log2_lane_places};
    bfe.u32 %tmp0, %rank, 2, ${windows.log2_lane_places};
    add.u32 %place, %place, %tmp0;
    mad.wide.u32 %ptr, %block, ${windows.column_bytes}, %window_columns;
    mad.wide.u32 %ptr, %place, 4, %ptr;
</%def>
