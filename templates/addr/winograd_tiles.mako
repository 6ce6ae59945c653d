## The tile of results, and the channels, that a thread transforms.
<%def name="registers()">
    .reg .b32 %tile, %image, %tile_row, %tile_column, %channel, %thread;
</%def>

## Adjacent threads have adjacent channels where ``threads.lanes`` is above 1, else adjacent tiles. Branches to DONE beyond
## ``tiles`` and ``channels``.
<%def name="tile_and_channel(threads, tiles, channels)">
    mov.u32 %thread, %tid.x;
    mov.u32 %tile, %ctaid.x;
    mul.lo.u32 %tile, %tile, ${threads.tiles};
    mov.u32 %channel, %ctaid.y;
    mul.lo.u32 %channel, %channel, ${threads.block_channels};
% if threads.lanes > 1:
    shr.u32 %tmp0, %thread, ${threads.log2_lanes};
    add.u32 %tile, %tile, %tmp0;
    and.b32 %tmp0, %thread, ${threads.last_lane};
    add.u32 %channel, %channel, %tmp0;
% else:
    add.u32 %tile, %tile, %thread;
% endif
    setp.ge.u32 %p, %tile, ${tiles};
    @%p bra DONE;
    setp.ge.u32 %p, %channel, ${channels};
    @%p bra DONE;
<% first, second, last = threads.digits %>\
    // the tile's image, row and column
    div.u32 %${last}, %tile, %${first}s;
    mul.lo.u32 %tmp0, %${last}, %${first}s;
    sub.u32 %${first}, %tile, %tmp0;
    div.u32 %tmp0, %${last}, %${second}s;
    mul.lo.u32 %${second}, %tmp0, %${second}s;
    sub.u32 %${second}, %${last}, %${second};
    mov.u32 %${last}, %tmp0;
</%def>
