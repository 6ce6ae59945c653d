## Each thread stores its sums from registers to a C whose rows and columns are at computed offsets.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="convert" file="/ptx/convert.mako"/>
<%namespace name="locations" file="/${context['plan'].epilogue.locations}"/>
<%def name="setup()"></%def>
<%def name="early()"></%def>
<%def name="finish()"></%def>

<%def name="store_tile(math, store_op, add)">
<% runs_x, runs_y = plan.epilogue.runs_along %>\
    {
% if plan.epilogue.out_of_place:
    ${plan.epilogue.vector.declaration}
% endif
    .reg .b64 %c_addr, %product;
    .reg .b32 %c_x, %c_y, %x_rem, %y_rem, %offset_x<${plan.epilogue.rows}>, %offset_y<2>, ${plan.epilogue.run_registers};
    .reg .pred %in_bounds, %in_x<${plan.epilogue.rows}>, %in_y<2>;
${locations.registers()}\
% for run in plan.epilogue.runs:
  % for name in run.registers:
    ld.param.u32 %${name}, [${name}];
  % endfor
% endfor
    // this thread's first element of C
${constants.mad("%c_x", "%wg", plan.mainloop.wg_rows, "%x0")}\
${convert.add_thread_terms("%c_x", "%wg_thread", plan.mainloop.row_terms)}\
    and.b32 %c_y, %lane, 3;
    mad.lo.u32 %c_y, %c_y, 2, %y0;
    // rows and columns of C from there on
    sub.s32 %x_rem, ${plan.scheduler.x_extent}, %c_x;
    sub.s32 %y_rem, ${plan.scheduler.y_extent}, %c_y;
% for n, row in enumerate(plan.epilogue.row_offsets):
${locations.locate(runs_x, f"%offset_x{n}", f"%in_x{n}", "%x_rem", "%c_x", row, f"%block_x{n}")}\
% endfor
% for j, columns in enumerate(plan.epilogue.column_groups):
  % for e, column in enumerate(columns):
${locations.locate(runs_y, f"%offset_y{e}", f"%in_y{e}", "%y_rem", "%c_y", column, f"%block_y{e}")}\
  % endfor
  % for n in range(plan.epilogue.rows):
    % for w, out, _ in plan.epilogue.thread_stores[j, n]:
      % for r, to in zip(w.registers, out):
    ${plan.arithmetic.mul} ${to}, ${r}, %alpha;
      % endfor
    and.pred %in_bounds, %in_x${n}, %in_y${w.second};
${locations.same_block(n, w.second)}\
    add.s32 %tmp0, %offset_x${n}, %offset_y${w.second};
    mad.wide.s32 %c_addr, %tmp0, ${plan.epilogue.out_bytes}, %out;
${store_op.store_vector(out, "%c_addr", 0, "@%in_bounds ", add, w.row, w.column)}\
    % endfor
  % endfor
% endfor
    }
</%def>
