## mma.sync on a tile with all zeros in shared memory, where a lane has its elements of a fragment side by side.
<%def name="prepare()">
</%def>

<%def name="multiply()">
<% x = plan.mainloop %>\
    mad.lo.u32 %tmp0, %lane, ${x.piece}, %decoded;
% for n, (k, m) in enumerate(x.fragments):
    ld.shared.v4.b32 ${x.left.vector(0, n=4)}, [%tmp0+${32 * x.piece * n}];
  % for g in x.groups:
    ${x.product(k, m, g)}
  % endfor
% endfor
</%def>
