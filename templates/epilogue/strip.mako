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
    mul.rn.${plan.sum} ${plan.row[0]}, ${plan.acc[i]}, %alpha;
${put.vector([plan.row[0]], "%at", 0, "@%inside ", add, ("%channel", 0), ("%channel", 0))}\
    add.u32 %place, %place, %n_row_y;
    add.u32 %number, %number, 1;
% endfor
    }
</%def>
