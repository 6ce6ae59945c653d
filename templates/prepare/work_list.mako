## The work list of a sparse matrix: parts of segments, by length. Threads have ${plan.preparation.each} segments, ${plan.preparation.threads} apart.
<%inherit file="module.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<% work = plan.preparation %>\
.visible .entry count_parts(
% for line in work.count.declarations:
    ${line}
% endfor
)
.maxntid ${work.threads}, 1, 1
{
${registers()}\
    .shared .align 4 .b8 bins[${work.counter_bytes}];
    ld.param.u64 %starts, [${work.starts}];  cvta.to.global.u64 %starts, %starts;
    ld.param.u64 %counts, [counts];  cvta.to.global.u64 %counts, %counts;
    ld.param.u32 %segments, [segments];  ld.param.u32 %longest, [longest];
    mov.u32 %thread, %tid.x;
    mov.u32 %smem, bins;
${ptx.banner("parts of this block, by length; the last word counts the parts of split segments")}\
    mad.lo.u32 %own, %thread, 4, %smem;
    setp.le.u32 %p, %thread, ${work.bins};
    @%p st.shared.u32 [%own], 0;
    // ---- wait: all counters are 0
    bar.sync 0;
% for n in range(work.each):
${part_of_segment(n, f"COUNTED_{n}")}\
    mad.lo.u32 %bin, %bin, 4, %smem;
    red.shared.add.u32 [%bin], %parts;
    setp.gt.u32 %p, %parts, 1;
    @%p red.shared.add.u32 [%smem+${work.bin_bytes}], %parts;
COUNTED_${n}:
% endfor
    // ---- wait: all threads have counted
    bar.sync 0;
    setp.gt.u32 %p, %thread, ${work.bins};
    @%p bra DONE;
    ld.shared.u32 %parts, [%own];
    mov.u32 %block, %ctaid.x;
    mov.u32 %tmp0, %nctaid.x;
    mad.lo.u32 %tmp0, %thread, %tmp0, %block;
    mad.wide.u32 %ptr, %tmp0, 4, %counts;
    st.global.u32 [%ptr], %parts;
DONE:
    ret;
}

.visible .entry scan_parts(
% for line in work.scan.declarations:
    ${line}
% endfor
)
.maxntid ${work.scan_threads}, 1, 1
{
    .reg .b64 %counts, %sizes, %ptr;
    .reg .b32 %thread, %lane, %warp, %blocks, %first, %count, %from, %carry, %total, %own, %sum, %from_left, %tmp0, %smem;
    .reg .b32 %word<4>;
    .reg .pred %p, %inside<4>, %last, %more;
    .shared .align 4 .b8 sums[${work.scan_sum_bytes}];
    ld.param.u64 %counts, [counts];  cvta.to.global.u64 %counts, %counts;
    ld.param.u64 %sizes, [sizes];  cvta.to.global.u64 %sizes, %sizes;
    ld.param.u32 %blocks, [blocks];
    mov.u32 %thread, %tid.x;
    and.b32 %lane, %thread, 31;
    shr.u32 %warp, %thread, 5;
    mov.u32 %smem, sums;
    mad.lo.u32 %own, %warp, 4, %smem;
    mov.b32 %first, 0;
    mul.lo.u32 %count, %blocks, ${work.bins};
${scan("items", 0)}\
    mov.u32 %first, %count;
    add.u32 %count, %count, %blocks;
${scan("parts", 4)}\
    ret;
}

.visible .entry place_parts(
% for line in work.place.declarations:
    ${line}
% endfor
)
.maxntid ${work.threads}, 1, 1
{
${registers()}\
    .reg .b64 %items, %part_rows, %ptr_item;
    .reg .b32 %place, %number, %part_id, %done;
    .shared .align 4 .b8 bins[${work.counter_bytes}];
    ld.param.u64 %starts, [${work.starts}];  cvta.to.global.u64 %starts, %starts;
    ld.param.u64 %counts, [counts];  cvta.to.global.u64 %counts, %counts;
    ld.param.u64 %items, [items];  cvta.to.global.u64 %items, %items;
    ld.param.u64 %part_rows, [parts];  cvta.to.global.u64 %part_rows, %part_rows;
    ld.param.u32 %segments, [segments];  ld.param.u32 %longest, [longest];
    mov.u32 %thread, %tid.x;
    mov.u32 %smem, bins;
${ptx.banner("the first item of each length of this block, and its first part of a split segment")}\
    mov.u32 %block, %ctaid.x;
    mov.u32 %tmp0, %nctaid.x;
    mad.lo.u32 %tmp0, %thread, %tmp0, %block;
    mad.wide.u32 %ptr, %tmp0, 4, %counts;
    mad.lo.u32 %own, %thread, 4, %smem;
    setp.le.u32 %p, %thread, ${work.bins};
    @%p ld.global.u32 %tmp0, [%ptr];
    @%p st.shared.u32 [%own], %tmp0;
    // ---- wait: all first items are in shared memory
    bar.sync 0;
% for n in range(work.each):
${part_of_segment(n, f"PLACED_{n}")}\
    mad.lo.u32 %bin, %bin, 4, %smem;
    atom.shared.add.u32 %place, [%bin], %parts;
    mad.wide.u32 %ptr_item, %place, 16, %items;
    mov.b32 %number, ${work.whole};
    setp.gt.u32 %p, %parts, 1;
    @%p atom.shared.add.u32 %number, [%smem+${work.bin_bytes}], %parts;
    mov.u32 %part_id, %number;
    mad.wide.u32 %ptr, %number, 8, %part_rows;
    mov.b32 %done, 0;
    .pragma "nounroll";
PART_${n}:
    add.u32 %tmp0, %begin, %size;
    min.u32 %tmp0, %tmp0, %end;
    st.global.v4.u32 [%ptr_item], {%segment, %begin, %tmp0, %part_id};
    @%p st.global.v2.u32 [%ptr], {%number, %parts};
    add.u32 %begin, %begin, %size;
    add.u64 %ptr_item, %ptr_item, 16;
    add.u64 %ptr, %ptr, 8;
    add.u32 %done, %done, 1;
    @%p add.u32 %part_id, %part_id, 1;
    setp.lt.u32 %more, %done, %parts;
    @%more bra PART_${n};
PLACED_${n}:
% endfor
    ret;
}

