## mma.sync on a tile whose bitmap is in the order of fragments: a lane has two adjacent bits of one of two words.
<%def name="prepare()">
    .reg .b32 %low_bit, %high_bit, %below, %words_at;
    and.b32 %tmp0, %lane, 15;
    shl.b32 %tmp0, %tmp0, 1;
    shl.b32 %low_bit, 1, %tmp0;
    shl.b32 %high_bit, 2, %tmp0;
    sub.u32 %below, %low_bit, 1;
    shr.u32 %tmp0, %lane, 4;
    mad.lo.u32 %words_at, %tmp0, 8, %decoded;
</%def>

<%def name="multiply()">
<% x = plan.mainloop %>\
% for rows, columns, words, products in x.fragment_products:

    // ---- fragment of rows ${rows} and columns ${columns}
  % for register, offset in zip(x.left.all, words):
    ld.shared.v2.b32 {%word, %value_at}, [%words_at+${offset}];
    and.b32 %tmp0, %word, %below;
    popc.b32 %tmp0, %tmp0;
    mad.lo.u32 %value_at, %tmp0, 2, %value_at;
    and.b32 %tmp0, %word, %low_bit;
    setp.ne.u32 %p, %tmp0, 0;
    and.b32 %tmp0, %word, %high_bit;
    setp.ne.u32 %some, %tmp0, 0;
    mov.b16 ${x.element[0]}, 0;
    mov.b16 ${x.element[1]}, 0;
    @%p ld.shared.b16 ${x.element[0]}, [%value_at];
    @%p add.u32 %value_at, %value_at, 2;
    @%some ld.shared.b16 ${x.element[1]}, [%value_at];
    mov.b32 ${register}, {${x.element[0]}, ${x.element[1]}};
  % endfor
  % for line in products:
    ${line}
  % endfor
% endfor
</%def>
