## Each thread writes its strip, result by result.
<%def name="store_tile(math, store_op, add)">
    {
    .reg .b64 %at;
    .reg .b32 %place, %result_index;
    .reg .pred %inside;
    ${plan.row.declaration}
    mov.b32 %place, %y;
    mov.b32 %result_index, %first;
% for i in range(plan.config.ns):
    setp.lt.and.u32 %inside, %result_index, %n_results, %in;
    mad.wide.s32 %at, %place, ${plan.out_bytes}, %out;
% for v in range(plan.wide):
    mul.rn.${plan.epilogue_type} ${plan.row[v]}, ${plan.acc[i, v]}, %alpha;
% endfor
${store_op.store_vector([plan.row[v] for v in range(plan.wide)], "%at", 0, "@%inside ", add, *plan.filter_at)}\
    add.u32 %place, %place, %n_row_y;
    add.u32 %result_index, %result_index, 1;
% endfor
    }
</%def>
