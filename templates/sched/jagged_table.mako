## The kernel that makes the descriptor table of a group whose items are parts of one array: one block, a thread an item.
<%namespace name="ptx" file="/ptx/banner.mako"/>
<%def name="operand_addresses()"></%def>

<%def name="entries()">
<% t, table = plan.packing, plan.packing.layout %>\

// C = alpha A B needs the descriptor table: the items' addresses, extents and first tiles, from their end offsets
.visible .entry ${plan.entry}_table(
    .param .u64 A, .param .u64 B, .param .u64 C, .param .u64 W,
% for line in plan.fused_ops.parameters + t.parameters:
    ${line}
% endfor
)
.maxntid ${t.THREADS}, 1, 1
{
    .reg .b64 %table, %descriptor, %offsets, %addr, %t64, %u64, %start64, %item64;
    .reg .b32 %thread, %smem, %items, %extent, %item, %index, %start, %end, %length, %M, %N, %K, %lda, %ldb, %ldc;
    .reg .b32 %tiles_m, %tiles_n, %tiles, %sum, %first, %all, %lane, %warp, %t0, %t1;
    .reg .pred %p, %inside, %take;
    ld.param.u64 %table, [table];  ld.param.u64 %t64, [W];  ld.param.u64 %offsets, [offsets];
    add.u64 %table, %table, %t64;
    cvta.to.global.u64 %table, %table;  cvta.to.global.u64 %offsets, %offsets;
    ld.param.u32 %items, [items];  ld.param.u32 %extent, [extent];
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];  ld.param.u32 %K, [K];
    ld.param.u32 %lda, [lda];  ld.param.u32 %ldb, [ldb];  ld.param.u32 %ldc, [ldc];
    mov.u32 %thread, %tid.x;
    mov.u32 %smem, smem;
    and.b32 %lane, %thread, 31;
    shr.u32 %warp, %thread, 5;
    add.u32 %tiles_m, %M, ${table.ml - 1};
    div.u32 %tiles_m, %tiles_m, ${table.ml};
    add.u32 %tiles_n, %N, ${table.nl - 1};
    div.u32 %tiles_n, %tiles_n, ${table.nl};
    mov.u32 %all, 0;
% if t.along_k:
${ptx.banner("lengths of all items, which determine their order")}\
    mov.u32 %item, %thread;
    setp.ge.u32 %p, %item, %items;
    @%p bra LENGTHS_END;
    .pragma "nounroll";
LENGTHS:
${bounds("")}\
    mad.lo.u32 %t0, %item, 4, %smem;
    st.shared.u32 [%t0], %length;
    add.u32 %item, %item, ${t.THREADS};
    setp.lt.u32 %p, %item, %items;
    @%p bra LENGTHS;
LENGTHS_END:
${ptx.banner("wait: all lengths are in shared memory")}\
    bar.sync 0;
% endif
    mov.u32 %item, %thread;
    .pragma "nounroll";
ITEMS:
    setp.lt.u32 %inside, %item, %items;
% if t.along_k:
    @!%inside bra ITEMS_END;
${bounds("")}\
    mov.u32 %K, %length;
    // %index: the number of items that are longer, or as long and before this one
    mov.u32 %index, 0;
    mov.u32 %t0, 0;
    mov.u32 %first, %smem;
    .pragma "nounroll";
LONGER:
    ld.shared.u32 %t1, [%first];
    setp.eq.u32 %p, %t1, %length;
    setp.lt.and.u32 %p, %t0, %item, %p;
    setp.gt.or.u32 %p, %t1, %length, %p;
    @%p add.u32 %index, %index, 1;
    add.u32 %first, %first, 4;
    add.u32 %t0, %t0, 1;
    setp.lt.u32 %p, %t0, %items;
    @%p bra LONGER;
    mul.lo.u32 %tiles, %tiles_m, %tiles_n;
    mul.lo.u32 %first, %index, %tiles;
${descriptor(t, table, "")}\
    add.u32 %item, %item, ${t.THREADS};
    bra ITEMS;
ITEMS_END:
    mul.lo.u32 %t0, %tiles_m, %tiles_n;
    mul.lo.u32 %all, %t0, %items;
% else:
    mov.u32 %length, 0;
    mov.u32 %start, 0;
