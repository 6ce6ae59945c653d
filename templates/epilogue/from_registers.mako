## Each thread stores its part of the tile from registers, row by row. again: True if an earlier walk over the tile has read the
## sums.
<%namespace name="c_addr" file="/${context['plan'].epilogue.out_addr}"/>
<%namespace name="sums" file="/${context['plan'].epilogue.column_sums}"/>
<%def name="store_tile(math, store_op, add_c, again=False)">
% if again:
  % for r in plan.mainloop.joined:
    mov.${plan.mainloop.acc.ptx_type} ${r}, ${plan.reducer.identity_in(plan.mainloop.acc.ptx_type)};
  % endfor
% endif
    {
    .reg .b64 %c_addr;
    .reg .b32 %c_row, %c_col;
    .reg .pred %in_m, %in_bounds, %in_n<${len(plan.epilogue.columns)}>;
    ${plan.epilogue.vector.declaration}
    add.u32 %c_row, %m0, %row;
    add.u32 %c_col, %n0, %col;
${c_addr.columns("%c_addr", "%c_row", "%c_col", "%out", "%ld_out", plan.epilogue.out_bytes)}\
% for n, column in enumerate(plan.epilogue.checked_columns):
    add.u32 %tmp0, %c_col, ${column};
    setp.lt.u32 %in_n${n}, %tmp0, %N;
% endfor
${sums.begin()}\
% for i, (row, step) in enumerate(plan.row_steps):
    // row + ${row}: alpha times the sums, then stores
${c_addr.next_row("%c_addr", "%c_row", row, step, "%ld_out", plan.epilogue.out_bytes)}\
  % if plan.epilogue.checks_bounds:
    add.u32 %tmp0, %c_row, ${row};
    setp.lt.u32 %in_m, %tmp0, %M;
  % endif
${math.scaled_row(i)}\
  % for n, column in enumerate(plan.epilogue.columns):
    % if plan.epilogue.checks_bounds:
    and.pred %in_bounds, %in_m, %in_n${n};
    % endif
${c_addr.column_address("%c_addr", n, "%out", plan.epilogue.out_bytes)}\
${store_op.store_vector(plan.epilogue.column_vectors[n], "%c_addr", c_addr.offset(column, plan.epilogue.out_bytes), plan.epilogue.in_bounds, add_c, ("%c_row", row), ("%c_col", column))}\
  % endfor
% endfor
${sums.end()}\
    }
</%def>
