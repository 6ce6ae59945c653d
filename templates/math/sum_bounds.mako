## Bounds of sums of squares of differences (families/resident_rows/sum_bounds.py): see there what the numbers are.
<%def name="declare()">
<% own = plan.mainloop.bounds %>\
    .reg .f32 %norm, %greatest_sum;
    ${own.best.declaration}
% for line in own.temporaries:
    ${line}
% endfor
</%def>

<%def name="begin()">
<% own = plan.mainloop.bounds %>\
    // the limits of the rows
% for row in plan.group.rows:
  % for line in own.norm("%norm", plan.mainloop.row(row.row)):
    ${line}
  % endfor
    fma.rn.f32 ${own.half[row.row]}, %norm, ${own.row_share}, ${own.less};
${known(own.half[row.row])}\
  % if own.follows_best:
    mov.f32 ${own.limit[row.row]}, ${own.unknown};
  % else:
    % for line in own.bound_lines(row.row, "%greatest_sum", row.values.known):
    ${line}
    % endfor
${limit(row, "%greatest_sum")}\
  % endif
% endfor
</%def>

## NaN in place of a number if the norm is too large, or NaN
<%def name="known(number)">
    setp.lt.f32 %p, %norm, ${plan.mainloop.bounds.most};
    selp.f32 ${number}, ${number}, ${plan.mainloop.bounds.unknown}, %p;
</%def>

<%def name="limit(row, greatest)">
<% own = plan.mainloop.bounds %>\
    fma.rn.f32 ${own.limit[row.row]}, ${greatest}, ${own.sum_share}, ${own.half[row.row]};
</%def>

## The numbers of the columns of the tile, behind their elements.
<%def name="columns()">
<% own = plan.mainloop.bounds %>\
    {
    .reg .b32 %of_column, %norm_addr;
    .reg .f32 %element<${own.k}>;
    .reg .pred %holds;
% for first in own.column_starts:
    add.u32 %of_column, %thread, ${first};
    setp.le.u32 %holds, %of_column, ${own.last_column};
    min.u32 %of_column, %of_column, ${own.last_column};
    mov.u32 %norm_addr, smem;
    mad.lo.u32 %norm_addr, %of_column, 4, %norm_addr;
  % for k, offset in enumerate(own.element_offsets):
    ld.shared.f32 %element${k}, [%norm_addr+${offset}];
  % endfor
  % for line in own.norm("%norm", [f"%element{k}" for k in range(own.k)]):
    ${line}
  % endfor
    mul.rn.f32 %element0, %norm, ${own.column_share};
${known("%element0")}\
    @%holds st.shared.f32 [%norm_addr+${own.norm_offset}], %element0;
% endfor
    }
    // ---- wait: the numbers of the columns are in shared memory
    bar.sync 0;
</%def>

## The greatest bound of a row.
<%def name="bound(group, row)">
% for k in range(plan.mainloop.k):
  % for q in range(group.columns):
    ${plan.mainloop.bound_step(row.row, k, q)}
  % endfor
% endfor
% for line in plan.mainloop.bounds.greatest(plan.mainloop.bounds.best[row.row], row.sums):
    ${line}
% endfor
</%def>
