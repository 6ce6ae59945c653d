## Each lane loads its elements of the right operand. The elements of the next tile are loaded while the present tile is
## multiplied.
<%def name="prepare()">
    .reg .b64 %ptr_b, %ptr_row;
    .reg .b32 %b_row, %b_column, %pitch;
    shr.u32 %b_column, %lane, 2;
    add.u32 %b_column, %b_column, %first_column;
    and.b32 %b_row, %lane, 3;
    shl.b32 %b_row, %b_row, 1;
    mad.lo.u32 %b_row, %first, ${plan.mainloop.depth}, %b_row;
    mul.lo.u32 %pitch, %ldb, ${plan.mainloop.size};
    setp.ne.u32 %some, %count, 0;
${load_next()}\
</%def>

<%def name="copy()">
</%def>

<%def name="load()">
<% x = plan.mainloop %>\
% for g in x.groups:
  % for i in range(4):
    mov.b32 ${x.right[g, i]}, ${x.next_right[g, i, :]};
  % endfor
% endfor
    add.u32 %tmp0, %done, 1;
    setp.lt.u32 %some, %tmp0, %count;
    add.u32 %b_row, %b_row, ${x.depth};
${load_next()}\
</%def>

## The elements of the tile whose first row of this lane is %b_row, if there is %some.
<%def name="load_next()">
<% x = plan.mainloop %>\
    mul.wide.u32 %ptr_b, %b_row, %ldb;
    cvt.u64.u32 %ptr_row, %b_column;
    add.u64 %ptr_b, %ptr_b, %ptr_row;
    mad.lo.u64 %ptr_b, %ptr_b, ${x.size}, %B;
% for row, elements in x.lane_rows_of_b:
    add.u32 %tmp0, %b_row, ${row};
    setp.lt.and.u32 %inside, %tmp0, %K, %some;
    mad.wide.u32 %ptr_row, %pitch, ${row}, %ptr_b;
  % for register, column, offset in elements:
    add.u32 %tmp0, %b_column, ${column};
    setp.lt.and.u32 %p, %tmp0, %N, %inside;
    mov.b16 ${register}, 0;
    @%p ld.global.nc.b16 ${register}, [%ptr_row+${offset}];
  % endfor
% endfor
</%def>
