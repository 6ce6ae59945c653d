## mma.sync straight from loads: two words along K of 16 rows of the long operand, and of 8 of the thin one.
<%namespace name="dot" file="/math/skinny_fma.mako"/>
<%def name="clear()">
    .reg .b32 %pair, %other_pair;
% for tile in plan.fragments.declared:
    ${tile.declaration}
% endfor
% for r in plan.acc.all:
    mov.b32 ${r}, 0;
% endfor
</%def>

<%def name="multiply(step)">
% for words, chunks in plan.fragments.cut(step):
% for i in range(6):
    selp.b32 %near${i}, ${chunks[i + 2]}, ${chunks[i]}, %two;
% endfor
% for i in range(5):
    selp.b32 %near${i}, %near${i + 1}, %near${i}, %one;
% endfor
% for i, word in enumerate(words):
    shf.r.wrap.b32 ${word}, %near${i}, %near${i + 1}, %bits;
% endfor
% endfor
${products(step)}\
</%def>

<%def name="products(step)">
% for word, parts in plan.fragments.packed(step):
% if len(parts) == 2:
    mov.b32 ${word}, {${parts[0]}, ${parts[1]}};
% else:
    mov.b32 %pair, {${parts[0]}, ${parts[1]}};
    mov.b32 %other_pair, {${parts[2]}, ${parts[3]}};
    prmt.b32 ${word}, %pair, %other_pair, 0x6420;
% endif
% endfor
% for word, x in plan.fragments.rounded(step):
    ${plan.rounding} ${word}, ${x};
% endfor
% for sums, a, b in plan.fragments.issues(step):
    ${plan.instruction.name} ${sums}, ${a}, ${b}, ${sums};
% endfor
</%def>

## No two threads of a warp have the same sums.
<%def name="meet()"></%def>

<%def name="row(i)">${dot.row(i)}</%def>
