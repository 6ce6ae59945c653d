## mma.sync on a tile that is stored with its zeros in shared memory, where a lane has its elements of a fragment side by side.
<%def name="prepare()">
</%def>

<%def name="multiply()">
<% x = plan.mainloop %>\
    mad.lo.u32 %tmp0, %lane, ${x.piece}, %decoded;
% for offset, (_, _, _, products) in zip(x.fragment_offsets, x.fragment_products):
    ld.shared.v4.b32 ${x.left[:]}, [%tmp0+${offset}];
  % for line in products:
    ${line}
  % endfor
% endfor
</%def>
