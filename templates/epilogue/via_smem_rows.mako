## Each thread stores its sums to shared memory; then warps store C by whole rows, and add the sums of thread groups that split
## K. The columns of a thread are the same in all rows, so a row has one address and one comparison for each vector.
<%namespace name="c_addr" file="/${context['plan'].epilogue.out_addr}"/>
<%def name="store_tile(math, store_op, add_c)">
<% e = plan.epilogue %>\
    {
    .reg .b64 %c_addr;
    .reg .b32 %c_row, %c_col, %sums_addr, %rows_end;
    .reg .pred %in_bounds, %in_n<${e.row_rounds}>;
    ${e.vector.declaration}
    ${plan.c.addend.declaration}
% for i, stores in enumerate(plan.smem_sums):
${math.scaled_row(i)}\
  % for registers, offset in stores:
    ${e.sts_guard}st.shared.${e.sums_access} [%smem_c+${offset}], ${registers};
  % endfor
% endfor
    // rows of this thread: every ${e.rows_per_step}th from its first; ${e.row_rounds} vectors of a row, ${e.round_columns} elements apart
    shr.u32 %c_row, %thread, ${e.log2_row_lanes};
    and.b32 %c_col, %thread, ${e.row_lane_mask};
    mul.lo.u32 %c_col, %c_col, ${plan.c.vec};
    mad.lo.u32 %sums_addr, %c_row, ${e.row_pitch}, %c_col;
    mad.lo.u32 %sums_addr, %sums_addr, ${plan.arithmetic.bytes}, %smem;
    add.u32 %c_row, %c_row, %m0;
    add.u32 %c_col, %c_col, %n0;
    add.u32 %rows_end, %m0, ${plan.config.ml};
    min.u32 %rows_end, %rows_end, %M;
% for j, column in enumerate(e.vector_columns):
    add.u32 %tmp0, %c_col, ${column};
    setp.lt.u32 %in_n${j}, %tmp0, %N;
% endfor
${c_addr.element("%c_addr", "%c_row", "%c_col", "%out", "%ld_out", e.out_bytes)}\
    // ---- wait: the whole tile is in shared memory
    bar.sync 0;
    setp.ge.u32 %p, %c_row, %rows_end;
    @%p bra ROWS_STORED${int(add_c)};
    .pragma "nounroll";
STORE_ROWS${int(add_c)}:
% for row in e.batch_loads:
  % for j, (column, loads) in enumerate(zip(e.vector_columns, row)):
    setp.lt.and.u32 %in_bounds, %c_row, %rows_end, %in_n${j};
    % for g, (registers, operand, offset) in enumerate(loads):
    @%in_bounds ld.shared.${plan.c.sums_type} ${operand}, [%sums_addr+${offset}];
      % if g:
        % for sum, other in zip(e.stored, registers):
    @%in_bounds ${plan.arithmetic.add} ${sum}, ${sum}, ${other};
        % endfor
      % endif
    % endfor
${store_op.store_vector(e.stored, "%c_addr", c_addr.offset(column, e.out_bytes), "@%in_bounds ", add_c, ("%c_row", 0), ("%c_col", column))}\
  % endfor
    add.u32 %c_row, %c_row, ${e.rows_per_step};
${c_addr.next_row("%c_addr", "%c_row", 0, e.rows_per_step, "%ld_out", e.out_bytes)}\
% endfor
    add.u32 %sums_addr, %sums_addr, ${e.batch_bytes};
    setp.lt.u32 %p, %c_row, %rows_end;
    @%p bra STORE_ROWS${int(add_c)};
ROWS_STORED${int(add_c)}:
    }
</%def>
