## Stream-K: a block stores its sums of a tile that another one completes, which polls every word. A word is zero until it
## is written, because sums are stored with inverted bits; the block that reads it sets it back to zero (splitk_fixup.mako).
<%def name="reduce()">
<% f = plan.fixup %>\
    {
    .reg .b64 %block_sums;
    .reg .b32 %word<4>, %zero, %block, %before;
    ${f.loaded.declaration}
    .reg .${plan.mainloop.acc_type} %partial;
    .reg .pred %missing;
    // 16 bytes a thread and group of columns, at [block][warpgroup][instruction][group][thread]
    mov.u32 %block, %ctaid.x;
    mul.lo.u32 %tmp0, %wg, ${f.wg_bytes};
    mad.lo.u32 %tmp0, %wg_thread, 16, %tmp0;
    cvt.u64.u32 %tmp64, %tmp0;
    add.u64 %tmp64, %tmp64, %workspace;
    setp.eq.u32 %p, %item_end, %min_iters;
    @%p bra.uni TILE_END;
    // store the sums of this block
    mad.wide.u32 %block_sums, %block, ${f.block_bytes}, %tmp64;
% for slot in f.stored:
  % for n, r in enumerate(slot.registers):
    xor.b32 %word${n}, ${r}, ${f.inverted_bits};
  % endfor
    st.relaxed.gpu.global.v4.b32 [%block_sums+${slot.offset}], {%word0, %word1, %word2, %word3};
% endfor
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
    mad.wide.u32 %block_sums, %before, ${f.block_bytes}, %tmp64;
    // ---- wait: poll until every word is written; add the words, and clear them
% for b, slots in enumerate(f.added):
POLL${b}:
  % for n, slot in enumerate(slots):
    ld.relaxed.gpu.global.v4.b32 ${f.loaded_vectors[n]}, [%block_sums+${slot.offset}];
  % endfor
    setp.eq.u32 %missing, ${f.loaded[0, 0]}, 0;
  % for word in f.later_words[b]:
    setp.eq.or.u32 %missing, ${word}, 0, %missing;
  % endfor
    @%missing bra POLL${b};
  % for n, slot in enumerate(slots):
    st.relaxed.gpu.global.v4.b32 [%block_sums+${slot.offset}], {%zero, %zero, %zero, %zero};
    % for i, r in enumerate(slot.registers):
    xor.b32 %partial, ${f.loaded[n, i]}, ${f.inverted_bits};
    ${plan.mainloop.join} ${r}, ${r}, %partial;
    % endfor
  % endfor
% endfor
    bar.warp.sync 0xffffffff;
    add.u32 %before, %before, ${plan.scheduler.multicast};
    setp.lt.u32 %p, %before, %block;
    @%p bra.uni ADD_BLOCK;
TILE_COMPLETE:
    }
</%def>
