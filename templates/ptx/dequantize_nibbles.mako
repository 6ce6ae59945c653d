## Weights of 4 bits: each byte has two adjacent weights.
<%def name="word(q, into, word, offsets)">
    shr.u32 %upper_nibbles, ${word}, 4;
% for i, selector in q.pairs:
    prmt.b32 ${into[i]}, ${word}, %upper_nibbles, ${selector};
    lop3.b32 ${into[i]}, ${into[i]}, ${q.nibble_bits}, ${q.magic}, ${q.lut_and_xor};
    fma.rn.${q.dtype}x2 ${into[i]}, ${into[i]}, %one_pair, ${offsets[0]};
% endfor
</%def>

<%def name="registers(q)">
    .reg .b32 %upper_nibbles, %one_pair, %constant_offset;
    mov.b32 %one_pair, ${q.one};
    mov.b32 %constant_offset, ${q.offset};
</%def>

## Minus the power of two and a zero point, in both halves.
<%def name="zero_point(q, to, zero)">
    and.b32 ${zero}, ${zero}, ${q.zero_bits};
    mad.lo.u32 ${to[0]}, ${zero}, 0x10001, ${q.offset};
</%def>
