## Sums of other blocks in the workspace. Sums are stored with inverted bits, and a word is zero until it is written; the block
## that reads a word sets it back to zero. No sum has the bits that invert to zero: for floats they are a NaN that no arithmetic
## produces, for integers K would have to be longer.
<%def name="registers()">
    .reg .b32 %word<4>, %zero;
    .reg .b32 %loaded<${plan.fixup.loaded_registers}>;
    .reg .${plan.mainloop.acc_type} %partial;
    .reg .pred %missing;
</%def>

## Stores the sums of this block, 16 bytes a thread and group of columns, from ``base`` on.
<%def name="store(base)">
% for slot in plan.fixup.stored:
  % for n, r in enumerate(slot.registers):
    xor.b32 %word${n}, ${r}, ${plan.fixup.inverted_bits};
  % endfor
    st.relaxed.gpu.global.v4.b32 [${base}+${slot.offset}], {%word0, %word1, %word2, %word3};
% endfor
</%def>

## Polls until every word is written; adds the words, and clears them.
<%def name="add(base)">
<% f = plan.fixup %>\
% for b, slots in enumerate(f.loaded):
POLL${b}:
  % for words, slot in zip(f.loaded_words, slots):
    ld.relaxed.gpu.global.v4.b32 ${operand_list(words)}, [${base}+${slot.offset}];
  % endfor
    setp.eq.u32 %missing, %loaded0, 0;
  % for word in f.later_words[b]:
    setp.eq.or.u32 %missing, ${word}, 0, %missing;
  % endfor
    @%missing bra POLL${b};
  % for words, slot in zip(f.loaded_words, slots):
    st.relaxed.gpu.global.v4.b32 [${base}+${slot.offset}], {%zero, %zero, %zero, %zero};
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
</%def>\
