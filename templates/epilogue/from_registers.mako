## Each thread writes its own tile, from registers.
<%namespace name="place" file="/${context['plan'].out_addr}"/>
<%def name="store_tile(math, store_op, add)">
    {
    .reg .b64 %at;
    .reg .b32 %r, %q;
    .reg .pred %in_m, %in, %in_n<${len(plan.columns)}>;
    ${plan.row.declaration}
    add.u32 %r, %m0, %row;
    add.u32 %q, %n0, %col;
${place.columns("%at", "%r", "%q", "%out", "%ldo", plan.out_bytes)}\
% if plan.checks_bounds:
% for n, column in enumerate(plan.columns):
    add.u32 %t0, %q, ${column};
    setp.lt.u32 %in_n${n}, %t0, %N;
% endfor
% endif
% for i in range(plan.ms):
    // row + ${plan.a.offset(i)}
${place.next("%at", "%r", plan.a.offset(i), plan.a.offset(i) - plan.a.offset(i - 1) if i else 0, "%ldo", plan.out_bytes)}\
% if plan.checks_bounds:
    add.u32 %t0, %r, ${plan.a.offset(i)};
    setp.lt.u32 %in_m, %t0, %M;
% endif
${math.row(i)}\
% for n, column in enumerate(plan.columns):
% if plan.checks_bounds:
    and.pred %in, %in_m, %in_n${n};
% endif
${place.of("%at", n, "%out", plan.out_bytes)}\
${store_op.store_vector([plan.row[n * plan.vec_c + q] for q in range(plan.vec_c)], "%at", place.offset(column, plan.out_bytes), "@%in " if plan.checks_bounds else "", add, ("%r", plan.a.offset(i)), ("%q", column))}\
% endfor
% endfor
    }
</%def>
