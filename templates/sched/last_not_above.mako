## %lower_bound: the last of ``number`` entries whose first tile is not above ``tile``; lanes compare 32 entries in each round. An
## entry has ``size`` bytes, the first one is ``offset`` bytes from ``table``. The scope has the registers.
<%def name="by_lanes(label, number, table, size, offset, tile='%tile')">
    mov.u32 %lower_bound, 0;
    mov.u32 %count, ${number};
    .pragma "nounroll";
${label}:
    add.u32 %stride, %count, 31;
    shr.u32 %stride, %stride, 5;
    and.b32 %pivot, %thread, 31;
    mul.lo.u32 %pivot, %pivot, %stride;
    setp.lt.u32 %starts_before, %pivot, %count;
    add.u32 %tmp0, %lower_bound, %pivot;
    mad.wide.u32 %first_tile_addr, %tmp0, ${size}, ${table};
    mov.u32 %first_tile, -1;
    @%starts_before ld.global.u32 %first_tile, [%first_tile_addr+${offset}];
    setp.le.u32 %starts_before, %first_tile, ${tile};
    vote.sync.ballot.b32 %tmp0, %starts_before, -1;
    popc.b32 %tmp0, %tmp0;
    sub.u32 %tmp0, %tmp0, 1;
    mul.lo.u32 %tmp0, %tmp0, %stride;
    add.u32 %lower_bound, %lower_bound, %tmp0;
    sub.u32 %count, %count, %tmp0;
    min.u32 %count, %count, %stride;
    setp.gt.u32 %p, %count, 1;
    @%p bra.uni ${label};
</%def>

## The same by one thread.
<%def name="by_thread(label, number, table, size, offset, tile)">
    mov.u32 %lower_bound, 0;
    mov.u32 %count, ${number};
    .pragma "nounroll";
${label}:
    shr.u32 %stride, %count, 1;
    add.u32 %pivot, %lower_bound, %stride;
    mad.wide.u32 %first_tile_addr, %pivot, ${size}, ${table};
    ld.global.u32 %first_tile, [%first_tile_addr+${offset}];
    setp.le.u32 %starts_before, %first_tile, ${tile};
    selp.b32 %lower_bound, %pivot, %lower_bound, %starts_before;
    @%starts_before sub.u32 %stride, %count, %stride;
    mov.u32 %count, %stride;
    setp.gt.u32 %p, %count, 1;
    @%p bra ${label};
</%def>
