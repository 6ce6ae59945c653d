## The kernel that makes the descriptor table of a group whose items are parts of one array: one block, with a thread per item.
<%namespace name="ptx" file="/ptx/banner.mako"/>
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%namespace name="before" file="/ptx/tiles_before.mako"/>
<%namespace name="blocks" file="/${context['plan'].packing.table.blocks_template}"/>
<%def name="operand_addresses()"></%def>

<%def name="entries()">
<% t, table = plan.packing.table, plan.packing.table.layout %>\

// C = alpha A B needs the descriptor table: the items' addresses, extents and first tiles, from their end offsets
.visible .entry ${plan.entry}_table(
% for line in t.parameter_list.declarations:
    ${line}
% endfor
)
.maxntid ${t.THREADS}, 1, 1
{
    .reg .b64 %table, %descriptor, %offsets, %entry_addr, %tmp64, %tmp64b, %item_start64, %item64;
    .reg .b32 %thread, %smem, %items, %jagged_extent, %item, %descriptor_index, %item_start, %item_end, %item_length, %M, %N, %K, %lda, %ldb, %ldc;
${blocks.registers()}\
    .reg .b32 %tiles_m, %tiles_n, %tiles, %tile_prefix, %first_tile, %total_tiles, %length_addr, %lane, %warp, %tmp0, %tmp1;
    .reg .pred %p, %in_items, %has_prev;
    ld.param.u64 %table, [table];  ld.param.u64 %tmp64, [W];  ld.param.u64 %offsets, [offsets];
    add.u64 %table, %table, %tmp64;
    cvta.to.global.u64 %table, %table;  cvta.to.global.u64 %offsets, %offsets;
    ld.param.u32 %items, [items];  ld.param.u32 %jagged_extent, [extent];
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];  ld.param.u32 %K, [K];
    ld.param.u32 %lda, [lda];  ld.param.u32 %ldb, [ldb];  ld.param.u32 %ldc, [ldc];
${pdl.trigger_and_wait()}\
    mov.u32 %thread, %tid.x;
    mov.u32 %smem, smem;
    and.b32 %lane, %thread, 31;
    shr.u32 %warp, %thread, 5;
    add.u32 %tiles_m, %M, ${table.last_row};
    div.u32 %tiles_m, %tiles_m, ${table.ml};
    add.u32 %tiles_n, %N, ${table.last_column};
    div.u32 %tiles_n, %tiles_n, ${table.nl};
    mov.u32 %total_tiles, 0;
% if t.along_k:
${ptx.banner("lengths of all items, which determine their order")}\
    mov.u32 %item, %thread;
    setp.ge.u32 %p, %item, %items;
    @%p bra LENGTHS_END;
    .pragma "nounroll";
LENGTHS:
${bounds("")}\
    mad.lo.u32 %tmp0, %item, 4, %smem;
    st.shared.u32 [%tmp0], %item_length;
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
    setp.lt.u32 %in_items, %item, %items;
% if t.along_k:
    @!%in_items bra ITEMS_END;
${bounds("")}\
    mov.u32 %K, %item_length;
    // %descriptor_index: the number of items that are longer, or as long and before this one
    mov.u32 %descriptor_index, 0;
${blocks.begin()}\
    mov.u32 %tmp0, 0;
    mov.u32 %length_addr, %smem;
    .pragma "nounroll";
LONGER:
    ld.shared.u32 %tmp1, [%length_addr];
    setp.eq.u32 %p, %tmp1, %item_length;
    setp.lt.and.u32 %p, %tmp0, %item, %p;
    setp.gt.or.u32 %p, %tmp1, %item_length, %p;
    @%p add.u32 %descriptor_index, %descriptor_index, 1;
${blocks.count()}\
    add.u32 %length_addr, %length_addr, 4;
    add.u32 %tmp0, %tmp0, 1;
    setp.lt.u32 %p, %tmp0, %items;
    @%p bra LONGER;
    mul.lo.u32 %tiles, %tiles_m, %tiles_n;
    mul.lo.u32 %first_tile, %descriptor_index, %tiles;
${descriptor(t, table, "")}\
    add.u32 %item, %item, ${t.THREADS};
    bra ITEMS;
