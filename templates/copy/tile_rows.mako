## The rows of B of a tile are copied to its slot by cp.async; rows and columns after the last are zeros.
<%def name="prepare()">
<% x = plan.mainloop; b = x.row_copies %>\
    .reg .b64 %ptr_b;
    .reg .b32 %b_row, %b_column, %b_to;
    shr.u32 %b_row, %lane, ${b.row_lanes.bit_length() - 1};
    and.b32 %b_column, %lane, ${b.row_lanes - 1};
    mad.lo.u32 %b_column, %b_column, ${x.vec}, %first_column;
    mul.lo.u32 %b_to, %lane, ${b.bytes};
</%def>

<%def name="copy()">
<% x = plan.mainloop; b = x.row_copies %>\
    {
    .reg .b32 %copied_to, %copied_row, %row, %column, %bytes;
    add.u32 %copied_to, %filled, %b_to;
    add.u32 %copied_row, %first, %ahead;
    mad.lo.u32 %copied_row, %copied_row, ${x.depth}, %b_row;
% for row, column, to in b.copies:
    add.u32 %row, %copied_row, ${row};
    add.u32 %column, %b_column, ${column};
    setp.lt.u32 %p, %row, %K;
    setp.lt.and.u32 %p, %column, %N, %p;
    selp.b32 %bytes, ${b.bytes}, 0, %p;
    selp.b32 %row, %row, 0, %p;
    selp.b32 %column, %column, 0, %p;
    mul.wide.u32 %ptr_b, %row, %ldb;
    cvt.u64.u32 %ptr_tile, %column;
    add.u64 %ptr_b, %ptr_b, %ptr_tile;
    mad.lo.u64 %ptr_b, %ptr_b, ${x.size}, %B;
    cp.async.${"cg" if b.bytes == 16 else "ca"}.shared.global [%copied_to+${x.b_at + to}], [%ptr_b], ${b.bytes}, %bytes;
% endfor
    }
</%def>

## The right operands of MMA instructions; others read the slot.
<%def name="load()">
<% x = plan.mainloop %>\
% if x.size == 2:
    mad.lo.u32 %tmp0, %lane, 16, %slot;
% for g in x.groups:
    ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 ${x.right.vector(g, 0, n=4)}, [%tmp0+${x.b_at + 16 * x.depth * g}];
% endfor
% endif
</%def>
