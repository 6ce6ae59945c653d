## Transposes an operand to make it K-major: TMA loads 128 rows of K, threads transpose squares of elements in registers, TMA
## stores the transposed tiles.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%def name="entries()">
<%
    t = plan.packing.transpose_kernel
    rank, item = plan.packing.transpose_coordinates
%>\

// C = A B needs ${plan.packing.transposed_text} with K contiguous: each block transposes ${t.side} x ${t.DEPTH} elements
.visible .entry ${plan.entry}_transpose(
% for line in plan.packing.transpose_rows(plan.packing.transposed[0]).declarations:
    ${line}
% endfor
)
.maxntid ${t.threads}, 1, 1
{
    .reg .b64 %map_src, %map_dst;
    .reg .b32 %thread, %smem, %k_tiles, %k, %mn, %load_addr, %store_addr, %tmp0, %tmp1, %tmp2, %tmp3;
    .reg .pred %p, %elected;
    ${t.loaded.declaration}
% if t.size == 1:
    ${t.stored.declaration}
    ${t.temporaries.declaration}
% endif
    mov.b64 %map_src, map_from;
    cvta.param.u64 %map_src, %map_src;
    mov.b64 %map_dst, map_to;
    cvta.param.u64 %map_dst, %map_dst;
    ld.param.u32 %k_tiles, [k_tiles];
${pdl.trigger_and_wait()}\
% if plan.packing.batched:
    .reg .b32 %item;
    ld.param.u32 %item, [first_item];
    mov.u32 %tmp0, %ctaid.z;
    add.u32 %item, %item, %tmp0;
% endif
    mov.u32 %thread, %tid.x;
    mov.u32 %smem, smem;
    // the block's first element along K and along the other side
    mov.u32 %tmp0, %ctaid.x;
    div.u32 %mn, %tmp0, %k_tiles;
    mul.lo.u32 %tmp1, %mn, %k_tiles;
    sub.u32 %k, %tmp0, %tmp1;
    mul.lo.u32 %mn, %mn, ${t.side};
    mul.lo.u32 %k, %k, ${t.DEPTH};
    setp.eq.u32 %elected, %thread, 0;
    @!%elected bra LOADING;
    mbarrier.init.shared::cta.b64 [%smem+${t.barrier}], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%smem+${t.barrier}], ${t.TILE};
    add.u32 %tmp0, %smem, ${t.barrier};
    cp.async.bulk.tensor.${rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%smem], [%map_src, {%mn, %k${item}}], [%tmp0];
LOADING:
    // ---- wait: the mbarrier is initialised
    bar.sync 0, ${t.threads};
    // this thread's chunk %tmp0 along M or N and %tmp1 along K: eight threads access different banks, both ways
    and.b32 %tmp0, %thread, 7;
    shr.u32 %tmp1, %thread, 3;
    and.b32 %tmp1, %tmp1, 7;
    xor.b32 %tmp1, %tmp1, %tmp0;
    shr.u32 %tmp3, %thread, 6;
    // addresses that this thread loads from
    mul.lo.u32 %load_addr, %tmp1, ${t.chunk_elements};
    and.b32 %tmp2, %load_addr, 7;
    xor.b32 %tmp2, %tmp2, %tmp0;
    mad.lo.u32 %load_addr, %tmp3, ${t.side}, %load_addr;
    shl.b32 %load_addr, %load_addr, 7;
    mad.lo.u32 %load_addr, %tmp2, 16, %load_addr;
    add.u32 %load_addr, %load_addr, %smem;
    // addresses that this thread stores to
    mul.lo.u32 %store_addr, %tmp0, ${t.chunk_elements};
    and.b32 %tmp2, %store_addr, 7;
    xor.b32 %tmp2, %tmp2, %tmp1;
    shl.b32 %store_addr, %store_addr, 7;
    mad.lo.u32 %store_addr, %tmp2, 16, %store_addr;
    mad.lo.u32 %store_addr, %tmp3, ${t.tile_bytes}, %store_addr;
    add.u32 %store_addr, %store_addr, %smem;
    // ---- wait: the tile is in shared memory
${sync.wait(f"%smem+{t.barrier}", 0)}\
% for words, swizzle, offset in t.loads:
${constants.xor("%tmp0", "%load_addr", swizzle)}\
    ld.shared.v4.b32 ${words}, [%tmp0+${offset}];
% endfor
    // transpose squares of 4 x 4 bytes
% for (a, b, c, d), to in t.squares:
    prmt.b32 ${t.temporaries[0]}, ${a}, ${b}, 0x5140;
    prmt.b32 ${t.temporaries[1]}, ${c}, ${d}, 0x5140;
    prmt.b32 ${t.temporaries[2]}, ${a}, ${b}, 0x7362;
    prmt.b32 ${t.temporaries[3]}, ${c}, ${d}, 0x7362;
    prmt.b32 ${to[0]}, ${t.temporaries[0]}, ${t.temporaries[1]}, 0x5410;
    prmt.b32 ${to[1]}, ${t.temporaries[0]}, ${t.temporaries[1]}, 0x7632;
    prmt.b32 ${to[2]}, ${t.temporaries[2]}, ${t.temporaries[3]}, 0x5410;
    prmt.b32 ${to[3]}, ${t.temporaries[2]}, ${t.temporaries[3]}, 0x7632;
% endfor
% for words, swizzle, offset in t.stores:
${constants.xor("%tmp0", "%store_addr", swizzle)}\
    st.shared.v4.b32 [%tmp0+${offset}], ${words};
% endfor
    // ---- wait: the block has written the transposed tiles
    fence.proxy.async.shared::cta;
    bar.sync 0, ${t.threads};
    // one thread stores the tiles
    @!%elected bra DONE;
% for offset, k in t.stored_tiles:
    add.u32 %tmp0, %smem, ${offset};
${constants.add("%tmp1", "%k", k)}\
    cp.async.bulk.tensor.${rank}d.global.shared::cta.tile.bulk_group [%map_dst, {%tmp1, %mn${item}}], [%tmp0];
% endfor
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
DONE:
    ret;
}
</%def>
