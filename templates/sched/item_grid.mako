## The third axis of the grid is the item; the other axes are the tiles of the largest item. Blocks without a tile exit.
<%namespace name="grouped" file="/sched/grouped.mako"/>
<%def name="find()">
    { // a block of another item's tile exits
    .reg .b32 %item, %tile_m, %tile_n, %tiles_m, %tiles_n;
    mov.u32 %item, %ctaid.z;
    mov.u32 %tile_m, %ctaid.x;
    mov.u32 %tile_n, %ctaid.y;
${grouped.descriptors()}\
    mad.wide.u32 %descriptor, %item, ${plan.scheduler.table.descriptor_bytes}, %descriptors;
    ld.global.v2.u32 {%tiles_m, %tiles_n}, [%descriptor+${plan.scheduler.table.offsets["tiles_m"]}];
    setp.ge.u32 %p, %tile_m, %tiles_m;
    setp.ge.or.u32 %p, %tile_n, %tiles_n, %p;
    @%p ret;
    mad.lo.u32 %tile, %tile_n, %tiles_m, %tile_m;
    }
</%def>

<%def name="parameters()"></%def>
<%def name="open()"></%def>
<%def name="close()"></%def>
<%def name="finish_sums()"></%def>
<%def name="tile()">${grouped.item_values(tile_of_grid)}</%def>
<%def name="tile_of_grid()">
    mov.u32 %tile_index, %tile;
</%def>
<%def name="k_iterations()">${grouped.k_iterations()}</%def>
<%def name="choose_loop(copy_loop)">${grouped.choose_loop(copy_loop)}</%def>
<%def name="other_loops(copy_loop, k_loop, copies)">${grouped.other_loops(copy_loop, k_loop, copies)}</%def>
