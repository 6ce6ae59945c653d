## Each thread stores its sums to shared memory; then the block stores C by whole rows, and adds the sums of thread groups that
## split K. again: True if the sums are in shared memory, where an earlier walk over the tile has read them.
<%namespace name="c_addr" file="/${context['plan'].epilogue.out_addr}"/>
<%def name="store_tile(math, store_op, add_c, again=False)">
    {
    .reg .b64 %c_addr;
    .reg .b32 %c_row, %c_col, %vec_index;
    .reg .pred %in_bounds;
    ${plan.epilogue.vector.declaration}
    ${plan.c.addend.declaration}
% if not again:
${sums_to_shared(math)}\
% endif
    mov.u32 %vec_index, %thread;
% if plan.epilogue.gather_rounds > plan.epilogue.UNROLLED:
    .pragma "nounroll";
STORE_ROWS${int(add_c)}:
% endif
% for n in range(min(plan.epilogue.gather_rounds, plan.epilogue.UNROLLED) if plan.epilogue.gather_rounds <= plan.epilogue.UNROLLED else 1):
    // vector %vec_index of the tile: its row and column of C
  % for line in plan.epilogue.vector_place:
    ${line}
  % endfor
    mul.lo.u32 %c_col, %c_col, ${plan.c.vec};
    mad.lo.u32 %tmp0, %c_row, ${plan.epilogue.row_pitch}, %c_col;
    mad.lo.u32 %tmp0, %tmp0, ${plan.arithmetic.bytes}, %smem;
    add.u32 %c_row, %c_row, %m0;
    add.u32 %c_col, %c_col, %n0;
  % if plan.epilogue.checks_bounds:
    setp.lt.u32 %in_bounds, %c_row, %M;
    setp.lt.and.u32 %in_bounds, %c_col, %N, %in_bounds;
  % endif
  % if plan.epilogue.partial_gather:
    % if plan.epilogue.checks_bounds:
    setp.lt.and.u32 %in_bounds, %vec_index, ${plan.epilogue.gather_loads}, %in_bounds;
    % else:
    setp.lt.u32 %in_bounds, %vec_index, ${plan.epilogue.gather_loads};
    % endif
  % endif
${c_addr.element("%c_addr", "%c_row", "%c_col", "%out", "%ld_out", plan.epilogue.out_bytes)}\
  % for g, (registers, operand, offset) in enumerate(plan.epilogue.group_sum_loads):
    ${plan.epilogue.gather_guard}ld.shared.${plan.c.sums_type} ${operand}, [%tmp0+${offset}];
    % if g:
      % for sum, other in zip(plan.epilogue.stored, registers):
        % for line in plan.reducer.join(sum, other, plan.epilogue.gather_guard):
    ${line}
        % endfor
      % endfor
    % endif
  % endfor
${store_op.store_vector(plan.epilogue.stored, "%c_addr", 0, plan.epilogue.gather_guard, add_c, ("%c_row", 0), ("%c_col", 0))}\
    add.u32 %vec_index, %vec_index, ${plan.threads};
% endfor
% if plan.epilogue.gather_rounds > plan.epilogue.UNROLLED:
    setp.lt.u32 %p, %vec_index, ${plan.epilogue.gather_end};
    @%p bra STORE_ROWS${int(add_c)};
% endif
    }
</%def>

## Stores the sums of this thread, and waits for those of the block.
<%def name="sums_to_shared(math)">
% for i, stores in enumerate(plan.smem_sums):
${math.scaled_row(i)}\
  % for registers, offset in stores:
    ${plan.epilogue.sts_guard}st.shared.${plan.epilogue.sums_access} [%smem_c+${offset}], ${registers};
  % endfor
% endfor
    // ---- wait: the whole tile is in shared memory
    bar.sync 0;
</%def>
