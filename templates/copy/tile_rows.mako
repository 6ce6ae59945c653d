## The rows of B of a tile are copied to its slot by cp.async; rows and columns after the last are zeros.
<%def name="prepare()">
<% x = plan.mainloop; b = x.row_copies %>\
    .reg .b64 %ptr_b, %b_pitch;
    .reg .b32 %b_column, %b_to, %b_bytes;
    .reg .s32 ${", ".join(f"%rows_left{n}" for n in range(len(b.columns)))};
    shr.u32 %tmp0, %lane, ${b.row_lanes.bit_length() - 1};
    mad.lo.u32 %tmp0, %first, ${x.depth}, %tmp0;
    and.b32 %b_column, %lane, ${b.row_lanes - 1};
    mad.lo.u32 %b_column, %b_column, ${x.vec}, %first_column;
    mul.lo.u32 %b_to, %lane, ${b.bytes};
    mul.wide.u32 %ptr_b, %tmp0, %ldb;
    cvt.u64.u32 %b_pitch, %b_column;
    add.u64 %ptr_b, %ptr_b, %b_pitch;
    mad.lo.u64 %ptr_b, %ptr_b, ${x.size}, %B;
    mul.wide.u32 %b_pitch, %ldb, ${b.row_step * x.size};
    // rows from the first one of the lane on; 0 for columns after the last
    sub.s32 %rows_left0, %K, %tmp0;
% for n, column in reversed(list(enumerate(b.columns))):
    add.u32 %tmp0, %b_column, ${column};
    setp.lt.u32 %p, %tmp0, %N;
    selp.b32 %rows_left${n}, %rows_left0, 0, %p;
% endfor
</%def>

<%def name="copy()">
<% x = plan.mainloop; b = x.row_copies %>\
    {
    .reg .b32 %copied_to;
    add.u32 %copied_to, %filled, %b_to;
% for i in b.rounds:
  % for n, column in enumerate(b.columns):
    setp.gt.s32 %p, %rows_left${n}, ${b.row_step * i};
    selp.b32 %b_bytes, ${b.bytes}, 0, %p;
    cp.async.${"cg" if b.bytes == 16 else "ca"}.shared.global [%copied_to+${x.b_at + b.round_bytes * i + b.column_bytes * n}], [%ptr_b+${x.size * column}], ${b.bytes}, %b_bytes;
  % endfor
    add.u64 %ptr_b, %ptr_b, %b_pitch;
% endfor
% for n in range(len(b.columns)):
    sub.s32 %rows_left${n}, %rows_left${n}, ${x.depth};
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
