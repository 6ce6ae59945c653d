## Three kernels: one counts units of warps for each class of rows, one adds the counts of all blocks, one lists the warps. A
## unit is a block of warps if the row is long, else a row.
<%inherit file="module.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<% rows = plan.preparation %>\
.visible .entry count_warps(
% for line in rows.counting.declarations:
    ${line}
% endfor
)
.maxntid ${rows.threads}, 1, 1
{
    .reg .b64 %indptr, %num_warps, %class_units, %entry;
${classify()}\
    ld.param.u64 %num_warps, [num_warps_per_row];  cvta.to.global.u64 %num_warps, %num_warps;
    mad.wide.u32 %entry, %row, 4, %num_warps;
    @%inside st.global.u32 [%entry], %warps;
${ptx.banner("a warp for each class adds the counts of warps")}\
    setp.ge.u32 %p, %warp, ${rows.classes};
    @%p bra DONE;
    ld.shared.u32 %sum, [%count_at];
${add_lanes("%sum")}\
    mad.lo.u32 %tmp, %warp, %groups, %group;
    mad.wide.u32 %entry, %tmp, 4, %class_units;
    setp.eq.u32 %p, %lane, 31;
    @%p st.global.u32 [%entry], %sum;
DONE:
    ret;
}

.visible .entry add_warps(
% for line in rows.adding.declarations:
    ${line}
% endfor
)
.maxntid ${rows.adding_threads}, 1, 1
{
    .reg .b64 %class_units, %classes, %sizes, %entry;
    .reg .b32 %groups, %thread, %lane, %warp, %group, %units, %sum, %total, %own, %first_block, %blocks, %base;
    .reg .pred %inside, %p, %more;
    .shared .b32 totals[${rows.classes}];

    ld.param.u64 %class_units, [class_units];  cvta.to.global.u64 %class_units, %class_units;
    ld.param.u64 %classes, [classes];  cvta.to.global.u64 %classes, %classes;
    ld.param.u64 %sizes, [sizes];  cvta.to.global.u64 %sizes, %sizes;
    ld.param.u32 %groups, [groups];
    mov.u32 %thread, %tid.x;
    and.b32 %lane, %thread, 31;
    shr.u32 %warp, %thread, 5;
    mul.lo.u32 %base, %warp, %groups;
    mov.b32 %group, %lane;
    mov.b32 %total, 0;
${ptx.banner("a warp for each class: the sums of all counts before each")}\
ADD_LOOP:
    setp.lt.u32 %inside, %group, %groups;
    add.u32 %own, %base, %group;
    mad.wide.u32 %entry, %own, 4, %class_units;
    mov.b32 %units, 0;
    @%inside ld.global.u32 %units, [%entry];
    mov.b32 %sum, %units;
${add_lanes("%sum")}\
    sub.u32 %units, %sum, %units;
    add.u32 %units, %units, %total;
    @%inside st.global.u32 [%entry], %units;
    shfl.sync.idx.b32 %sum, %sum, 31, 31, 0xffffffff;
    add.u32 %total, %total, %sum;
    add.u32 %group, %group, 32;
    sub.u32 %own, %group, %lane;
    setp.lt.u32 %more, %own, %groups;
    @%more bra ADD_LOOP;
    mov.b32 %own, totals;
    mad.lo.u32 %own, %warp, 4, %own;
    setp.eq.u32 %p, %lane, 0;
    @%p st.shared.u32 [%own], %total;
    // ---- wait: the sums of all classes are in shared memory
    bar.sync 0;
${ptx.banner("the first block of each class, and all blocks")}\
    setp.ne.u32 %p, %thread, 0;
    @%p bra DONE;
    mov.b32 %first_block, 0;
% for shift, mask, total, first, units in rows.class_records:
    ld.shared.u32 %units, [totals+${total}];
    st.global.u32 [%classes+${first}], %first_block;
    st.global.u32 [%classes+${units}], %units;
    add.u32 %blocks, %units, ${mask};
    shr.u32 %blocks, %blocks, ${shift};
    add.u32 %first_block, %first_block, %blocks;
% endfor
    st.global.u32 [%sizes], %first_block;
DONE:
    ret;
}

