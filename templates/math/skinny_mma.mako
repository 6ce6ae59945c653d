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
% for vector in plan.mainloop.fragments.unaligned(step):
  % for to, far, near in vector.whole_words:
    selp.b32 ${to}, ${far}, ${near}, %skip_two;
  % endfor
  % for to, following in vector.odd_words:
    selp.b32 ${to}, ${following}, ${to}, %skip_one;
  % endfor
  % for word, low, high in vector.bits:
    shf.r.wrap.b32 ${word}, ${low}, ${high}, %bit_shift;
  % endfor
% endfor
${products(step)}\
</%def>

<%def name="products(step)">
% for word, halves in plan.mainloop.fragments.packed(step):
  % if len(halves) == 1:
    mov.b32 ${word}, ${halves[0]};
  % else:
    mov.b32 %low_pair, ${halves[0]};
    mov.b32 %high_pair, ${halves[1]};
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
