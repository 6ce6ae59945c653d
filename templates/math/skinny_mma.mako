## mma.sync on loaded registers: two words along K of 16 rows of the long operand and of 8 rows of the short one.
<%namespace name="dot" file="/math/skinny_fma.mako"/>
<%namespace name="matrix" file="/math/matrix_product.mako"/>
<%def name="clear_accumulators()">
    .reg .b32 %low_pair, %high_pair;
% for tile in plan.mainloop.fragments.declared:
    ${tile.declaration}
% endfor
% for r in plan.mainloop.acc.all:
    mov.b32 ${r}, 0;
% endfor
</%def>

<%def name="multiply(step)">
% for words, chunks in plan.mainloop.fragments.unaligned(step):
  % for i in range(6):
    selp.b32 %shifted${i}, ${chunks[i + 2]}, ${chunks[i]}, %skip_two;
  % endfor
  % for i in range(5):
    selp.b32 %shifted${i}, %shifted${i + 1}, %shifted${i}, %skip_one;
  % endfor
  % for i, word in enumerate(words):
    shf.r.wrap.b32 ${word}, %shifted${i}, %shifted${i + 1}, %bit_shift;
  % endfor
% endfor
${products(step)}\
</%def>

<%def name="products(step)">
% for word, parts in plan.mainloop.fragments.packed(step):
  % if len(parts) == 2:
    mov.b32 ${word}, {${parts[0]}, ${parts[1]}};
  % else:
    mov.b32 %low_pair, {${parts[0]}, ${parts[1]}};
    mov.b32 %high_pair, {${parts[2]}, ${parts[3]}};
    prmt.b32 ${word}, %low_pair, %high_pair, 0x6420;
  % endif
% endfor
% for word, x in plan.mainloop.fragments.rounded(step):
    ${plan.mainloop.rounding} ${word}, ${x};
% endfor
% for sums, a, b in plan.mainloop.fragments.issues(step):
${matrix.product(plan.mainloop.instruction, sums, a, b)}\
% endfor
</%def>

## The threads of a warp hold different sums: there is nothing to add.
<%def name="reduce_lanes()"></%def>

<%def name="scaled_row(i)">${dot.scaled_row(i)}</%def>
