## The statistics of a sparse matrix in CSR, and the first places at which its pattern is invalid. Three kernels add to one
## record of 64-bit integers. They read only inside the arrays, whatever the row pointers and columns are.
<%inherit file="module.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<% at, size, load = plan.preparation.offsets, plan.preparation.size, plan.preparation.load %>\
.visible .entry csr_rows(
${parameters()}\
)
.maxntid ${plan.preparation.threads}, 1, 1
{
${registers()}\
    .reg .b32 %window, %windows, %row, %bin, %length, %longest, %descents, %low, %high;
    .reg .b64 %begin, %end, %first, %length64, %squares, %square, %previous, %column, %sum;
    .shared .align 4 .b8 counters[${plan.preparation.row_counter_bytes}];
${load_parameters()}\
    mov.u32 %smem, counters;
${ptx.banner("counters of the block, which wait for zeros: rows, nonzeros (two words) of each bin; squares (three words); descents; maxima")}\
    mad.lo.u32 %address, %thread, 4, %smem;
    setp.lt.u32 %p, %thread, ${plan.preparation.row_counters};
    @%p st.shared.u32 [%address], 0;
    bar.sync 0;
${ptx.banner("one row window of 8 rows per thread")}\
    mov.u32 %window, %ctaid.x;
    mad.lo.u32 %window, %window, ${plan.preparation.threads}, %thread;
    shl.b32 %row, %window, 3;
    mov.b32 %longest, 0;
    mov.b32 %descents, 0;
    mov.b64 %squares, 0;
    setp.ge.u32 %p, %row, %M;
    @%p bra ROWS_ADDED;
    mad.wide.u32 %pointer, %row, ${size}, %indptr;
    ld.global.${load} %begin, [%pointer];
    mov.b64 %first, %begin;
    setp.eq.u32 %p, %row, 0;
    @%p st.global.u64 [%record+${at["first"]}], %begin;
ROW_LOOP:
    ld.global.${load} %end, [%pointer+${size}];
    sub.s64 %length64, %end, %begin;
    setp.ge.s64 %p, %length64, 0;
    @%p bra ROW_IS_ORDERED;
    sub.u32 %low, %M, %row; // the first fall has the greatest number
    cvt.u64.u32 %sum, %low;
    red.global.max.u64 [%record+${at["falls"]}], %sum;
    mov.b64 %length64, 0;
ROW_IS_ORDERED:
    min.u64 %length64, %length64, 0x7fffffff;
    cvt.u32.u64 %length, %length64;
    max.u32 %longest, %longest, %length;
    mad.lo.u64 %squares, %length64, %length64, %squares;
    setp.eq.u32 %empty, %length, 0;
    sub.u32 %bin, %length, 1;
    clz.b32 %bin, %bin;
    sub.u32 %bin, 33, %bin;
    @%empty mov.b32 %bin, 0;
    mad.lo.u32 %address, %bin, 12, %smem;
    red.shared.add.u32 [%address], 1;
    @%empty bra NEXT_ROW;
    and.b32 %low, %length, 0xffff;
    shr.u32 %high, %length, 16;
    red.shared.add.u32 [%address+4], %low;
    red.shared.add.u32 [%address+8], %high;
    setp.gt.s64 %p, %begin, 0; // a row begins below the column before it: a descent that is none of a row
    setp.lt.s64.and %p, %begin, %nnz, %p;
    @!%p bra NEXT_ROW;
    mad.lo.s64 %pointer, %begin, ${size}, %indices;
    ld.global.${load} %previous, [%pointer+-${size}];
    ld.global.${load} %column, [%pointer];
    setp.le.s64 %p, %column, %previous;
    @%p add.u32 %descents, %descents, 1;
NEXT_ROW:
    mov.b64 %begin, %end;
    add.u32 %row, %row, 1;
    mad.wide.u32 %pointer, %row, ${size}, %indptr;
    setp.eq.u32 %p, %row, %M;
    @%p st.global.u64 [%record+${at["last"]}], %end;
    and.b32 %low, %row, 7;
    setp.ne.u32.and %more, %low, 0, !%p;
    @%more bra ROW_LOOP;
    sub.s64 %length64, %end, %first;
    max.s64 %length64, %length64, 0;
    min.u64 %length64, %length64, 0xffffffff;
    cvt.u32.u64 %length, %length64;
    red.shared.max.u32 [%smem+${plan.preparation.counters["longest"]}], %longest;
    red.shared.max.u32 [%smem+${plan.preparation.counters["longest_window"]}], %length;
    red.shared.add.u32 [%smem+${plan.preparation.counters["starts"]}], %descents;
% for offset in plan.preparation.square_counters:
    cvt.u32.u64 %low, %squares;
    and.b32 %low, %low, 0x3fffff;
    red.shared.add.u32 [%smem+${offset}], %low;
    shr.u64 %squares, %squares, 22;
% endfor
ROWS_ADDED:
${ptx.banner("wait for the counters of all threads")}\
    bar.sync 0;
${ptx.banner("the counters are added to the record: one bin per thread; the last thread adds the others")}\
    setp.lt.u32 %p, %thread, ${plan.preparation.bins};
    @!%p bra BINS_ADDED;
    mad.lo.u32 %address, %thread, 12, %smem;
    ld.shared.u32 %low, [%address];
    setp.eq.u32 %empty, %low, 0;
    @%empty bra BINS_ADDED;
    mad.wide.u32 %pointer, %thread, 8, %record;
    cvt.u64.u32 %sum, %low;
    red.global.add.u64 [%pointer+${at["rows"]}], %sum;
    ld.shared.u32 %low, [%address+4];
    ld.shared.u32 %high, [%address+8];
    cvt.u64.u32 %sum, %low;
    cvt.u64.u32 %square, %high;
    mad.lo.u64 %sum, %square, 65536, %sum;
    red.global.add.u64 [%pointer+${at["nonzeros"]}], %sum;
BINS_ADDED:
    setp.ne.u32 %p, %thread, ${plan.preparation.last_thread};
    @%p bra ROWS_DONE;
% for name, reduction in (("longest", "max"), ("longest_window", "max"), ("starts", "add")):
    ld.shared.u32 %low, [%smem+${plan.preparation.counters[name]}];
    cvt.u64.u32 %sum, %low;
    red.global.${reduction}.u64 [%record+${at[name]}], %sum;
% endfor
    mov.b64 %sum, 0;
% for offset in reversed(plan.preparation.square_counters):
    ld.shared.u32 %low, [%smem+${offset}];
    cvt.u64.u32 %square, %low;
    mad.lo.u64 %sum, %sum, 4194304, %square;
% endfor
    red.global.add.u64 [%record+${at["squares"]}], %sum;
ROWS_DONE:
    ret;
}

