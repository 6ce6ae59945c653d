## Slices of K store their sums to the workspace, and the block that finishes them polls every word. A word is zero until
## it is written, because sums are stored with inverted bits; the block that reads it sets it back to zero. No sum has the
## pattern that becomes zero: for floats it is a NaN that no arithmetic produces, for integers K would have to be longer.
<%namespace name="batch" file="/sched/batch.mako"/>
<%def name="reduce()">
<% f, kg = plan.fixup, plan.config.kg %>\
    {
    .reg .b64 %tile_sums, %slice_sums;
    .reg .b32 %word<4>, %zero;
    .reg .b32 %loaded<${f.loaded_registers}>;
    .reg .${plan.mainloop.acc_type} %partial;
    .reg .pred %missing;
    // 16 bytes a thread and group of columns, at [tile][owner][slice][warpgroup][instruction][group][thread]
    mov.u32 %tmp0, %ctaid.x;
    mov.u32 %tmp1, %ctaid.y;
    mov.u32 %tmp2, %nctaid.x;
    mad.lo.u32 %tmp0, %tmp1, %tmp2, %tmp0;
${batch.tile_index("%tmp0")}\
    mul.wide.u32 %tmp64, %tmp0, ${f.tile_bytes};
    add.u64 %tile_sums, %workspace, %tmp64;
    mul.lo.u32 %tmp0, %wg, ${f.wg_bytes};
    mad.lo.u32 %tmp0, %wg_thread, 16, %tmp0;
    cvt.u64.u32 %tmp64, %tmp0;
    add.u64 %tile_sums, %tile_sums, %tmp64;
% if not f.distributed:
    // the last slice keeps its sums in registers, and adds the others
    setp.eq.u32 %p, %slice, ${f.last_slice};
    @%p bra.uni REDUCE;
% endif
    mul.wide.u32 %tmp64, %slice, ${f.slice_bytes};
    add.u64 %slice_sums, %tile_sums, %tmp64;
    // store this slice's sums
% for slot in f.stored:
  % for n, r in enumerate(slot.registers):
    xor.b32 %word${n}, ${r}, ${f.inverted_bits};
  % endfor
    st.relaxed.gpu.global.v4.b32 [%slice_sums+${slot.offset}], {%word0, %word1, %word2, %word3};
% endfor
% if f.distributed:
  % if f.owners < kg:
    setp.ge.u32 %p, %slice, ${f.owners};
    @%p bra.uni END;
  % endif
    mul.wide.u32 %tmp64, %slice, ${f.owner_bytes};
    add.u64 %tile_sums, %tile_sums, %tmp64;
    mad.lo.u32 %y0, %slice, ${plan.epilogue.y_columns}, %y0;
% else:
    bra.uni END;
REDUCE:
% endif
    // ---- wait: poll until every word is written; add the words, and clear them
    mov.b32 %zero, 0;
% for b, slots in enumerate(f.loaded):
POLL${b}:
  % for words, slot in zip(f.loaded_words, slots):
    ld.relaxed.gpu.global.v4.b32 ${operand_list(words)}, [%tile_sums+${slot.offset}];
  % endfor
    setp.eq.u32 %missing, %loaded0, 0;
  % for word in sum(f.loaded_words[: len(slots)], [])[1:]:
    setp.eq.or.u32 %missing, ${word}, 0, %missing;
  % endfor
    @%missing bra POLL${b};
  % for words, slot in zip(f.loaded_words, slots):
    st.relaxed.gpu.global.v4.b32 [%tile_sums+${slot.offset}], {%zero, %zero, %zero, %zero};
    % for word, r in zip(words, slot.registers):
      % if slot.initial:
    xor.b32 ${r}, ${word}, ${f.inverted_bits};
      % else:
    xor.b32 %partial, ${word}, ${f.inverted_bits};
    ${plan.mainloop.join} ${r}, ${r}, %partial;
      % endif
    % endfor
  % endfor
% endfor
    bar.warp.sync 0xffffffff;
    }
</%def>
