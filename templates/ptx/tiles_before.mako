## The numbers of tiles before those of a thread, over the threads of a block. %tiles: those of this thread.
## %tile_prefix: tiles of the threads of this warp up to this one
<%def name="in_warp()">
    mov.u32 %tile_prefix, %tiles;
% for step in (1, 2, 4, 8, 16):
    shfl.sync.up.b32 %tmp0|%has_prev, %tile_prefix, ${step}, 0, -1;
    @%has_prev add.u32 %tile_prefix, %tile_prefix, %tmp0;
% endfor
    setp.eq.u32 %p, %lane, 31;
    mad.lo.u32 %tmp0, %warp, 4, %smem;
    @%p st.shared.u32 [%tmp0], %tile_prefix;
</%def>

## Adds the tiles of the warps before to %first_tile, and those of all warps to %total_tiles. warp_offsets: where they are.
<%def name="of_warps(warp_offsets)">
% for w, offset in enumerate(warp_offsets):
    ld.shared.u32 %tmp0, [%smem+${offset}];
    setp.gt.u32 %has_prev, %warp, ${w};
    @%has_prev add.u32 %first_tile, %first_tile, %tmp0;
    add.u32 %total_tiles, %total_tiles, %tmp0;
% endfor
</%def>
