## Each thread writes its own tile, from registers.
<%def name="leave(math, put, add)">
    {
    .reg .b64 %at;
    .reg .b32 %r, %q;
    .reg .pred %in_m, %in, %in_n<${len(plan.columns)}>;
    ${plan.row.declaration}
    add.u32 %r, %m0, %row;
    add.u32 %q, %n0, %col;
    mul.wide.u32 %t64, %r, %ldo;
    cvt.u64.u32 %u64, %q;
    add.u64 %t64, %t64, %u64;
    mad.lo.u64 %at, %t64, ${plan.out_bytes}, %out;
% if plan.checked:
% for n, column in enumerate(plan.columns):
    add.u32 %t0, %q, ${column};
    setp.lt.u32 %in_n${n}, %t0, %N;
% endfor
% endif
% for i in range(plan.ms):
    // row + ${plan.a.offset(i)}
% if i:
    mad.wide.u32 %at, %ldo, ${(plan.a.offset(i) - plan.a.offset(i - 1)) * plan.out_bytes}, %at;
% endif
% if plan.checked:
    add.u32 %t0, %r, ${plan.a.offset(i)};
    setp.lt.u32 %in_m, %t0, %M;
% endif
${math.row(i)}\
% for n, column in enumerate(plan.columns):
% if plan.checked:
    and.pred %in, %in_m, %in_n${n};
% endif
${put.vector([plan.row[n * plan.vec_c + q] for q in range(plan.vec_c)], "%at", column * plan.out_bytes, "@%in " if plan.checked else "", add, ("%r", plan.a.offset(i)), ("%q", column))}\
% endfor
% endfor
    }
</%def>