<%def name="registers()">
    .reg .b64 %starts, %counts, %ptr;
    .reg .b32 %thread, %block, %segments, %longest, %segment, %begin, %end, %length, %parts, %size, %bin, %log, %own, %tmp0, %smem;
    .reg .pred %p, %more;
</%def>

## Segment n of this thread: its nonzeros %begin to %end, its number of parts, their length %size, and the bin of that.
<%def name="part_of_segment(n, skip)">
<% work = plan.preparation %>\
${ptx.banner(f"segment {n} of this thread")}\
    mov.u32 %segment, %ctaid.x;
    mad.lo.u32 %segment, %segment, ${work.block_segments}, %thread;
    add.u32 %segment, %segment, ${work.segment_offsets[n]};
    setp.ge.u32 %p, %segment, %segments;
    @%p bra ${skip};
    mad.wide.u32 %ptr, %segment, 4, %starts;
    ld.global.u32 %begin, [%ptr];
    ld.global.u32 %end, [%ptr+4];
    sub.u32 %length, %end, %begin;
    add.u32 %parts, %length, %longest;
    sub.u32 %parts, %parts, 1;
    div.u32 %parts, %parts, %longest;
    max.u32 %parts, %parts, 1;
    add.u32 %size, %length, %parts;
    sub.u32 %size, %size, 1;
    div.u32 %size, %size, %parts;
    // four bins for each power of two, the longest parts first
    clz.b32 %log, %size;
    sub.u32 %log, 31, %log;
    max.s32 %log, %log, 2;
    sub.u32 %tmp0, %log, 2;
    shr.u32 %bin, %size, %tmp0;
    mad.lo.u32 %bin, %tmp0, 4, %bin;
    sub.u32 %bin, ${work.last_bin}, %bin;
</%def>

## Replaces words %first to %count of %counts by the sums of those before them, and stores the sum of all as a size.
<%def name="scan(name, at)">
${ptx.banner(f"scan of {name}: each round has {plan.preparation.scan_threads} threads with 4 words")}\
    mov.b32 %carry, 0;
    mad.lo.u32 %from, %thread, 4, %first;
SCAN_${name}:
    mad.wide.u32 %ptr, %from, 4, %counts;
% for i, offset in enumerate((0, 4, 8, 12)):
    add.u32 %tmp0, %from, ${i};
    setp.lt.u32 %inside${i}, %tmp0, %count;
    mov.b32 %word${i}, 0;
    @%inside${i} ld.global.u32 %word${i}, [%ptr+${offset}];
% endfor
    add.u32 %sum, %word0, %word1;
    add.u32 %sum, %sum, %word2;
    add.u32 %sum, %sum, %word3;
    mov.u32 %total, %sum;
% for distance in (1, 2, 4, 8, 16):
    shfl.sync.up.b32 %from_left|%p, %sum, ${distance}, 0, 0xffffffff;
    @%p add.u32 %sum, %sum, %from_left;
% endfor
    setp.eq.u32 %last, %lane, 31;
    @%last st.shared.u32 [%own], %sum;
    sub.u32 %total, %sum, %total; // the sum of the lanes before
    // ---- wait: the sums of all warps are in shared memory
    bar.sync 0;
    ld.shared.u32 %sum, [%smem+${plan.preparation.scan_sum_offsets[-1]}];
    add.u32 %total, %total, %carry;
    add.u32 %carry, %carry, %sum;
% for w, offset in enumerate(plan.preparation.scan_sum_offsets[:-1]):
    ld.shared.u32 %sum, [%smem+${offset}];
    setp.gt.u32 %p, %warp, ${w};
    @%p add.u32 %total, %total, %sum;
    add.u32 %carry, %carry, %sum;
% endfor
% for i, offset in enumerate((0, 4, 8, 12)):
    @%inside${i} st.global.u32 [%ptr+${offset}], %total;
    add.u32 %total, %total, %word${i};
% endfor
    // ---- wait: all threads have read the sums
    bar.sync 0;
    add.u32 %from, %from, ${plan.preparation.scan_step};
    sub.u32 %tmp0, %from, %thread;
    sub.u32 %tmp0, %tmp0, %thread;
    sub.u32 %tmp0, %tmp0, %thread;
    sub.u32 %tmp0, %tmp0, %thread;
    setp.lt.u32 %more, %tmp0, %count;
    @%more bra SCAN_${name};
    setp.eq.u32 %p, %thread, 0;
    @%p st.global.u32 [%sizes+${at}], %carry;
</%def>
