## FMA on a tile that is stored with its zeros in shared memory, where a lane has 4 elements of its row side by side.
<%def name="prepare()">
</%def>

<%def name="multiply()">
<% x, op = plan.mainloop, plan.arithmetic %>\
    mad.lo.u32 %tmp0, %lane, ${x.piece}, %decoded;
% for offset, columns in x.element_loads:
    ld.shared.v4.f32 ${x.element[:]}, [%tmp0+${offset}];
  % for element, loads in columns:
    % for offset, registers, access in loads:
    ld.shared.${access} ${registers}, [%slot+${offset}];
    % endfor
    % for b, s in zip(x.right.all, x.sums.all):
    ${op.fma} ${s}, ${element}, ${b}, ${s};
    % endfor
  % endfor
% endfor
</%def>
