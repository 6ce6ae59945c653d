## Each thread stores its strip of results, one result after the other.
<%def name="store_tile(math, store_op, add_c)">
    {
    .reg .b64 %c_addr;
    .reg .b32 %c_offset, %result_index;
    .reg .pred %in_strip;
    ${plan.epilogue.vector.declaration}
    mov.b32 %c_offset, %result_offset;
    mov.b32 %result_index, %strip_start;
% for i in range(plan.config.strip_results):
    setp.lt.and.u32 %in_strip, %result_index, %n_results, %in_bounds;
    mad.wide.s32 %c_addr, %c_offset, ${plan.epilogue.out_bytes}, %out;
  % for v in range(plan.mainloop.vec):
    mul.rn.${plan.arithmetic.type} ${plan.epilogue.vector[v]}, ${plan.mainloop.acc[i, v]}, %alpha;
  % endfor
${store_op.store_vector(plan.epilogue.vector.all, "%c_addr", 0, "@%in_strip ", add_c, *plan.epilogue.filter_coordinates)}\
    add.u32 %c_offset, %c_offset, %row_result_stride;
    add.u32 %result_index, %result_index, 1;
% endfor
    }
</%def>
