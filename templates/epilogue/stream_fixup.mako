## Stream-K: a block stores its sums of a tile that another block completes; that block polls every word.
<%namespace name="polled" file="/epilogue/polled_sums.mako"/>
<%def name="reduce()">
<% f = plan.fixup %>\
    {
    .reg .b64 %block_sums;
    .reg .b32 %block, %before;
${polled.registers()}\
    // 16 bytes a thread and group of columns, at [block][warpgroup][instruction][group][thread]
    mov.u32 %block, %ctaid.x;
    mul.lo.u32 %tmp0, %wg, ${f.wg_bytes};
    mad.lo.u32 %tmp0, %wg_thread, 16, %tmp0;
    cvt.u64.u32 %tmp64, %tmp0;
    add.u64 %tmp64, %tmp64, %workspace;
    setp.eq.u32 %p, %item_end, %min_iters;
    @%p bra.uni TILE_END;
    // store the sums of this block
    mad.wide.u32 %block_sums, %block, ${f.slice_bytes}, %tmp64;
${polled.store("%block_sums")}\
    bra.uni CONSUMER_NEXT;
TILE_END:
    setp.eq.u32 %p, %item_first, 0;
    @%p bra.uni TILE_COMPLETE;
    // the blocks before this one, from that which has the first iteration of the tile
    mov.b32 %zero, 0;
    mul.lo.u32 %before, %tail_tile, %min_iters;
    div.u32 %before, %before, %share_iters;
    mad.lo.u32 %before, %before, ${plan.scheduler.multicast}, %cluster_rank;
    .pragma "nounroll";
ADD_BLOCK:
    mad.wide.u32 %block_sums, %before, ${f.slice_bytes}, %tmp64;
    // ---- wait: poll until every word is written; add the words, and clear them
${polled.add("%block_sums")}\
    add.u32 %before, %before, ${plan.scheduler.multicast};
    setp.lt.u32 %p, %before, %block;
    @%p bra.uni ADD_BLOCK;
TILE_COMPLETE:
    }
</%def>
