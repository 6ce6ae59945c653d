## Each thread stores its sums to shared memory; then the block stores C by whole rows, and adds the sums of thread groups
## that split K. again: the sums are in shared memory, where an earlier walk over the tile has read them.
<%namespace name="ptx" file="/ptx/vector.mako"/>
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
    shr.u32 %c_row, %vec_index, ${plan.epilogue.log2_row_vectors};
    and.b32 %c_col, %vec_index, ${plan.epilogue.row_vectors - 1};
    mul.lo.u32 %c_col, %c_col, ${plan.c.vec};
    mad.lo.u32 %tmp0, %c_row, ${plan.epilogue.row_pitch}, %c_col;
    mad.lo.u32 %tmp0, %tmp0, ${plan.arithmetic.bytes}, %smem;
    add.u32 %c_row, %c_row, %m0;
    add.u32 %c_col, %c_col, %n0;
  % if plan.epilogue.checks_bounds:
    setp.lt.u32 %in_bounds, %c_row, %M;
    setp.lt.and.u32 %in_bounds, %c_col, %N, %in_bounds;
  % endif
  % if plan.epilogue.gather_loads < plan.threads:
    setp.lt${".and" if plan.epilogue.checks_bounds else ""}.u32 %in_bounds, %vec_index, ${plan.epilogue.gather_loads}${", %in_bounds" if plan.epilogue.checks_bounds else ""};
  % endif
${c_addr.element("%c_addr", "%c_row", "%c_col", "%out", "%ld_out", plan.epilogue.out_bytes)}\
  % for g in range(plan.config.kl):
<% into = plan.c.addend if g else plan.epilogue.vector %>\
    ${plan.epilogue.gather_guard}ld.shared.${plan.c.sums_type} ${into.vector(0, n=plan.c.vec)}, [%tmp0+${g * plan.config.ml * plan.epilogue.row_pitch * plan.arithmetic.bytes}];
    % if g:
      % for q in range(plan.c.vec):
        % for line in plan.reducer.join(plan.epilogue.vector[q], plan.c.addend[q], plan.epilogue.gather_guard):
    ${line}
        % endfor
      % endfor
    % endif
  % endfor
${store_op.store_vector([plan.epilogue.vector[q] for q in range(plan.c.vec)], "%c_addr", 0, plan.epilogue.gather_guard, add_c, ("%c_row", 0), ("%c_col", 0))}\
    add.u32 %vec_index, %vec_index, ${plan.threads};
% endfor
% if plan.epilogue.gather_rounds > plan.epilogue.UNROLLED:
    setp.lt.u32 %p, %vec_index, ${plan.epilogue.gather_loads};
    @%p bra STORE_ROWS${int(add_c)};
% endif
    }
</%def>

## Stores the sums of this thread, and waits for those of the block.
<%def name="sums_to_shared(math)">
% for i in range(plan.mainloop.ms):
${math.scaled_row(i)}\
  % for j in range(0, plan.mainloop.ns, plan.epilogue.sts_vec):
    ${plan.epilogue.sts_guard}st.shared.${ptx.kind(plan.epilogue.sts_vec, plan.arithmetic.type)} [%smem_c+${(plan.a.offset(i) * plan.epilogue.row_pitch + plan.b.offset(j)) * plan.arithmetic.bytes}], ${plan.epilogue.vector.vector(j, n=plan.epilogue.sts_vec)};
  % endfor
% endfor
    // ---- wait: the whole tile is in shared memory
    bar.sync 0;
</%def>
