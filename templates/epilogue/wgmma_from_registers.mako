## Each thread stores its sums from registers: pairs of columns, in rows that are 8 apart (adjacent rows, if wgmma reads X
## from registers).
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="convert" file="/ptx/convert.mako"/>
<%namespace name="pack" file="/epilogue/pack_8bit.mako"/>
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
% for n in range(plan.epilogue.rows):
    setp.gt.s32 %in_x${n}, %x_rem, ${plan.epilogue.row_offset(n)};
% endfor
% for n, first in enumerate(plan.epilogue.row_pointers):
${constants.add("%row", "%c_y" if plan.epilogue.transposed else "%c_x", first)}\
    mul.wide.u32 %tmp64, %row, %ld_out;
    cvt.u64.u32 %tmp64b, ${"%c_x" if plan.epilogue.transposed else "%c_y"};
    add.u64 %tmp64, %tmp64, %tmp64b;
    mad.lo.u64 %c_addr${n}, %tmp64, ${plan.epilogue.out_bytes}, %out;
% endfor
% if plan.epilogue.pack_8bit:
${pack.setup()}\
% endif
% for j in range(plan.epilogue.y_columns // 8):
  % for e in range(2):
    setp.gt.s32 %in_y${e}, %y_rem, ${8 * j + e};
  % endfor
  % for n in range(plan.epilogue.rows):
    % for w in plan.epilogue.stores(j, n):
<% out = plan.epilogue.result_registers(w) %>\
      % for line in plan.epilogue.scaled_results(w):
    ${line}
      % endfor
    and.pred %in_bounds, %in_x${n}, %in_y${w.second};
${store_op.store_vector(out, f"%c_addr{w.pointer}", w.offset, "@%in_bounds ", add, w.row, w.column)}\
    % endfor
${pack.store(j, n)}\
  % endfor
  % if plan.epilogue.transposed:
    % for n in range(len(plan.epilogue.row_pointers)):
    mad.wide.u32 %c_addr${n}, %ld_out, ${8 * plan.epilogue.out_bytes}, %c_addr${n};
    % endfor
  % endif
% endfor
    }
</%def>
