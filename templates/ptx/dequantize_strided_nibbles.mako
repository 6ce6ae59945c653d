## Weights of 4 bits: the nibbles at the same place in both halves of a word, which are four weights apart.
<%def name="word(q, into, word, offsets)">
% for register, bits in q.shifts:
    shr.u32 ${register}, ${word}, ${bits};
% endfor
% for i, shifted, mask, magic, factor, n in q.strided_pairs:
    lop3.b32 ${into[i]}, ${shifted or word}, ${mask}, ${magic}, ${q.lut_and_xor};
    fma.rn.${q.dtype}x2 ${into[i]}, ${into[i]}, ${factor}, ${offsets[n]};
% endfor
</%def>

<%def name="registers(q)">
    .reg .b32 %one_pair, %constant_offset, %sixteenth_pair, %upper_offset;
% for register, _ in q.shifts:
    .reg .b32 ${register};
% endfor
    mov.b32 %one_pair, ${q.one};
    mov.b32 %constant_offset, ${q.offset};
    mov.b32 %sixteenth_pair, ${q.sixteenth};
    mov.b32 %upper_offset, ${q.upper_offset};
</%def>

## Minus the power of two and a zero point, in both halves; the same over 16 for upper nibbles.
<%def name="zero_point(q, to, zero)">
    and.b32 ${zero}, ${zero}, ${q.zero_bits};
    mad.lo.u32 ${to[0]}, ${zero}, 0x10001, ${q.offset};
% if q.upper:
    mad.lo.u32 ${to[1]}, ${zero}, ${q.upper_zero}, ${q.upper_offset};
% endif
</%def>
