## Weights of 8 bits as bf16: 128 plus the lower 7 bits, minus 128 or 256. Unsigned weights are 128 greater.
<%def name="word(q, into, word, offsets)">
    xor.b32 %signed_word, ${word}, ${q.inverted};
% for i, selector in q.pairs:
${pair(q, into[i], "%signed_word", selector)}\
  % if not q.format.signed:
    fma.rn.bf16x2 ${into[i]}, ${offsets[0]}, %minus_one_pair, ${into[i]};
  % endif
% endfor
</%def>

<%def name="pair(q, to, word, selector)">
    prmt.b32 %sign_part, ${word}, ${q.magic_bytes}, ${selector};
    and.b32 ${to}, %sign_part, 0xFF7FFF7F;
    and.b32 %sign_part, %sign_part, 0xFF80FF80;
    fma.rn.bf16x2 ${to}, %sign_part, %minus_one_pair, ${to};
</%def>

<%def name="registers(q)">
    .reg .b32 %signed_word, %sign_part, %minus_one_pair, %constant_offset;
    mov.b32 %minus_one_pair, ${q.minus_one};
    mov.b32 %constant_offset, ${q.inverted_zero};
</%def>

## A zero point less 128, as the weights have them.
<%def name="zero_point(q, to, zero)">
    mad.lo.u32 %signed_word, ${zero}, 0x10001, 0x00800080;
    and.b32 %signed_word, %signed_word, 0x00FF00FF;
${pair(q, to[0], "%signed_word", "0x4240")}\
</%def>