.visible .entry place_warps(
% for line in rows.placing.declarations:
    ${line}
% endfor
)
.maxntid ${rows.threads}, 1, 1
{
    .reg .b64 %indptr, %class_units, %classes, %row_id, %place_of_warp, %entry, %row_entry, %place_entry, %first;
    .reg .b32 %first_block, %shift, %place, %used, %none;
${classify()}\
    ld.param.u64 %classes, [classes];  cvta.to.global.u64 %classes, %classes;
    ld.param.u64 %row_id, [row_id_for_each_warp];  cvta.to.global.u64 %row_id, %row_id;
    ld.param.u64 %place_of_warp, [warpid_within_row];  cvta.to.global.u64 %place_of_warp, %place_of_warp;
${ptx.banner("a warp for each class: the units of all warps before each, and of all blocks before this one")}\
    setp.ge.u32 %p, %warp, ${rows.classes};
    @%p bra PLACE;
    mad.lo.u32 %tmp, %warp, %groups, %group;
    mad.wide.u32 %entry, %tmp, 4, %class_units;
    ld.global.u32 %first_block, [%entry];
    ld.shared.u32 %units, [%count_at];
    mov.b32 %sum, %units;
${add_lanes("%sum")}\
    sub.u32 %sum, %sum, %units;
    add.u32 %sum, %sum, %first_block;
    st.shared.u32 [%count_at], %sum;
PLACE:
    // ---- wait: the sums of this block are in shared memory
    bar.sync 0;
${ptx.banner("the warps of the row, or the warp that sets it, if it is empty")}\
    @!%inside bra REST;
    mad.lo.u32 %tmp, %class, ${rows.counts_bytes}, %counts_at;
    mad.lo.u32 %tmp, %warp, 4, %tmp;
    ld.shared.u32 %sum, [%tmp];
    add.u32 %rank, %rank, %sum;
${class_start("%class")}\
    shr.u32 %tmp, ${rows.block_bytes}, %shift;
    mul.wide.u32 %entry, %rank, %tmp;
    add.u64 %entry, %entry, %first;
    add.u64 %row_entry, %row_id, %entry;
    add.u64 %place_entry, %place_of_warp, %entry;
    max.u32 %warps, %warps, 1;
    mov.b32 %place, 0;
PLACE_LOOP:
    st.global.u32 [%row_entry], %row;
    st.global.u32 [%place_entry], %place;
    add.u64 %row_entry, %row_entry, 4;
    add.u64 %place_entry, %place_entry, 4;
    add.u32 %place, %place, 1;
    setp.lt.u32 %p, %place, %warps;
    @%p bra PLACE_LOOP;
REST:
${ptx.banner("the first block marks the warps without a row, after the last row of each class")}\
    setp.ne.u32 %p, %group, 0;
    setp.ge.or.u32 %p, %thread, ${rows.placed_warps}, %p;
    @%p bra DONE;
    shr.u32 %class, %thread, ${rows.log2_block_warps};
    and.b32 %place, %thread, ${rows.block_warp_mask};
${class_start("%class")}\
    ld.global.u32 %units, [%entry+4];
    shr.u32 %used, %units, %shift;
    mad.wide.u32 %first, %used, ${rows.block_bytes}, %first;
    shl.b32 %used, %used, %shift;
    sub.u32 %used, %units, %used;
    setp.eq.u32 %p, %used, 0;
    @%p bra DONE;
    shr.u32 %tmp, ${rows.block_warps}, %shift;
    mul.lo.u32 %used, %used, %tmp;
    setp.lt.u32 %p, %place, %used;
    @%p bra DONE;
    mad.wide.u32 %first, %place, 4, %first;
    add.u64 %row_entry, %row_id, %first;
    add.u64 %place_entry, %place_of_warp, %first;
    mov.b32 %none, -1;
    mov.b32 %place, 0;
    st.global.u32 [%row_entry], %none;
    st.global.u32 [%place_entry], %place;
DONE:
    ret;
}

