## The values that a sink takes from wgmma's fragments, in the registers of plan.values. In each group of 8 columns along Y, a
## thread has two columns of two rows along X.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="convert" file="/ptx/convert.mako"/>
<%namespace name="values" file="/epilogue/result_values.mako"/>
## of: the values, if not all. The thread's first row and column, its bounds, and elements of vectors along X. %c_x, %c_y: the
## first of the warpgroup.
<%def name="setup()">
${bounds()}\
${load_rows()}\
</%def>

<%def name="bounds()">
<% v = plan.values %>\
    .reg .b64 %read_addr, %read_row;
    .reg .b32 %first_x, %first_y, %x_rem, %y_rem, %index_x<2>, %index_y<2>;
    .reg .pred %in_x<${v.rows_of_thread}>, %in_y<2>, %in_bounds;
${values.setup()}\
    mov.b32 %first_x, %c_x;
${convert.add_thread_terms("%first_x", "%wg_thread", plan.mainloop.row_terms)}\
    and.b32 %first_y, %lane, 3;
    mad.lo.u32 %first_y, %first_y, 2, %c_y;
    sub.s32 %x_rem, ${plan.scheduler.x_extent}, %first_x;
    sub.s32 %y_rem, ${plan.scheduler.y_extent}, %first_y;
% for n, row in enumerate(plan.epilogue.row_offsets):
    setp.gt.s32 %in_x${n}, %x_rem, ${row};
% endfor
</%def>

<%def name="load_rows(of=None)">
<% v = of or plan.values %>\
% for x, elements in v.row_arrays:
    ${elements.declaration}
    mad.wide.u32 %read_addr, %first_x, ${x.bytes}, %${x.name};
  % for n, (r, row) in enumerate(zip(elements.all, plan.epilogue.row_offsets)):
    mov.${x.ptx_type} ${r}, ${x.zero};
    @%in_x${n} ld.global.nc.${x.access} ${r}, [%read_addr+${x.offsets[row]}];
  % endfor
% endfor
</%def>

## The elements of vectors along Y of a batch of groups of columns. first_y, y_rem: the first column of group 0, and the columns of
## C from there on.
<%def name="begin_batch(groups, of=None, first_y='%first_y', y_rem='%y_rem')">
<% v = of or plan.values %>\
% for x, elements in v.column_arrays:
    ${elements.declaration}
    mad.wide.u32 %read_addr, ${first_y}, ${x.bytes}, %${x.name};
  % for n, j in enumerate(groups):
    % for e, column in enumerate(plan.epilogue.column_groups[j]):
    setp.gt.s32 %in_y${e}, ${y_rem}, ${column};
    mov.${x.ptx_type} ${elements[n, e]}, ${x.zero};
    @%in_y${e} ld.global.nc.${x.access} ${elements[n, e]}, [%read_addr+${x.offsets[column]}];
    % endfor
  % endfor
% endfor
</%def>

## The registers of a scope in which the values of a fragment are computed.
<%def name="declare(of=None)">
<% v = of or plan.values %>\
% for tile in v.tiles:
    ${tile.declaration}
% endfor
% for line in v.temporaries:
    ${line}
% endfor
% for tile in v.element_tiles:
    ${tile.declaration}
% endfor
</%def>

## The values of fragment m along X of the columns of group j, which is number n of the batch.
<%def name="compute(m, j, n, sums, of=None, first_y='%first_y', y_rem='%y_rem')">
<% v, rows, columns = of or plan.values, plan.epilogue.fragment_rows[m], plan.epilogue.column_groups[j] %>\
% if v.computes_indices:
  % for h, row in enumerate(rows):
${constants.add(f"%index_x{h}", "%first_x", row.offset)}\
  % endfor
  % for e, column in enumerate(columns):
${constants.add(f"%index_y{e}", first_y, column)}\
  % endfor
% endif
% for x, reads in v.element_rows:
  % for e, column in enumerate(columns):
    setp.gt.s32 %in_y${e}, ${y_rem}, ${column};
  % endfor
  % for row_index, elements in reads:
    mul.wide.u32 %read_row, ${row_index}, %ld_${x.name};
    mad.lo.u64 %read_row, %read_row, ${x.bytes}, %${x.name};
    % for index, h, e, element in elements:
    mad.wide.u32 %read_addr, ${index}, ${x.bytes}, %read_row;
    and.pred %in_bounds, %in_x${rows[h].number}, %in_y${e};
    mov.${x.ptx_type} ${element}, ${x.zero};
    @%in_bounds ld.global.nc.${x.access} ${element}, [%read_addr];
    % endfor
  % endfor
% endfor
% for line in v.fragment_lines(m, n, sums):
    ${line}
% endfor
</%def>