.visible .entry csr_columns(
${parameters()}\
)
.maxntid ${plan.preparation.threads}, 1, 1
{
${registers()}\
    .reg .b32 %descents, %loops;
    .reg .b64 %nonzero, %column, %previous, %left;
    .shared .align 4 .b8 descents[4];
${load_parameters()}\
    mov.u32 %smem, descents;
    setp.eq.u32 %first_thread, %thread, 0;
    @%first_thread st.shared.u32 [%smem], 0;
${ptx.banner("wait for the counter")}\
    bar.sync 0;
${ptx.banner(f"{plan.preparation.columns_per_thread} columns per thread: those outside the matrix, and those not above the one before")}\
    mov.u32 %tmp, %ctaid.x;
    mul.wide.u32 %nonzero, %tmp, ${plan.preparation.block_columns};
    cvt.u64.u32 %left, %thread;
    add.u64 %nonzero, %nonzero, %left;
    mov.b32 %descents, 0;
    mov.b32 %loops, 0;
    cvt.u64.u32 %left, %K;
COLUMN_LOOP:
    setp.ge.u64 %p, %nonzero, %nnz;
    @%p bra COLUMNS_READ;
    mad.lo.u64 %pointer, %nonzero, ${size}, %indices;
    ld.global.${load} %column, [%pointer];
    setp.lt.u64 %p, %column, %left;
    @%p bra COLUMN_IS_INSIDE;
    sub.u64 %previous, %nnz, %nonzero; // the first one has the greatest number
    red.global.max.u64 [%record+${at["outside"]}], %previous;
COLUMN_IS_INSIDE:
    setp.eq.u64 %p, %nonzero, 0;
    @%p bra NEXT_COLUMN;
    ld.global.${load} %previous, [%pointer+-${size}];
    setp.le.s64 %p, %column, %previous;
    @%p add.u32 %descents, %descents, 1;
NEXT_COLUMN:
    add.u64 %nonzero, %nonzero, ${plan.preparation.threads};
    add.u32 %loops, %loops, 1;
    setp.lt.u32 %p, %loops, ${plan.preparation.columns_per_thread};
    @%p bra COLUMN_LOOP;
COLUMNS_READ:
    setp.ne.u32 %p, %descents, 0;
    @%p red.shared.add.u32 [%smem], %descents;
${ptx.banner("wait for the descents of all threads")}\
    bar.sync 0;
    @!%first_thread bra COLUMNS_DONE;
    ld.shared.u32 %descents, [%smem];
    cvt.u64.u32 %left, %descents;
    setp.ne.u32 %p, %descents, 0;
    @%p red.global.add.u64 [%record+${at["descents"]}], %left;
COLUMNS_DONE:
    ret;
}

