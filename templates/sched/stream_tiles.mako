## Persistent blocks compute whole tiles, then a share of the K iterations of the last tiles, from the share's end to its
## beginning.
<%namespace name="coords" file="/sched/tile_coords.mako"/>
<%def name="registers()">
    .reg .b32 %number, %full_tiles, %share_iters, %share_first, %share_end, %item_first, %item_end, %tail_tile, %cluster_rank;
</%def>
<%def name="open(who)">
<% s = plan.scheduler %>\
    // ---- tile loop: a block starts at the tile of its index and advances by the size of the grid
    mov.u32 %tile, %ctaid.x;
    mov.u32 %tile_step, %nctaid.x;
${coords.tile_counts()}\
    ld.param.u32 %full_tiles, [full_tiles];  ld.param.u32 %tmp0, [tail_iters];  ld.param.u32 %share_iters, [share_iters];
    // the share of this block's cluster: K iterations from %share_first to %share_end, counted tile by tile
    div.u32 %share_first, %tile, ${s.multicast};
    mul.lo.u32 %cluster_rank, %share_first, ${s.multicast};
    sub.u32 %cluster_rank, %tile, %cluster_rank;
    mul.lo.u32 %share_first, %share_first, %share_iters;
    min.u32 %share_first, %share_first, %tmp0;
    add.u32 %share_end, %share_first, %share_iters;
    min.u32 %share_end, %share_end, %tmp0;
    .pragma "nounroll";
${who}_TILE:
    mov.u32 %number, %tile;
    mov.u32 %item_first, 0;
    mov.u32 %item_end, %min_iters;
    setp.lt.u32 %p, %tile, %full_tiles;
    @%p bra${plan.scheduler.uniform[who]} ${who}_WHOLE;
    setp.ge.u32 %p, %share_first, %share_end;
    @%p bra${plan.scheduler.uniform[who]} ${who}_END;
    // the last tile of what is left of the share, and the iterations of it
    sub.u32 %tmp0, %share_end, 1;
    div.u32 %tail_tile, %tmp0, %min_iters;
    mul.lo.u32 %tmp0, %tail_tile, %min_iters;
    sub.u32 %item_end, %share_end, %tmp0;
    max.u32 %share_end, %share_first, %tmp0;
    sub.u32 %item_first, %share_end, %tmp0;
    mad.lo.u32 %number, %tail_tile, ${s.multicast}, %full_tiles;
    add.u32 %number, %number, %cluster_rank;
${who}_WHOLE:
${coords.from_number()}\
    mul.lo.u32 %k0, %item_first, ${plan.config.u};
    sub.u32 %k_iters, %item_end, %item_first;
</%def>

<%def name="close(who)">
${who}_NEXT:
    add.u32 %tile, %tile, %tile_step;
    bra${plan.scheduler.uniform[who]} ${who}_TILE;
${who}_END:
</%def>
