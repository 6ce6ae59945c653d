## Stream-K of one product: a block stores its sums of a tile that another block completes; that block polls every word. Sums are
## stored with inverted bits, and a word is zero until it is written; the block that reads a word sets it back to zero.
<%namespace name="ptx" file="/ptx/banner.mako"/>
<%namespace name="vector" file="/ptx/vector.mako"/>
<%namespace name="stream_sums" file="/epilogue/stream_sums.mako"/>
<%def name="join(done)">
<% m, word = plan.mainloop, plan.mainloop.word %>\
    {
    .reg .b64 %partial_addr;
    .reg .b32 %block, %before;
    .reg .${word.type} %word<${word.registers}>, %no_word;
    .reg .${m.acc.ptx_type} %partial;
    .reg .pred %missing;
% for line in m.group_registers:
    ${line}
% endfor
    mov.u32 %block, %ctaid.x;
    ld.param.u32 %tmp0, [tile_iters];
    max.u32 %tmp1, %k_iters, 1;
    add.u32 %tmp1, %tmp1, %part_first;
    setp.ge.u32 %p, %tmp1, %tmp0;
    @%p bra.uni TILE_COMPLETES;
${ptx.banner("stream-K: another block completes the tile; store the sums of this part")}\
${place("%block")}\
% for first, names in m.further_sets:
  % for to, r in zip(first, names):
    ${m.acc_add} ${to}, ${to}, ${r};
  % endfor
% endfor
% if plan.config.kl > 1:
${stream_sums.add_groups(store)}\
% else:
  % for names, offset in zip(m.sum_vectors, m.sum_offsets):
${store(names, offset, "")}\
  % endfor
% endif
    bra.uni ${done};
TILE_COMPLETES:
    setp.eq.u32 %p, %part_first, 0;
    @%p bra.uni SUMS_COMPLETE;
${ptx.banner("stream-K: add the sums of the blocks before this one, from that which has the first iteration of the tile")}\
% if plan.config.kl > 1:
    // the first thread group adds
    setp.ge.u32 %adds, %thread, ${m.group};
    @%adds bra SUMS_COMPLETE;
% endif
    mov.${word.type} %no_word, 0;
    ld.param.u32 %tmp0, [share_iters];
    sub.u32 %before, %share_end, %part_first;
    div.u32 %before, %before, %tmp0;
    .pragma "nounroll";
ADD_BLOCK:
${place("%before")}\
% for n, batch in enumerate(m.sum_batches):
POLL${n}:
  % for x in batch:
    ld.relaxed.gpu.global.${x.access} ${x.words}, [%partial_addr+${x.offset}];
  % endfor
    setp.eq.${word.unsigned} %missing, %word0, 0;
  % for x in batch.later_words:
    setp.eq.or.${word.unsigned} %missing, ${x}, 0, %missing;
  % endfor
    @%missing bra POLL${n};
  % for x in batch:
    st.relaxed.gpu.global.${x.access} [%partial_addr+${x.offset}], ${x.zeros};
    % for w, r in x.pairs:
    xor.${word.type} %partial, ${w}, ${word.inverted};
    ${m.acc_add} ${r}, ${r}, %partial;
    % endfor
  % endfor
% endfor
    add.u32 %before, %before, 1;
    setp.lt.u32 %p, %before, %block;
    @%p bra ADD_BLOCK;
    }
SUMS_COMPLETE:
</%def>

## The address of this thread's sums in the place of a block.
<%def name="place(block)">
    mul.wide.u32 %partial_addr, ${block}, ${plan.scheduler.slice_bytes};
    add.u64 %partial_addr, %partial_addr, %workspace;
    mad.wide.u32 %partial_addr, %thread, ${plan.mainloop.acc_vector_bytes}, %partial_addr;
</%def>

<%def name="store(names, offset, guard)">
<% word = plan.mainloop.word %>\
% for w, r in zip(word.names, names):
    xor.${word.type} ${w}, ${r}, ${word.inverted};
  % if word.payloads:
    max.u64 ${w}, ${w}, 1;
  % endif
% endfor
    ${guard}st.relaxed.gpu.global.${vector.access_type(len(names), word.type)} [%partial_addr+${offset}], ${operand_list(word.names[: len(names)])};
</%def>