.visible .entry csr_samples(
${parameters()}\
)
.maxntid ${plan.preparation.threads}, 1, 1
{
${registers()}\
    .reg .b32 %sample, %samples, %row, %last_row, %step, %residue, %column32, %place, %bit, %window, %word, %words;
    .reg .b32 %counted, %gap_bits, %vectors, %columns, %gaps, %row_gap_bits, %low, %any, %bits;
    .reg .b64 %begin, %end, %nonzero, %column, %previous, %column_count, %start<9>, %sum, %high;
    .shared .align 4 .b8 bitmaps[${plan.preparation.bitmaps}];
    .shared .align 4 .b8 sums[${plan.preparation.sample_counter_bytes}];
${load_parameters()}\
    cvt.u64.u32 %column_count, %K;
${ptx.banner("a bitmap for each row window, and the counters, become zero: threads wait for them")}\
    mov.u32 %smem, bitmaps;
    mov.b32 %word, %thread;
CLEAR_LOOP:
    mad.lo.u32 %address, %word, 4, %smem;
    st.shared.u32 [%address], 0;
    add.u32 %word, %word, ${plan.preparation.threads};
    setp.lt.u32 %p, %word, ${plan.preparation.bitmap_words_of_all};
    @%p bra CLEAR_LOOP;
    mov.u32 %tmp, sums;
    mad.lo.u32 %address, %thread, 4, %tmp;
    setp.lt.u32 %p, %thread, ${plan.preparation.sample_counters};
    @%p st.shared.u32 [%address], 0;
    bar.sync 0;
${ptx.banner("the first row of the sample: samples are adjacent, or at about equal distances")}\
    mov.u32 %sample, %ctaid.x;
    add.u32 %samples, %M, ${plan.preparation.row_mask};
    shr.u32 %samples, %samples, ${plan.preparation.log2_rows};
    mov.b32 %row, %sample;
    setp.le.u32 %p, %samples, ${plan.preparation.most_samples};
    @%p bra SAMPLE_IS_KNOWN;
    mul.wide.u32 %sum, %sample, %samples;
    shr.u64 %sum, %sum, 8;
    cvt.u32.u64 %row, %sum;
    mul.lo.u32 %tmp, %sample, ${plan.preparation.spread};
    shr.u32 %tmp, %tmp, 24;
    shr.u32 %low, %samples, 8;
    mul.wide.u32 %sum, %tmp, %low;
    shr.u64 %sum, %sum, 8;
    cvt.u32.u64 %tmp, %sum;
    add.u32 %row, %row, %tmp;
SAMPLE_IS_KNOWN:
    shl.b32 %row, %row, ${plan.preparation.log2_rows};
    add.u32 %step, %K, ${plan.preparation.position_mask};
    shr.u32 %step, %step, ${plan.preparation.log2_positions};
    max.u32 %step, %step, 1;
    rem.u32 %residue, %sample, %step;
% for i, first in enumerate(plan.preparation.window_rows):
    add.u32 %tmp, %row, ${first};
    min.u32 %tmp, %tmp, %M;
${pointer(f"%start{i}", "%tmp")}\
% endfor
    mov.b32 %counted, 0;
    mov.b32 %gap_bits, 0;
    mov.b32 %gaps, 0;
    mov.b32 %row_gap_bits, 0;
${ptx.banner("one row per thread: pairs of nonzeros of the row, and the gap before its first nonzero, which is none of a row")}\
    add.u32 %last_row, %row, %thread;
    setp.ge.u32 %p, %thread, ${plan.preparation.rows};
    setp.ge.u32.or %p, %last_row, %M, %p;
    @%p bra ROW_IS_READ;
${pointer("%begin", "%last_row")}\
    add.u32 %last_row, %last_row, 1;
${pointer("%end", "%last_row")}\
    setp.ge.s64 %p, %begin, %end;
    @%p bra ROW_IS_READ;
    sub.s64 %sum, %end, %begin;
    cvt.u32.u64 %gaps, %sum;
    sub.u32 %gaps, %gaps, 1;
    setp.le.s64 %p, %begin, %start0;
    @%p bra ROW_IS_READ;
    mad.lo.s64 %pointer, %begin, ${size}, %indices;
${gap("%row_gap_bits", "ROW_IS_READ")}\
ROW_IS_READ:
${ptx.banner("all nonzeros of the sample: pairs of neighbours, and bits of chosen columns")}\
    cvt.u64.u32 %nonzero, %thread;
    add.s64 %nonzero, %nonzero, %start0;
NONZERO_LOOP:
    setp.ge.s64 %p, %nonzero, %start${plan.preparation.windows};
    @%p bra NONZEROS_READ;
    mad.lo.s64 %pointer, %nonzero, ${size}, %indices;
    setp.le.s64 %p, %nonzero, %start0;
    @%p bra PAIR_IS_READ;
${gap("%gap_bits", "PAIR_IS_READ")}\
PAIR_IS_READ:
    ld.global.${load} %column, [%pointer];
    setp.ge.u64 %p, %column, %column_count;
    @%p bra NEXT_NONZERO;
    cvt.u32.u64 %column32, %column;
    div.u32 %place, %column32, %step;
    mul.lo.u32 %tmp, %place, %step;
    sub.u32 %tmp, %column32, %tmp;
    setp.ne.u32 %p, %tmp, %residue;
    @%p bra NEXT_NONZERO;
    add.u32 %counted, %counted, 1;
    mov.b32 %window, 0;
% for i, offset in list(enumerate(plan.preparation.bitmap_offsets))[1:]:
    setp.ge.s64 %p, %nonzero, %start${i};
    @%p mov.b32 %window, ${offset};
% endfor
    shr.u32 %address, %place, 5;
    mad.lo.u32 %address, %address, 4, %window;
    add.u32 %address, %address, %smem;
    and.b32 %bit, %place, 31;
    shl.b32 %bit, 1, %bit;
    red.shared.or.b32 [%address], %bit;
NEXT_NONZERO:
    add.s64 %nonzero, %nonzero, ${plan.preparation.threads};
    bra NONZERO_LOOP;
NONZEROS_READ:
${ptx.banner("wait for the bitmaps")}\
    bar.sync 0;
${ptx.banner("distinct 8x1 vectors: bits of all windows; distinct columns: bits of any window")}\
    mov.b32 %vectors, 0;
    mov.b32 %columns, 0;
    mov.b32 %word, %thread;
WORD_LOOP:
    mad.lo.u32 %address, %word, 4, %smem;
    mov.b32 %any, 0;
% for offset in plan.preparation.bitmap_offsets:
    ld.shared.u32 %bits, [%address+${offset}];
    or.b32 %any, %any, %bits;
    popc.b32 %tmp, %bits;
    add.u32 %vectors, %vectors, %tmp;
% endfor
    popc.b32 %tmp, %any;
    add.u32 %columns, %columns, %tmp;
    add.u32 %word, %word, ${plan.preparation.threads};
    setp.lt.u32 %p, %word, ${plan.preparation.bitmap_words};
    @%p bra WORD_LOOP;
${ptx.banner("sums of the block in two words each; wait for all threads; then the record")}\
    mov.u32 %smem, sums;
% for name, low, high in plan.preparation.sample_sums:
    and.b32 %low, %${name}, 0xffff;
    shr.u32 %tmp, %${name}, 16;
    red.shared.add.u32 [%smem+${low}], %low;
    red.shared.add.u32 [%smem+${high}], %tmp;
% endfor
    bar.sync 0;
    setp.ge.u32 %p, %thread, ${len(plan.preparation.SAMPLE_SUMS)};
    @%p bra SAMPLES_DONE;
    mad.lo.u32 %address, %thread, 8, %smem;
    ld.shared.u32 %low, [%address];
    ld.shared.u32 %tmp, [%address+4];
    cvt.u64.u32 %sum, %low;
    cvt.u64.u32 %high, %tmp;
    mad.lo.u64 %sum, %high, 65536, %sum;
    mad.wide.u32 %pointer, %thread, 8, %record;
    red.global.add.u64 [%pointer+${at[plan.preparation.SAMPLE_SUMS[0]]}], %sum;
SAMPLES_DONE:
    ret;
}