## The class of each thread's row, its warps, units of the class in the rows of the warp before it, and those of each
## warp in shared memory. %count_at: those of lane %lane of class %warp.
<%def name="classify()">
<% rows = plan.preparation %>\
    .reg .b32 %rows, %groups, %group, %thread, %lane, %warp, %row, %begin, %end, %length, %class, %units, %warps, %rank;
    .reg .b32 %votes, %before, %sum, %own, %tmp, %count_at, %counts_at;
    .reg .pred %inside, %p, %in_class;
    .shared .b32 counts[${rows.group_counts}];

    ld.param.u64 %indptr, [indptr];  cvta.to.global.u64 %indptr, %indptr;
    ld.param.u64 %class_units, [class_units];  cvta.to.global.u64 %class_units, %class_units;
    ld.param.u32 %rows, [rows];
    mov.u32 %groups, %nctaid.x;
    mov.u32 %group, %ctaid.x;
    mov.u32 %thread, %tid.x;
    and.b32 %lane, %thread, 31;
    shr.u32 %warp, %thread, 5;
    mad.lo.u32 %row, %group, ${rows.threads}, %thread;
${ptx.banner("the class of the row: the first whose limit its length exceeds")}\
    setp.lt.u32 %inside, %row, %rows;
    mov.b32 %begin, 0;
    mov.b32 %end, 0;
    mad.wide.u32 %entry, %row, 4, %indptr;
    @%inside ld.global.nc.u32 %begin, [%entry];
    @%inside ld.global.nc.u32 %end, [%entry+4];
    sub.u32 %length, %end, %begin;
    mov.b32 %class, 0;
% for limit in rows.lengths:
    setp.le.u32 %p, %length, ${limit};
    @%p add.u32 %class, %class, 1;
% endfor
    add.u32 %units, %length, ${rows.part_mask};
    shr.u32 %units, %units, ${rows.log2_part};
    min.u32 %units, %units, ${rows.tiles};
    shl.b32 %warps, %units, ${rows.log2_block_warps};
    setp.gt.u32 %p, %class, 0;
    @%p mov.b32 %units, 1;
    @%p shr.u32 %warps, ${rows.shifted_warps}, %class;
    @!%inside mov.b32 %class, ${rows.classes};
${ptx.banner("units in the rows of the warp")}\
    mov.b32 %counts_at, counts;
    mad.lo.u32 %count_at, %warp, 4, %counts_at;
    mov.u32 %before, %lanemask_lt;
    setp.eq.u32 %in_class, %class, 0;
    selp.b32 %own, %units, 0, %in_class;
    mov.b32 %sum, %own;
${add_lanes("%sum")}\
    sub.u32 %rank, %sum, %own;
    setp.eq.u32 %p, %lane, 31;
    @%p st.shared.u32 [%count_at], %sum;
    setp.eq.u32 %p, %lane, 0;
% for c, offset in rows.class_offsets:
    setp.eq.u32 %in_class, %class, ${c};
    vote.sync.ballot.b32 %votes, %in_class, 0xffffffff;
    popc.b32 %sum, %votes;
    @%p st.shared.u32 [%count_at+${offset}], %sum;
    and.b32 %votes, %votes, %before;
    @%in_class popc.b32 %rank, %votes;
% endfor
    // ---- wait: the units of all warps are in shared memory
    bar.sync 0;
    mad.lo.u32 %tmp, %warp, ${rows.group_warps}, %lane;
    mad.lo.u32 %count_at, %tmp, 4, %counts_at;
</%def>

## The sum of the lanes up to this one.
<%def name="add_lanes(sum)">
    {
    .reg .b32 %lower;
    .reg .pred %has_lower;
% for distance in (1, 2, 4, 8, 16):
    shfl.sync.up.b32 %lower|%has_lower, ${sum}, ${distance}, 0, 0xffffffff;
    @%has_lower add.u32 ${sum}, ${sum}, %lower;
% endfor
    }
</%def>

## %first: bytes of the warps before the class; %shift: log2 of the rows of a block; %entry: the entry of the class.
<%def name="class_start(which)">
    mad.wide.u32 %entry, ${which}, 8, %classes;
    ld.global.u32 %first_block, [%entry];
    mul.wide.u32 %first, %first_block, ${plan.preparation.block_bytes};
    max.u32 %shift, ${which}, 1;
    sub.u32 %shift, %shift, 1;
    min.u32 %shift, %shift, 3;
</%def>
