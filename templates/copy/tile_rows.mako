## Copies the rows of B that a tile needs to its slot by cp.async. Rows and columns after the last are zeros.
<%def name="prepare()">
<% x = plan.mainloop; b = x.row_copies %>\
    .reg .b64 %ptr_b, %b_pitch;
    .reg .b32 %b_column, %b_to, %b_bytes;
    .reg .s32 ${b.counters};
    shr.u32 %tmp0, %lane, ${b.log2_row_lanes};
    mad.lo.u32 %tmp0, %first, ${x.depth}, %tmp0;
    and.b32 %b_column, %lane, ${b.row_lane_mask};
    mad.lo.u32 %b_column, %b_column, ${x.vec}, %first_column;
    mul.lo.u32 %b_to, %lane, ${b.bytes};
    mul.wide.u32 %ptr_b, %tmp0, %ldb;
    cvt.u64.u32 %b_pitch, %b_column;
    add.u64 %ptr_b, %ptr_b, %b_pitch;
    mad.lo.u64 %ptr_b, %ptr_b, ${x.size}, %B;
    mul.wide.u32 %b_pitch, %ldb, ${b.step_bytes};
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
% for row, copies in x.row_copies_of_rounds:
  % for n, (to, offset) in enumerate(copies):
    setp.gt.s32 %p, %rows_left${n}, ${row};
    selp.b32 %b_bytes, ${b.bytes}, 0, %p;
    cp.async.${b.cache}.shared.global [%copied_to+${to}], [%ptr_b+${offset}], ${b.bytes}, %b_bytes;
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
  % for g, offset in enumerate(x.group_offsets):
    ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 ${x.right[g, :]}, [%tmp0+${offset}];
  % endfor
% endif
</%def>
