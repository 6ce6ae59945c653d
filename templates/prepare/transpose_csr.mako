## The pattern of the transpose of a sparse matrix in CSR. The nonzeros are sorted by column, stably, by one digit of the
## columns after the other. A warp has a chunk of consecutive nonzeros, and counts of its own in shared memory.
<%inherit file="module.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="search" file="first_place.mako"/>\
<% t = plan.preparation %>\
.visible .entry count_digits(
% for line in t.count.declarations:
    ${line}
% endfor
)
.maxntid ${t.threads}, 1, 1
{
${chunk_registers()}\
    .shared .align 4 .b8 counters[${t.counter_bytes}];
    ld.param.u64 %keys, [keys];  cvta.to.global.u64 %keys, %keys;
    ld.param.u64 %counts, [counts];  cvta.to.global.u64 %counts, %counts;
${chunk_of_warp()}\
    @%p bra COUNTED;
${ptx.banner("the counters of the warp become zero; a lane has every 32nd")}\
% for _, offset in t.lane_digits:
    st.shared.u32 [%own+${offset}], 0;
% endfor
    bar.warp.sync 0xffffffff;
KEY_LOOP:
    setp.lt.u32 %inside, %nonzero, %end;
    mad.wide.u32 %ptr, %nonzero, 4, %keys;
    mov.b32 %digit, 0;
    @%inside ld.global.u32 %digit, [%ptr];
    bfe.u32 %digit, %digit, %shift, ${t.bits};
    mad.lo.u32 %address, %digit, 4, %smem;
    @%inside red.shared.add.u32 [%address], 1;
    add.u32 %nonzero, %nonzero, 32;
    sub.u32 %tmp0, %nonzero, %lane;
    setp.lt.u32 %p, %tmp0, %end;
    @%p bra KEY_LOOP;
    bar.warp.sync 0xffffffff;
${ptx.banner("counts of a digit are adjacent, those of all chunks")}\
% for digit, offset in t.lane_digits:
    ld.shared.u32 %tmp0, [%own+${offset}];
    add.u32 %digit, %lane, ${digit};
    mad.lo.u32 %digit, %digit, %chunks, %chunk;
    mad.wide.u32 %ptr, %digit, 4, %counts;
    st.global.u32 [%ptr], %tmp0;
% endfor
COUNTED:
    ret;
}

.visible .entry scan_digits(
% for line in t.scan.declarations:
    ${line}
% endfor
)
.maxntid ${t.scan_threads}, 1, 1
{
    .reg .b64 %counts, %ptr;
    .reg .b32 %thread, %lane, %warp, %from, %chunks, %count, %carry, %sum, %total, %from_left, %smem, %own, %tmp0;
    .reg .b32 %word<4>;
    .reg .pred %p, %inside, %last, %more;
    .shared .align 4 .b8 sums[${t.scan_sum_bytes}];
    ld.param.u64 %counts, [counts];  cvta.to.global.u64 %counts, %counts;
    ld.param.u32 %chunks, [chunks];
    mov.u32 %thread, %tid.x;
    and.b32 %lane, %thread, 31;
    shr.u32 %warp, %thread, 5;
    mov.u32 %smem, sums;
    mad.lo.u32 %own, %warp, 4, %smem;
    mul.lo.u32 %count, %chunks, ${t.digits};
    mov.b32 %carry, 0;
    mad.lo.u32 %from, %thread, 4, 0;
    mov.b32 %tmp0, 0;
SCAN:
${ptx.banner(f"each round replaces {t.scan_step} counts by the sums of those before them")}\
    mad.wide.u32 %ptr, %from, 4, %counts;
    setp.lt.u32 %inside, %from, %count;
% for i in range(4):
    mov.b32 %word${i}, 0;
% endfor
    @%inside ld.global.v4.u32 {%word0, %word1, %word2, %word3}, [%ptr];
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
    add.u32 %total, %total, %carry;
% for w, offset in enumerate(t.scan_sum_offsets):
    ld.shared.u32 %sum, [%smem+${offset}];
    setp.gt.u32 %p, %warp, ${w};
    @%p add.u32 %total, %total, %sum;
    add.u32 %carry, %carry, %sum;
% endfor
    add.u32 %word3, %word2, %word1; // the sums before each of the four
    add.u32 %word3, %word3, %word0;
    add.u32 %word2, %word1, %word0;
    mov.u32 %word1, %word0;
    mov.b32 %word0, 0;
% for i in range(4):
    add.u32 %word${i}, %word${i}, %total;
% endfor
    @%inside st.global.v4.u32 [%ptr], {%word0, %word1, %word2, %word3};
    // ---- wait: all threads have read the sums
    bar.sync 0;
    add.u32 %from, %from, ${t.scan_step};
    add.u32 %tmp0, %tmp0, ${t.scan_step};
    setp.lt.u32 %more, %tmp0, %count;
    @%more bra SCAN;
    ret;
}

