## Each K slice adds its sums to C by red.global, in the order in which the slices finish. C holds beta C before.
<%namespace name="c_elements" file="/epilogue/c_elements.mako"/>
<%namespace name="batch" file="/${context['plan'].batch.items}"/>
<%namespace name="c_addr" file="/${context['plan'].c.addressing.template}"/>
<%def name="prepare()">
% if plan.reduction.uses_flag:

    // ---- split K: slice 0 stores beta C to the tile while its first stages load, then sets the tile's flag
    .reg .b64 %flag_addr;
    mov.u32 %tmp0, %ctaid.x;
    mov.u32 %tmp1, %ctaid.y;
    mov.u32 %tmp2, %nctaid.x;
    mad.lo.u32 %tmp0, %tmp1, %tmp2, %tmp0;
${batch.tile_index("%tmp0")}\
    mad.wide.u32 %flag_addr, %tmp0, 4, %workspace;
    setp.ne.u32 %p, %slice, 0;
    @%p bra.uni C_SCALED;
    {
    .reg .b64 %c_addr;
    .reg .b32 %vec_index, %c_row, %c_col;
    .reg .pred %in_bounds, %has_beta;
    ${plan.epilogue.vector.declaration}
    ${plan.c.declaration}
  % for line in plan.arithmetic.set_has_beta:
    ${line}
  % endfor
    mov.u32 %vec_index, %thread;
    .pragma "nounroll";
SCALE_C:
  % for line in plan.epilogue.vector_place:
    ${line}
  % endfor
    mad.lo.u32 %c_col, %c_col, ${plan.c.vec}, %n0;
    add.u32 %c_row, %c_row, %m0;
    setp.lt.u32 %in_bounds, %c_row, %M;
    setp.lt.and.u32 %in_bounds, %c_col, %N, %in_bounds;
  % if plan.epilogue.partial_gather:
    setp.lt.and.u32 %in_bounds, %vec_index, ${plan.epilogue.gather_loads}, %in_bounds;
  % endif
${c_addr.element("%c_addr", "%c_row", "%c_col", plan.batch.c_base, "%ldc", plan.c.bytes)}\
  % for r in plan.epilogue.stored:
    mov.${plan.arithmetic.type} ${r}, ${plan.arithmetic.zero};
  % endfor
    and.pred %p, %in_bounds, %has_beta;
${c_elements.load("%c_addr", 0, "@%p ")}\
  % for line in plan.epilogue.beta_c:
    ${line}
  % endfor
${c_elements.store(plan.epilogue.stored, "%c_addr", 0, "@%in_bounds ")}\
    add.u32 %vec_index, %vec_index, ${plan.threads};
    setp.lt.u32 %p, %vec_index, ${plan.epilogue.gather_end};
    @%p bra SCALE_C;
    }
    // ---- wait: all threads have scaled C
    fence.acq_rel.gpu;
    bar.sync 0;
    setp.eq.u32 %p, %thread, 0;
    @%p red.release.gpu.global.add.u32 [%flag_addr], 1;
C_SCALED:
% endif
</%def>

<%def name="store_tiles(store_c, math, store_op)">
    .reg .b64 %out;
    .reg .b32 %ld_out;
    mov.b64 %out, ${plan.batch.c_base};
    mov.b32 %ld_out, %ldc;
% if plan.reduction.uses_flag:
    // ---- wait: slice 0 has scaled the tile; the last slice clears the flag for the next launch
    setp.ne.u32 %p, %thread, 0;
    @%p bra FLAG_SET;
WAIT_FLAG:
    ld.acquire.gpu.global.u32 %tmp0, [%flag_addr];
    setp.eq.u32 %p, %tmp0, 0;
    @%p bra WAIT_FLAG;
    atom.acq_rel.gpu.global.add.u32 %tmp0, [%flag_addr], 1;
    mov.u32 %tmp1, %nctaid.z;
  % if plan.batch.active:
    div.u32 %tmp1, %tmp1, %items;
  % endif
    setp.eq.u32 %p, %tmp0, %tmp1;
    mov.u32 %tmp1, 0;
    @%p st.relaxed.gpu.global.u32 [%flag_addr], %tmp1;
FLAG_SET:
    bar.sync 0;
% endif
${store_c.store_tile(math, store_op, False)}\
</%def>

<%def name="store_vector(registers, at, offset, guard, add_c, row, column)">
% if plan.c.vector_red and len(registers) > 1:
    ${guard}red.global.v${len(registers)}.f32.add [${at}+${offset}], ${operand_list(registers)};
% else:
  % for r, further in zip(registers, plan.c.sum_offsets):
    ${guard}red.global.add.${plan.arithmetic.type} [${at}+${offset + further}], ${r};
  % endfor
% endif
</%def>
