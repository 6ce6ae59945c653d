## Each thread writes its strip, result by result.
<%def name="leave(math, put, add)">
    {
    .reg .b64 %at;
    .reg .b32 %place, %number;
    .reg .pred %inside;
    ${plan.row.declaration}
    mov.b32 %place, %y;
    mov.b32 %number, %first;
% for i in range(plan.config.ns):
    setp.lt.and.u32 %inside, %number, %n_results, %in;
    mad.wide.s32 %at, %place, ${plan.out_bytes}, %out;
% for v in range(plan.wide):
    mul.rn.${plan.sum} ${plan.row[v]}, ${plan.acc[i, v]}, %alpha;
% endfor
${put.vector([plan.row[v] for v in range(plan.wide)], "%at", 0, "@%inside ", add, *plan.filter_at)}\
    add.u32 %place, %place, %n_row_y;
    add.u32 %number, %number, 1;
% endfor
    }
</%def>
