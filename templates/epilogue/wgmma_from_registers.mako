## Each thread stores its sums from registers: pairs of columns, in rows that are 8 apart (adjacent rows, if wgmma reads X
## from registers).
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="convert" file="/ptx/convert.mako"/>
<%namespace name="pack" file="/epilogue/pack_8bit.mako"/>
<%namespace name="sums" file="/${context['plan'].epilogue.column_sums}"/>
<%def name="setup()"></%def>
<%def name="early()"></%def>
<%def name="finish()"></%def>

## The sums stay in registers, so that a sink may take them again.
<%def name="store_tile(math, store_op, add, again=False)">
    {
% if plan.epilogue.out_of_place:
    ${plan.epilogue.vector.declaration}
% endif
    .reg .b64 %c_addr<${len(plan.epilogue.row_pointers)}>;
    .reg .b32 %c_x, %c_y, %row, %x_rem, %y_rem;
    .reg .pred %in_bounds, %in_x<${plan.epilogue.rows}>, %in_y<2>;
    // this thread's first element of C
${constants.mad("%c_x", "%wg", plan.mainloop.wg_rows, "%x0")}\
${convert.add_thread_terms("%c_x", "%wg_thread", plan.mainloop.row_terms)}\
    and.b32 %c_y, %lane, 3;
    mad.lo.u32 %c_y, %c_y, 2, %y0;
    // rows and columns of C from there on
    sub.s32 %x_rem, ${plan.scheduler.x_extent}, %c_x;
    sub.s32 %y_rem, ${plan.scheduler.y_extent}, %c_y;
% for n, row in enumerate(plan.epilogue.row_offsets):
    setp.gt.s32 %in_x${n}, %x_rem, ${row};
% endfor
<% across, along = plan.epilogue.contiguous %>\
% for n, first in enumerate(plan.epilogue.row_pointers):
${constants.add("%row", across, first)}\
    mul.wide.u32 %tmp64, %row, %ld_out;
    cvt.u64.u32 %tmp64b, ${along};
    add.u64 %tmp64, %tmp64, %tmp64b;
    mad.lo.u64 %c_addr${n}, %tmp64, ${plan.epilogue.out_bytes}, %out;
% endfor
% if plan.epilogue.pack_8bit:
${pack.setup()}\
% endif
${sums.begin()}\
% for j, columns in enumerate(plan.epilogue.column_groups):
${sums.begin_columns()}\
  % for e, column in enumerate(columns):
    setp.gt.s32 %in_y${e}, %y_rem, ${column};
  % endfor
  % for n in range(plan.epilogue.rows):
    % for w, out, lines in plan.epilogue.thread_stores[j, n]:
      % for line in lines:
    ${line}
      % endfor
    and.pred %in_bounds, %in_x${n}, %in_y${w.second};
${store_op.store_vector(out, f"%c_addr{w.pointer}", w.offset, "@%in_bounds ", add, w.row, w.column)}\
    % endfor
${pack.store(j, n)}\
  % endfor
${sums.end_columns(j)}\
  % if plan.epilogue.transposed:
    % for n in range(len(plan.epilogue.row_pointers)):
    mad.wide.u32 %c_addr${n}, %ld_out, ${plan.epilogue.group_pitch_bytes}, %c_addr${n};
    % endfor
  % endif
% endfor
${sums.end()}\
    }
</%def>
