## FMA on a tile whose bitmap words are columns: a lane has the elements of one row, and all lanes read the same row of B.
<%def name="prepare()">
    .reg .b32 %own_bit, %below;
    shl.b32 %own_bit, 1, %lane;
    sub.u32 %below, %own_bit, 1;
</%def>

<%def name="multiply()">
<% x, op = plan.mainloop, plan.arithmetic %>\
% for word_offset, loads in x.column_loads:
    ld.shared.v2.b32 {%word, %value_at}, [%decoded+${word_offset}];
    and.b32 %tmp0, %word, %below;
    popc.b32 %tmp0, %tmp0;
    mad.lo.u32 %value_at, %tmp0, ${x.size}, %value_at;
    and.b32 %tmp0, %word, %own_bit;
    setp.ne.u32 %p, %tmp0, 0;
    mov.f32 ${x.element[0]}, ${op.zero};
    @%p ld.shared.f32 ${x.element[0]}, [%value_at];
  % for offset, registers, access in loads:
    ld.shared.${access} ${registers}, [%slot+${offset}];
  % endfor
  % for b, s in zip(x.right.all, x.sums.all):
    ${op.fma} ${s}, ${x.element[0]}, ${b}, ${s};
  % endfor
% endfor
</%def>
