## Each thread applies the epilogue to its strip of results, and stores them in shared memory.
<%namespace name="c_elements" file="/epilogue/c_elements.mako"/>
<%namespace name="fused_ops" file="/${context['plan'].fused_ops.template}"/>
<%def name="store_tile(math, store_op, add_c)">
    {
    .reg .b64 %c_addr;
    .reg .b32 %result_index, %result_smem, %result_row;
    .reg .pred %in_strip;
    ${plan.epilogue.vector.declaration}
    // %result_index: in the block's run of results
    mad.lo.u32 %result_index, %map, %result_rows, %strip_start;
    mad.lo.u32 %result_index, %result_index, %result_columns, %column;
    mad.lo.u32 %result_smem, %result_index, ${plan.c.bytes}, %results_smem;
% for i in range(plan.config.strip_results):
    add.u32 %result_row, %strip_start, ${i};
    setp.lt.and.u32 %in_strip, %result_row, %result_rows, %in_bounds;
    mul.rn.${plan.arithmetic.type} ${plan.epilogue.vector[0]}, ${plan.mainloop.acc[i]}, %alpha;
    mad.wide.u32 %c_addr, %result_index, ${plan.c.bytes}, %results;
${result(plan.epilogue.vector[0], "@%in_strip ", add_c, *plan.epilogue.filter_coordinates)}\
    add.u32 %result_index, %result_index, %result_columns;
    mad.lo.u32 %result_smem, %result_columns, ${plan.c.bytes}, %result_smem;
% endfor
    }
</%def>

<%def name="result(r, guard, add_c, row, column)">
    {
    ${plan.c.declaration}
${fused_ops.scale_product([r], "%c_addr", 0, guard, row, column)}\
% if add_c:
${c_elements.load("%c_addr", 0, guard)}\
    ${guard}${plan.arithmetic.fma} ${r}, %beta, ${plan.c.values[0]}, ${r};
% endif
${fused_ops.finish([r], "%c_addr", 0, guard, row, column)}\
% if plan.c.converts:
    cvt.rn.${plan.problem.out}.f32 ${plan.c.loaded[0]}, ${r};
    ${guard}st.shared.${plan.c.type} [%result_smem], ${plan.c.loaded[0]};
% else:
    ${guard}st.shared.${plan.c.type} [%result_smem], ${r};
% endif
    }
</%def>
