## Slices of K leave their sums in a workspace [slice][item][M][N]; a second pass adds them in a fixed order.
<%def name="prepare()"></%def>

<%def name="leaving(leave, math, put)">
    .reg .b64 %out;
    .reg .b32 %ldo;
    mul.wide.u32 %t64, %M, %N;
% if plan.batched:
    mad.lo.u32 %t0, %z, %items, %item;
    cvt.u64.u32 %u64, %t0;
% else:
    cvt.u64.u32 %u64, %z;
% endif
    mul.lo.u64 %t64, %t64, %u64;
    mad.lo.u64 %out, %t64, ${plan.sum_bytes}, %W;
    mov.b32 %ldo, %N;
${leave.leave(math, put, False)}\
</%def>

<%def name="vector(registers, at, offset, guard, add, row, column)">
    ${guard}st.global.${plan.vector} [${at}+${offset}], ${plan.braced(registers)};
</%def>
