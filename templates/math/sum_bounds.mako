## Bounds of sums of squares of differences; families/resident_rows/sum_bounds.py defines the numbers.
<%namespace name="rows" file="/ptx/any_row.mako"/>
<%def name="declare()">
<% own = plan.mainloop.bounds %>\
    .reg .f32 %norm, %greatest_sum;
    ${own.best.declaration}
% for line in own.temporaries:
    ${line}
% endfor
</%def>

<%def name="begin()">
    // the limits of the rows
% for row in plan.group.rows:
${norm(row.bounds.elements)}\
    fma.rn.f32 ${row.bounds.half}, %norm, ${plan.mainloop.bounds.row_share}, ${plan.mainloop.bounds.less};
${known(row.bounds.half)}\
  % if plan.mainloop.bounds.follows_best:
    mov.f32 ${row.bounds.limit}, ${plan.mainloop.bounds.unknown};
  % else:
    % for line in row.bounds.greatest_sum:
    ${line}
    % endfor
${limit(row, "%greatest_sum")}\
  % endif
% endfor
</%def>

## %norm: the squared norm of a vector
<%def name="norm(elements)">
    mul.rn.f32 %norm, ${elements[0]}, ${elements[0]};
% for element in elements[1:]:
    fma.rn.f32 %norm, ${element}, ${element}, %norm;
% endfor
</%def>

## NaN in place of a number if the norm is too large, or NaN
<%def name="known(number)">
    setp.lt.f32 %p, %norm, ${plan.mainloop.bounds.most};
    selp.f32 ${number}, ${number}, ${plan.mainloop.bounds.unknown}, %p;
</%def>

<%def name="limit(row, greatest)">
    fma.rn.f32 ${row.bounds.limit}, ${greatest}, ${plan.mainloop.bounds.sum_share}, ${row.bounds.half};
</%def>

## The numbers of the columns of the tile, behind their elements.
<%def name="columns()">
<% own = plan.mainloop.bounds %>\
    {
    .reg .b32 %of_column, %norm_addr;
    ${own.column.declaration}
    .reg .f32 %column_norm;
    .reg .pred %holds;
% for first in own.column_starts:
    add.u32 %of_column, %thread, ${first};
    setp.le.u32 %holds, %of_column, ${own.last_column};
    min.u32 %of_column, %of_column, ${own.last_column};
    mov.u32 %norm_addr, smem;
    mad.lo.u32 %norm_addr, %of_column, 4, %norm_addr;
  % for element, offset in own.column_elements:
    ld.shared.f32 ${element}, [%norm_addr+${offset}];
  % endfor
${norm(own.column.all)}\
    mul.rn.f32 %column_norm, %norm, ${own.column_share};
${known("%column_norm")}\
    @%holds st.shared.f32 [%norm_addr+${own.norm_offset}], %column_norm;
% endfor
    }
    // ---- wait: the numbers of the columns are in shared memory
    bar.sync 0;
</%def>

## The greatest bound of a row.
<%def name="compute(group, row)">
% for bound, element, column, addend in row.bounds.products:
    fma.rn.f32 ${bound}, ${element}, ${column}, ${addend};
% endfor
% for line in row.bounds.greatest:
    ${line}
% endfor
</%def>

## %p: a pair of the row may change results.
<%def name="reaches(row)">
    setp.geu.f32 %p, ${row.bounds.best}, ${row.bounds.limit};
</%def>

## %p: a pair of this row, or of an earlier one, may change results.
<%def name="reaches_any(row)">
${rows.any_row(row.row, "geu", "f32", row.bounds.best, row.bounds.limit)}\
</%def>
