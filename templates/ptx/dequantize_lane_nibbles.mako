## Weights of 4 bits as f16: the lane's byte of a word, twice. The lower half of the result has the lower nibble, the upper half
## has 16 times the upper nibble.
<%def name="word(q, into, word, offsets)">
    prmt.b32 ${into[0]}, ${word}, 0, ${q.selector};
    lop3.b32 ${into[0]}, ${into[0]}, ${q.byte_mask}, ${q.byte_magic}, ${q.lut_and_xor};
    fma.rn.f16x2 ${into[0]}, ${into[0]}, %byte_factor, ${offsets[0]};
</%def>

<%def name="registers(q)">
    .reg .b32 %byte_factor, %constant_offset;
    mov.b32 %byte_factor, ${q.byte_factor};
    mov.b32 %constant_offset, ${q.byte_offset};
</%def>

## Minus the power of two and a zero point, in the lower half; the same over 16 in the upper half.
<%def name="zero_point(q, to, zero)">
    and.b32 ${zero}, ${zero}, ${q.zero_bits};
    mad.lo.u32 ${to[0]}, ${zero}, ${q.byte_zero}, ${q.byte_offset};
</%def>