<%def name="parameters()">
% for line in plan.preparation.parameters.declarations:
    ${line}
% endfor
</%def>\

<%def name="registers()">
    .reg .b64 %indptr, %indices, %record, %nnz, %pointer;
    .reg .b32 %M, %K, %thread, %smem, %address, %tmp;
    .reg .pred %p, %more, %empty, %first_thread;
</%def>

<%def name="load_parameters()">
% for name in ("indptr", "indices", "record"):
    ld.param.u64 %${name}, [${name}];  cvta.to.global.u64 %${name}, %${name};
% endfor
    ld.param.u64 %nnz, [nnz];  ld.param.u32 %M, [M];  ld.param.u32 %K, [K];
    mov.u32 %thread, %tid.x;
</%def>

## The row pointer of a row, moved into the array of the columns.
<%def name="pointer(into, row)">
    mad.wide.u32 %pointer, ${row}, ${plan.preparation.size}, %indptr;
    ld.global.${plan.preparation.load} ${into}, [%pointer];
    max.s64 ${into}, ${into}, 0;
    min.s64 ${into}, ${into}, %nnz;
</%def>

## Adds the bit length of the difference of the columns at %pointer and before it.
<%def name="gap(into, after)">
    ld.global.${plan.preparation.load} %column, [%pointer];
    ld.global.${plan.preparation.load} %previous, [%pointer+-${plan.preparation.size}];
    setp.ge.u64 %p, %column, %column_count;
    setp.ge.u64.or %p, %previous, %column_count, %p;
    @%p bra ${after};
    sub.s64 %sum, %column, %previous;
    abs.s64 %sum, %sum;
    cvt.u32.u64 %tmp, %sum;
    clz.b32 %tmp, %tmp;
    sub.u32 %tmp, 32, %tmp;
    add.u32 ${into}, ${into}, %tmp;
</%def>