ITEMS_END:
    mul.lo.u32 %tmp0, %tiles_m, %tiles_n;
    mul.lo.u32 %total_tiles, %tmp0, %items;
% else:
    mov.u32 %item_length, 0;
    mov.u32 %item_start, 0;
${bounds("@%in_items ")}\
    mov.u32 %M, %item_length;
    add.u32 %tiles_m, %M, ${table.last_row};
    div.u32 %tiles_m, %tiles_m, ${table.ml};
    mul.lo.u32 %tiles, %tiles_m, %tiles_n;
    // %tile_prefix: tiles of the items of this warp up to this one
${before.in_warp()}\
${ptx.banner("wait: the tiles of each warp's items are in shared memory")}\
    bar.sync 0;
    // %first_tile: tiles of all items before this one
    sub.u32 %first_tile, %tile_prefix, %tiles;
    add.u32 %first_tile, %first_tile, %total_tiles;
${before.of_warps(t.warp_offsets)}\
${ptx.banner("wait: every warp has read them")}\
    bar.sync 0;
    mov.u32 %descriptor_index, %item;
${descriptor(t, table, "@%in_items ")}\
    add.u32 %item, %item, ${t.THREADS};
    sub.u32 %tmp0, %item, %thread;
    setp.lt.u32 %p, %tmp0, %items;
    @%p bra.uni ITEMS;
% endif
    setp.eq.u32 %p, %thread, 0;
    mov.u32 %tmp0, 0;
    @%p st.global.v2.u32 [%table], {%tmp0, %total_tiles};
    ret;
}
</%def>

## %item_start and %item_length of item %item along the jagged axis.
<%def name="bounds(guard)">
    // from the end of the previous item to the end of this one, within the array
    mad.wide.u32 %entry_addr, %item, 4, %offsets;
    mov.u32 %item_end, 0;
    setp.ne.u32 %has_prev, %item, 0;
% if guard:
    and.pred %has_prev, %has_prev, %in_items;
% endif
    mov.u32 %item_start, 0;
    @%has_prev ld.global.u32 %item_start, [%entry_addr+-4];
    ${guard}ld.global.u32 %item_end, [%entry_addr];
    max.s32 %item_start, %item_start, 0;
    min.s32 %item_start, %item_start, %jagged_extent;
    max.s32 %item_end, %item_end, %item_start;
    min.s32 %item_end, %item_end, %jagged_extent;
    sub.u32 %item_length, %item_end, %item_start;
</%def>

<%def name="descriptor(t, table, guard)">
    // descriptor %descriptor_index
    mad.wide.u32 %entry_addr, %descriptor_index, 4, %table;
    ${guard}st.global.u32 [%entry_addr+${plan.scheduler.HEADER}], %first_tile;
    add.u32 %tmp0, %items, 3;
    shr.u32 %tmp0, %tmp0, 2;
    mad.wide.u32 %descriptor, %tmp0, 16, %table;
    mad.wide.u32 %descriptor, %descriptor_index, ${table.descriptor_bytes}, %descriptor;
    cvt.u64.u32 %item_start64, %item_start;
    cvt.u64.u32 %item64, %item;
${blocks.end()}\
% for x in t.arrays:
    ld.param.u64 %tmp64, [by_${x}];
    mul.lo.u64 %tmp64, %tmp64, %item64;
    ld.param.u64 %tmp64b, [along_${x}];
    mad.lo.u64 %tmp64, %tmp64b, ${t.places[x]}, %tmp64;
    ${guard}st.global.u64 [%descriptor+${table.offsets_after_header[x]}], %tmp64;
% endfor
    ${guard}st.global.v2.u32 [%descriptor+${table.offsets_after_header["tiles_m"]}], {%tiles_m, %tiles_n};
    ${guard}st.global.v4.u32 [%descriptor+${table.offsets_after_header["m"]}], {%M, %N, %K, %lda};
    ${guard}st.global.v4.u32 [%descriptor+${table.offsets_after_header["ldb"]}], {%ldb, %ldc, %first_tile, %item};
    ${guard}st.global.u32 [%descriptor+${table.offsets_after_header["start"]}], %item_start;
% for name in ("alpha", "beta"):
    ${guard}st.global.${table.scalar_type} [%descriptor+${table.offsets_after_header[name]}], ${t.one};
% endfor
</%def>
