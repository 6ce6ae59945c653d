## B is a vector: a few lanes copy the elements that a tile needs to its slot. Elements after the last are zeros.
<%def name="prepare()">
<% x = plan.mainloop %>\
    .reg .b64 %ptr_b;
    .reg .b32 %b_to, %b_from;
    .reg .s32 %elements_left, %b_bytes;
    .reg .pred %copies_b;
    setp.lt.u32 %copies_b, %lane, ${x.vector_pieces};
    mul.lo.u32 %tmp0, %lane, ${x.piece_elements};
    mad.lo.u32 %tmp0, %first, ${x.depth}, %tmp0;
    sub.s32 %elements_left, %K, %tmp0;
    mad.wide.u32 %ptr_b, %tmp0, ${x.size}, %B;
    mad.lo.u32 %b_to, %lane, ${x.piece}, ${x.b_at};
    and.b32 %b_from, %lane, 3;
    mad.lo.u32 %b_from, %b_from, 4, ${x.b_at};
</%def>

<%def name="copy()">
<% x = plan.mainloop %>\
    {
    .reg .b32 %copied_to;
    add.u32 %copied_to, %filled, %b_to;
    mul.lo.s32 %b_bytes, %elements_left, ${x.size};
    max.s32 %b_bytes, %b_bytes, 0;
    min.s32 %b_bytes, %b_bytes, ${x.piece};
    @%copies_b cp.async.cg.shared.global [%copied_to], [%ptr_b], ${x.piece}, %b_bytes;
    add.u64 %ptr_b, %ptr_b, ${x.vector_bytes};
    sub.s32 %elements_left, %elements_left, ${x.depth};
    }
</%def>

## The right operand: all its columns are the vector; only the first one is stored.
<%def name="load()">
<% x = plan.mainloop %>\
    add.u32 %tmp0, %slot, %b_from;
% for register, offset in zip(x.right.all, x.vector_offsets):
    ld.shared.b32 ${register}, [%tmp0+${offset}];
% endfor
</%def>
