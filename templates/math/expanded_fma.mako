## FMA on a tile with all zeros in shared memory, where a lane has 4 elements of its row side by side.
<%def name="prepare()">
</%def>

<%def name="multiply()">
<% x, op = plan.mainloop, plan.arithmetic %>\
    mad.lo.u32 %tmp0, %lane, ${x.piece}, %decoded;
% for c in range(0, x.depth, 4):
    ld.shared.v4.f32 ${x.element.vector(0, n=4)}, [%tmp0+${32 * x.piece * (c // 4)}];
  % for i in range(4):
    % for offset, names, access in x.b_vectors:
    ld.shared.${access} ${operand_list(names)}, [%slot+${x.b_at + 4 * (c + i) * x.columns + offset}];
    % endfor
    % for b, s in zip(x.right.all, x.sums.all):
    ${op.fma} ${s}, ${x.element[i]}, ${b}, ${s};
    % endfor
  % endfor
% endfor
</%def>
