## The kernel that lists the tiles of a join that have pairs of equal keys: one block, with a thread for each row panel.
<%namespace name="ptx" file="/ptx/banner.mako"/>
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%namespace name="before" file="/ptx/tiles_before.mako"/>
<%def name="operand_addresses()"></%def>

<%def name="entries()">
<% t, (rows, columns) = plan.packing, plan.packing.keys %>\

// the tiles whose keys of rows and of columns may be equal: for each row panel, the number of tiles of those before, and the
// first column panel
.visible .entry ${plan.entry}_tiles(
% for line in t.parameter_list.declarations:
    ${line}
% endfor
)
.maxntid ${t.THREADS}, 1, 1
{
    .reg .b64 %tile_list, %row_keys, %column_keys, %key_addr, %first_key, %last_key, %key, %tmp64;
    .reg .b32 %thread, %smem, %M, %N, %panel, %panels_m, %panels_n, %column, %columns_end, %count, %half, %tmp0;
    .reg .b32 %tiles, %tile_prefix, %first_tile, %total_tiles, %lane, %warp;
    .reg .pred %p, %in_panels, %has_prev, %below;
    ld.param.u64 %tile_list, [tile_list];  ld.param.u64 %tmp64, [W];
    ld.param.u64 %row_keys, [${rows.name}];  ld.param.u64 %column_keys, [${columns.name}];
    add.u64 %tile_list, %tile_list, %tmp64;
    cvta.to.global.u64 %tile_list, %tile_list;  cvta.to.global.u64 %row_keys, %row_keys;  cvta.to.global.u64 %column_keys, %column_keys;
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];
${pdl.trigger_and_wait()}\
    mov.u32 %thread, %tid.x;
    mov.u32 %smem, smem;
    and.b32 %lane, %thread, 31;
    shr.u32 %warp, %thread, 5;
    add.u32 %panels_m, %M, ${t.last_row};
    div.u32 %panels_m, %panels_m, ${t.ml};
    add.u32 %panels_n, %N, ${t.last_column};
    div.u32 %panels_n, %panels_n, ${t.nl};
    mov.u32 %total_tiles, 0;
    mov.u32 %panel, %thread;
    .pragma "nounroll";
PANELS:
    setp.lt.u32 %in_panels, %panel, %panels_m;
    // the least and the greatest key of the rows; threads past the last panel read those of the last one
    sub.u32 %tmp0, %panels_m, 1;
    min.u32 %tmp0, %tmp0, %panel;
    mul.lo.u32 %tmp0, %tmp0, ${t.ml};
${key("%first_key", "%tmp0", rows, "%row_keys")}\
    add.u32 %tmp0, %tmp0, ${t.ml};
    min.u32 %tmp0, %tmp0, %M;
    sub.u32 %tmp0, %tmp0, 1;
${key("%last_key", "%tmp0", rows, "%row_keys")}\
    // %column: the column panels with lesser keys alone; %columns_end: those with a key that is not greater. Both searches halve
    // the same number of panels
    mov.u32 %column, 0;
    mov.u32 %columns_end, 0;
    mov.u32 %count, %panels_n;
    .pragma "nounroll";
SEARCH:
    shr.u32 %half, %count, 1;
    max.u32 %half, %half, 1;
    sub.u32 %count, %count, %half;
    add.u32 %tmp0, %column, %half;
    mul.lo.u32 %tmp0, %tmp0, ${t.nl};
    min.u32 %tmp0, %tmp0, %N;
    sub.u32 %tmp0, %tmp0, 1;
${key("%key", "%tmp0", columns, "%column_keys")}\
    setp.lt.s64 %below, %key, %first_key;
    @%below add.u32 %column, %column, %half;
    add.u32 %tmp0, %columns_end, %half;
    sub.u32 %tmp0, %tmp0, 1;
    mul.lo.u32 %tmp0, %tmp0, ${t.nl};
${key("%key", "%tmp0", columns, "%column_keys")}\
    setp.le.s64 %below, %key, %last_key;
    @%below add.u32 %columns_end, %columns_end, %half;
    setp.ne.u32 %p, %count, 0;
    @%p bra.uni SEARCH;
    sub.u32 %tiles, %columns_end, %column;
    selp.b32 %tiles, %tiles, 0, %in_panels;
    // %tile_prefix: tiles of the panels of this warp up to this one
${before.in_warp()}\
${ptx.banner("wait: the tiles of each warp's panels are in shared memory")}\
    bar.sync 0;
    // %first_tile: tiles of all panels before this one
    sub.u32 %first_tile, %tile_prefix, %tiles;
    add.u32 %first_tile, %first_tile, %total_tiles;
${before.of_warps(t.warp_offsets)}\
${ptx.banner("wait: every warp has read them")}\
    bar.sync 0;
    mad.wide.u32 %key_addr, %panel, ${t.ENTRY}, %tile_list;
    @%in_panels st.global.v2.u32 [%key_addr+${t.HEADER}], {%first_tile, %column};
    add.u32 %panel, %panel, ${t.THREADS};
    sub.u32 %tmp0, %panel, %thread;
    setp.lt.u32 %p, %tmp0, %panels_m;
    @%p bra.uni PANELS;
    setp.eq.u32 %p, %thread, 0;
    @%p st.global.u32 [%tile_list], %total_tiles;
    ret;
}
</%def>

## The key at an index, widened.
<%def name="key(to, index, keys, array)">
    mad.wide.u32 %key_addr, ${index}, ${keys.bytes}, ${array};
    ld.global.nc.${keys.load} ${to}, [%key_addr];
</%def>
