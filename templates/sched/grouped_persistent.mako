## As many blocks as multiprocessors, each of which loops over the tiles of all items of a jagged group.
<%namespace name="coords" file="/sched/tile_coords.mako"/>
<%def name="registers()">
    .reg .b64 %table, %descriptor, %c_base;
    .reg .b32 %items, %item_tile, %item_a, %item_b, %low, %high, %start;
    .reg .pred %below;
    ld.param.u64 %table, [table];  ld.param.u32 %items, [items];
    add.u64 %table, %table, %W;
    cvta.to.global.u64 %table, %table;
    mov.b64 %c_base, %C;
    // TMA has one tensor A for all items, and B of every item
    mov.u32 %item_a, 0;
</%def>

<%def name="open(who)">
    // ---- tile loop: a block starts at the tile of its index and advances by the size of the grid
    mov.u32 %tile, %ctaid.x;
    mov.u32 %tile_step, %nctaid.x;
    ld.global.u32 %tiles, [%table+4];
    .pragma "nounroll";
${who}_TILE:
    setp.ge.u32 %p, %tile, %tiles;
    @%p bra${".uni" if who == "CONSUMER" else ""} ${who}_END;
    // the item of the tile: the last one whose first tile is not above it
    mov.u32 %low, 0;
    mov.u32 %high, %items;
    .pragma "nounroll";
${who}_FIND:
    add.u32 %t0, %low, %high;
    shr.u32 %t0, %t0, 1;
    mad.wide.u32 %t64, %t0, 4, %table;
    ld.global.u32 %t1, [%t64+${plan.scheduler.HEADER}];
    setp.le.u32 %below, %t1, %tile;
    selp.b32 %low, %t0, %low, %below;
    selp.b32 %high, %high, %t0, %below;
    sub.u32 %t1, %high, %low;
    setp.gt.u32 %p, %t1, 1;
    @%p bra${".uni" if who == "CONSUMER" else ""} ${who}_FIND;
    add.u32 %t0, %items, 3;
    shr.u32 %t0, %t0, 2;
    mad.wide.u32 %descriptor, %t0, 16, %table;
    mad.wide.u32 %descriptor, %low, ${plan.scheduler.table.descriptor_bytes}, %descriptor;
    add.u64 %descriptor, %descriptor, ${plan.scheduler.HEADER};
    ld.global.u32 %M, [%descriptor+${plan.scheduler.table.at("m")}];
    ld.global.v2.u32 {%t0, %item_b}, [%descriptor+${plan.scheduler.table.at("first")}];
    ld.global.u32 %start, [%descriptor+${plan.scheduler.table.at("start")}];
    sub.u32 %item_tile, %tile, %t0;
${coords.tile_counts()}\
${coords.from_number()}\
${coords.k_slice()}\
% if who == "PRODUCER":
    // rows of the item in A
    add.u32 ${"%y0" if plan.scheduler.transposed else "%x0"}, ${"%y0" if plan.scheduler.transposed else "%x0"}, %start;
% else:
    ld.global.u64 %t64, [%descriptor+${plan.scheduler.table.at("c")}];
    add.u64 %C, %c_base, %t64;
    ld.global.u32 %ldc, [%descriptor+${plan.scheduler.table.at("ldc")}];
% endif
</%def>

<%def name="close(who)">
    add.u32 %tile, %tile, %tile_step;
    bra${".uni" if who == "CONSUMER" else ""} ${who}_TILE;
${who}_END:
</%def>
