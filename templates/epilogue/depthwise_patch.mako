## Each thread stores its patch of results, one strip after the other.
<%def name="store_tile(math, store_op, add_c)">
    {
    .reg .b64 %c_addr;
    .reg .b32 %c_offset, %result_index, %column_index;
    .reg .pred %in_column, %in_strip;
    ${plan.epilogue.vector.declaration}
% for column, results in enumerate(plan.mainloop.column_sums):
    add.u32 %column_index, %column, ${column};
    setp.lt.and.u32 %in_column, %column_index, %n_columns, %in_bounds;
    mad.lo.u32 %c_offset, %column_result_stride, ${column}, %result_offset;
  % for i, sums in enumerate(results):
    add.u32 %result_index, %strip_start, ${i};
    setp.lt.and.u32 %in_strip, %result_index, %n_results, %in_column;
    mad.wide.s32 %c_addr, %c_offset, ${plan.epilogue.out_bytes}, %out;
    % for to, sum in zip(plan.epilogue.vector.all, sums):
    mul.rn.${plan.arithmetic.type} ${to}, ${sum}, %alpha;
    % endfor
${store_op.store_vector(plan.epilogue.vector.all, "%c_addr", 0, "@%in_strip ", add_c, *plan.epilogue.filter_coordinates)}\
    add.u32 %c_offset, %c_offset, %row_result_stride;
  % endfor
% endfor
    }
</%def>
