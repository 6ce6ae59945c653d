## Weights of 8 bits as f16.
<%def name="word(q, into, word, offsets)">
    xor.b32 %unsigned_word, ${word}, ${q.inverted};
% for i, selector in q.pairs:
    prmt.b32 ${into[i]}, %unsigned_word, ${q.magic_bytes}, ${selector};
    fma.rn.${q.dtype}x2 ${into[i]}, ${into[i]}, %one_pair, ${offsets[0]};
% endfor
</%def>

<%def name="registers(q)">
    .reg .b32 %unsigned_word, %one_pair, %constant_offset;
    mov.b32 %one_pair, ${q.one};
    mov.b32 %constant_offset, ${q.offset};
</%def>

<%def name="zero_point(q, to, zero)">
    mad.lo.u32 ${to[0]}, ${zero}, 0x10001, ${q.offset};
</%def>