.visible .entry place_keys(
% for line in t.place.declarations:
    ${line}
% endfor
)
.maxntid ${t.threads}, 1, 1
{
${chunk_registers()}\
    .reg .b64 %ids, %keys_to, %ids_to;
    .reg .b32 %key, %id, %same, %bit, %before, %place, %first_pass;
    .reg .pred %set, %leader, %given;
    .shared .align 4 .b8 counters[${t.counter_bytes}];
% for name in ("keys", "ids", "keys_to", "ids_to", "counts"):
    ld.param.u64 %${name}, [${name}];  cvta.to.global.u64 %${name}, %${name};
% endfor
    ld.param.u32 %first_pass, [first_pass];
    setp.eq.u32 %given, %first_pass, 0;
${chunk_of_warp()}\
    @%p bra PLACED;
${ptx.banner("the place of the next nonzero of each digit")}\
% for digit, offset in t.lane_digits:
    add.u32 %digit, %lane, ${digit};
    mad.lo.u32 %digit, %digit, %chunks, %chunk;
    mad.wide.u32 %ptr, %digit, 4, %counts;
    ld.global.u32 %tmp0, [%ptr];
    st.shared.u32 [%own+${offset}], %tmp0;
% endfor
    bar.warp.sync 0xffffffff;
NONZERO_LOOP:
    setp.lt.u32 %inside, %nonzero, %end;
    mad.wide.u32 %ptr, %nonzero, 4, %keys;
    mov.b32 %key, 0;
    @%inside ld.global.u32 %key, [%ptr];
    bfe.u32 %digit, %key, %shift, ${t.bits};
    // the first pass has the numbers of the nonzeros
    mov.u32 %id, %nonzero;
    mad.wide.u32 %ptr, %nonzero, 4, %ids;
    setp.lt.u32.and %set, %nonzero, %end, %given;
    @%set ld.global.u32 %id, [%ptr];
${ptx.banner("%same: lanes with this digit; those before this one have the places before it")}\
    vote.sync.ballot.b32 %same, %inside, 0xffffffff;
% for bit in t.digit_bits:
    and.b32 %tmp0, %digit, ${bit};
    setp.ne.u32 %set, %tmp0, 0;
    vote.sync.ballot.b32 %bit, %set, 0xffffffff;
    @!%set not.b32 %bit, %bit;
    and.b32 %same, %same, %bit;
% endfor
    mov.u32 %tmp0, %lanemask_lt;
    and.b32 %before, %same, %tmp0;
    popc.b32 %before, %before;
    popc.b32 %same, %same;
    mad.lo.u32 %address, %digit, 4, %smem;
    mov.b32 %place, 0;
    @%inside ld.shared.u32 %place, [%address];
    setp.eq.u32.and %leader, %before, 0, %inside;
    add.u32 %tmp0, %place, %same;
    bar.warp.sync 0xffffffff;
    @%leader st.shared.u32 [%address], %tmp0;
    add.u32 %place, %place, %before;
    mad.wide.u32 %ptr, %place, 4, %keys_to;
    @%inside st.global.u32 [%ptr], %key;
    mad.wide.u32 %ptr, %place, 4, %ids_to;
    @%inside st.global.u32 [%ptr], %id;
    bar.warp.sync 0xffffffff;
    add.u32 %nonzero, %nonzero, 32;
    sub.u32 %tmp0, %nonzero, %lane;
    setp.lt.u32 %p, %tmp0, %end;
    @%p bra NONZERO_LOOP;
PLACED:
    ret;
}