${bounds("@%inside ")}\
    mov.u32 %M, %length;
    add.u32 %tiles_m, %M, ${table.ml - 1};
    div.u32 %tiles_m, %tiles_m, ${table.ml};
    mul.lo.u32 %tiles, %tiles_m, %tiles_n;
    // %sum: tiles of the items of this warp up to this one
    mov.u32 %sum, %tiles;
% for step in (1, 2, 4, 8, 16):
    shfl.sync.up.b32 %t0|%take, %sum, ${step}, 0, -1;
    @%take add.u32 %sum, %sum, %t0;
% endfor
    setp.eq.u32 %p, %lane, 31;
    mad.lo.u32 %t0, %warp, 4, %smem;
    @%p st.shared.u32 [%t0], %sum;
${ptx.banner("wait: the tiles of each warp's items are in shared memory")}\
    bar.sync 0;
    // %first: tiles of all items before this one
    sub.u32 %first, %sum, %tiles;
    add.u32 %first, %first, %all;
% for w in range(t.WARPS):
    ld.shared.u32 %t0, [%smem+${4 * w}];
    setp.gt.u32 %take, %warp, ${w};
    @%take add.u32 %first, %first, %t0;
    add.u32 %all, %all, %t0;
% endfor
${ptx.banner("wait: every warp has read them")}\
    bar.sync 0;
    mov.u32 %index, %item;
${descriptor(t, table, "@%inside ")}\
    add.u32 %item, %item, ${t.THREADS};
    sub.u32 %t0, %item, %thread;
    setp.lt.u32 %p, %t0, %items;
    @%p bra.uni ITEMS;
% endif
    setp.eq.u32 %p, %thread, 0;
    mov.u32 %t0, 0;
    @%p st.global.v2.u32 [%table], {%t0, %all};
    ret;
}
</%def>

## %start and %length of item %item along the jagged axis.
<%def name="bounds(guard)">
    // from the end of the previous item to the end of this one, within the array
    mad.wide.u32 %addr, %item, 4, %offsets;
    mov.u32 %end, 0;
    setp.ne.u32 %take, %item, 0;
% if guard:
    and.pred %take, %take, %inside;
% endif
    mov.u32 %start, 0;
    @%take ld.global.u32 %start, [%addr+-4];
    ${guard}ld.global.u32 %end, [%addr];
    max.s32 %start, %start, 0;
    min.s32 %start, %start, %extent;
    max.s32 %end, %end, %start;
    min.s32 %end, %end, %extent;
    sub.u32 %length, %end, %start;
</%def>

<%def name="descriptor(t, table, guard)">
    // descriptor %index
    mad.wide.u32 %addr, %index, 4, %table;
    ${guard}st.global.u32 [%addr+${plan.scheduler.HEADER}], %first;
    add.u32 %t0, %items, 3;
    shr.u32 %t0, %t0, 2;
    mad.wide.u32 %descriptor, %t0, 16, %table;
    mad.wide.u32 %descriptor, %index, ${table.descriptor_bytes}, %descriptor;
    cvt.u64.u32 %start64, %start;
    cvt.u64.u32 %item64, %item;
% for x in t.arrays:
    ld.param.u64 %t64, [by_${x}];
    mul.lo.u64 %t64, %t64, %item64;
    ld.param.u64 %u64, [along_${x}];
    mad.lo.u64 %t64, %u64, %start64, %t64;
    ${guard}st.global.u64 [%descriptor+${plan.scheduler.HEADER + table.at(x)}], %t64;
% endfor
    ${guard}st.global.v2.u32 [%descriptor+${plan.scheduler.HEADER + table.at("tiles_m")}], {%tiles_m, %tiles_n};
    ${guard}st.global.v4.u32 [%descriptor+${plan.scheduler.HEADER + table.at("m")}], {%M, %N, %K, %lda};
    ${guard}st.global.v4.u32 [%descriptor+${plan.scheduler.HEADER + table.at("ldb")}], {%ldb, %ldc, %first, %item};
% for name in ("alpha", "beta"):
    ${guard}st.global.${table.kind} [%descriptor+${plan.scheduler.HEADER + table.at(name)}], ${t.one};
% endfor
</%def>
