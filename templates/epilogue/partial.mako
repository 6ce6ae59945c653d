## Each K slice stores its sums in the workspace [slice][batch][M][N]; an auxiliary kernel adds them in slice order.
<%def name="prepare()"></%def>

<%def name="store_tiles(store_c, math, store_op)">
    .reg .b64 %out;
    .reg .b32 %ld_out;
    // %out: this slice's sums${plan.batch.text}
    mul.wide.u32 %tmp64, %M, %N;
% if plan.batch.active:
    mad.lo.u32 %tmp0, %slice, %items, %item;
    cvt.u64.u32 %tmp64b, %tmp0;
% else:
    cvt.u64.u32 %tmp64b, %slice;
% endif
    mul.lo.u64 %tmp64, %tmp64, %tmp64b;
    mad.lo.u64 %out, %tmp64, ${plan.arithmetic.bytes}, %workspace;
    mov.b32 %ld_out, %N;
${store_c.store_tile(math, store_op, False)}\
</%def>

<%def name="store_vector(registers, at, offset, guard, add_c, row, column)">
    ${guard}st.global.${plan.c.sums_type} [${at}+${offset}], ${operand_list(registers)};
</%def>