.visible .entry transposed_pattern(
% for line in t.pattern.declarations:
    ${line}
% endfor
)
.maxntid ${t.threads}, 1, 1
{
    .reg .b64 %keys, %ids, %indptr, %indptr_to, %indices_to, %ptr;
    .reg .b32 %M, %K, %count, %thread, %wanted, %low, %high, %middle, %found;
    .reg .pred %p, %below;
% for name in ("keys", "ids", "indptr", "indptr_to", "indices_to"):
    ld.param.u64 %${name}, [${name}];  cvta.to.global.u64 %${name}, %${name};
% endfor
    ld.param.u32 %M, [M];  ld.param.u32 %K, [K];  ld.param.u32 %count, [nnz];
    mov.u32 %thread, %ctaid.x;
    mov.u32 %found, %tid.x;
    mad.lo.u32 %thread, %thread, ${t.threads}, %found;
${ptx.banner("a thread has a row of the transpose: its first nonzero is the first whose column is not below")}\
    setp.gt.u32 %p, %thread, %K;
    @%p bra ROW_STORED;
    mov.u32 %wanted, %thread;
    mov.b32 %low, 0;
    mov.u32 %high, %count;
${search.first_place("keys", "COLUMN", "lt")}\
    mad.wide.u32 %ptr, %thread, 4, %indptr_to;
    st.global.u32 [%ptr], %low;
ROW_STORED:
${ptx.banner("and a nonzero: its column is the row before the first one that begins after it")}\
    setp.ge.u32 %p, %thread, %count;
    @%p bra COLUMN_STORED;
    mad.wide.u32 %ptr, %thread, 4, %ids;
    ld.global.u32 %wanted, [%ptr];
    mov.b32 %low, 0;
    mov.u32 %high, %M;
${search.first_place("indptr", "ROW", "le")}\
    sub.u32 %low, %low, 1;
    mad.wide.u32 %ptr, %thread, 4, %indices_to;
    st.global.u32 [%ptr], %low;
COLUMN_STORED:
    ret;
}

<%def name="chunk_registers()">
    .reg .b64 %keys, %counts, %ptr;
    .reg .b32 %chunks, %chunk, %length, %shift, %nonzero, %end, %lane, %warp, %digit, %smem, %own, %address, %tmp0;
    .reg .pred %p, %inside;
</%def>

## The nonzeros %nonzero to %end of this lane, every 32nd of a chunk; %p: there is no such chunk. %smem: the counters of
## the warp; %own: the first of this lane.
<%def name="chunk_of_warp()">
    ld.param.u32 %end, [nnz];  ld.param.u32 %chunks, [chunks];
    ld.param.u32 %length, [length];  ld.param.u32 %shift, [shift];
    mov.u32 %nonzero, %tid.x;
    and.b32 %lane, %nonzero, 31;
    shr.u32 %warp, %nonzero, 5;
    mov.u32 %chunk, %ctaid.x;
    mad.lo.u32 %chunk, %chunk, ${plan.preparation.warps}, %warp;
    mul.lo.u32 %nonzero, %chunk, %length;
    add.u32 %tmp0, %nonzero, %length;
    min.u32 %end, %end, %tmp0;
    add.u32 %nonzero, %nonzero, %lane;
    mov.u32 %smem, counters;
    mad.lo.u32 %smem, %warp, ${plan.preparation.warp_counter_bytes}, %smem;
    mad.lo.u32 %own, %lane, 4, %smem;
    setp.ge.u32 %p, %chunk, %chunks;
</%def>
