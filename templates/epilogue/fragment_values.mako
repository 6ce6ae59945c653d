## The values that a sink takes of wgmma's fragments: plan.values has their registers. A thread has, of each group of 8 columns
## along Y, two columns of two rows along X.
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
    .reg .pred %in_x<${2 * v.mi}>, %in_y<2>, %in_bounds;
${values.setup()}\
    mov.b32 %first_x, %c_x;
${convert.add_thread_terms("%first_x", "%wg_thread", plan.mainloop.row_terms)}\
    and.b32 %first_y, %lane, 3;
    mad.lo.u32 %first_y, %first_y, 2, %c_y;
    sub.s32 %x_rem, ${plan.scheduler.x_extent}, %first_x;
    sub.s32 %y_rem, ${plan.scheduler.y_extent}, %first_y;
% for n in range(plan.epilogue.rows):
    setp.gt.s32 %in_x${n}, %x_rem, ${plan.epilogue.row_offset(n)};
% endfor
</%def>

<%def name="load_rows(of=None)">
<% v = of or plan.values %>\
% for x in v.along_x:
    ${v.x_tile(x).declaration}
    mad.wide.u32 %read_addr, %first_x, ${x.bytes}, %${x.name};
  % for n, r in enumerate(v.x_tile(x).all):
    mov.${x.kind} ${r}, ${v.zero(x)};
    @%in_x${n} ld.global.nc.${x.access} ${r}, [%read_addr+${plan.epilogue.row_offset(n) * x.bytes}];
  % endfor
% endfor
</%def>

## The elements of vectors along Y of a batch of groups of columns. first_y, y_rem: the first column of group 0, and the columns of
## C from there on.
<%def name="begin_batch(groups, of=None, first_y='%first_y', y_rem='%y_rem')">
<% v = of or plan.values %>\
% for x in v.along_y:
    ${v.y_tile(x).declaration}
    mad.wide.u32 %read_addr, ${first_y}, ${x.bytes}, %${x.name};
  % for n, j in enumerate(groups):
    % for e in range(2):
    setp.gt.s32 %in_y${e}, ${y_rem}, ${8 * j + e};
    mov.${x.kind} ${v.y_tile(x)[n, e]}, ${v.zero(x)};
    @%in_y${e} ld.global.nc.${x.access} ${v.y_tile(x)[n, e]}, [%read_addr+${(8 * j + e) * x.bytes}];
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
% for x in v.pitched:
    ${v.element_tile(x).declaration}
% endfor
</%def>

## The values of fragment m along X of the columns of group j, which is number n of the batch.
<%def name="compute(m, j, n, sums, of=None, first_y='%first_y', y_rem='%y_rem')">
<% v = of or plan.values %>\
% if v.computes_indices:
  % for h in range(2):
${constants.add(f"%index_x{h}", "%first_x", plan.epilogue.row_offset(2 * m + h))}\
  % endfor
  % for e in range(2):
${constants.add(f"%index_y{e}", first_y, 8 * j + e)}\
  % endfor
% endif
% for x in v.pitched:
  % for e in range(2):
    setp.gt.s32 %in_y${e}, ${y_rem}, ${8 * j + e};
  % endfor
<% leading, other = ("x", "y") if v.leading(x) == "x" else ("y", "x") %>\
  % for a in range(2):
    mul.wide.u32 %read_row, %index_${leading}${a}, %ld_${x.name};
    mad.lo.u64 %read_row, %read_row, ${x.bytes}, %${x.name};
    % for b in range(2):
<% h, e = (a, b) if leading == "x" else (b, a) %>\
    mad.wide.u32 %read_addr, %index_${other}${b}, ${x.bytes}, %read_row;
    and.pred %in_bounds, %in_x${2 * m + h}, %in_y${e};
    mov.${x.kind} ${v.element_tile(x)[h, e]}, ${v.zero(x)};
    @%in_bounds ld.global.nc.${x.access} ${v.element_tile(x)[h, e]}, [%read_addr];
    % endfor
  % endfor
% endfor
% for line in v.fragment_lines(m, n, sums):
    ${line}
% endfor
</%def>
