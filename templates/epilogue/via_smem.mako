## Each thread stores its sums to shared memory; then the block stores C by whole rows, and adds the sums of thread groups
## that split K.
<%namespace name="ptx" file="/ptx/vector.mako"/>
<%namespace name="c_addr" file="/${context['plan'].out_addr}"/>
<%def name="store_tile(math, store_op, add_c)">
    {
    .reg .b64 %addr;
    .reg .b32 %c_row, %c_col, %i;
    .reg .pred %in_bounds;
    ${plan.row.declaration}
    ${plan.addend.declaration}
% for i in range(plan.ms):
${math.scaled_row(i)}\
% for j in range(0, plan.ns, plan.sts_vec):
    ${plan.sts_guard}st.shared.${ptx.kind(plan.sts_vec, plan.epilogue_type)} [%smem_c+${(plan.a.offset(i) * plan.c_row_pitch + plan.b.offset(j)) * plan.epilogue_bytes}], ${plan.row.vector(j, n=plan.sts_vec)};
% endfor
% endfor
    // wait: the whole tile is in shared memory
    bar.sync 0;
    mov.u32 %i, %thread;
% if plan.gather_rounds > plan.UNROLLED:
    .pragma "nounroll";
STORE_ROWS${int(add_c)}:
% endif
% for n in range(min(plan.gather_rounds, plan.UNROLLED) if plan.gather_rounds <= plan.UNROLLED else 1):
    // vector %i of the tile: its row and column of C
    shr.u32 %c_row, %i, ${plan.log2_row_vectors};
    and.b32 %c_col, %i, ${plan.row_vectors - 1};
    mul.lo.u32 %c_col, %c_col, ${plan.vec_c};
    mad.lo.u32 %t0, %c_row, ${plan.c_row_pitch}, %c_col;
    mad.lo.u32 %t0, %t0, ${plan.epilogue_bytes}, %smem;
    add.u32 %c_row, %c_row, %m0;
    add.u32 %c_col, %c_col, %n0;
% if plan.checks_bounds:
    setp.lt.u32 %in_bounds, %c_row, %M;
    setp.lt.and.u32 %in_bounds, %c_col, %N, %in_bounds;
% endif
% if plan.gather_loads < plan.threads:
    setp.lt${".and" if plan.checks_bounds else ""}.u32 %in_bounds, %i, ${plan.gather_loads}${", %in_bounds" if plan.checks_bounds else ""};
% endif
${c_addr.element("%addr", "%c_row", "%c_col", "%out", "%ldo", plan.out_bytes)}\
% for g in range(plan.kl):
<% into = plan.addend if g else plan.row %>\
    ${plan.gather_guard}ld.shared.${plan.vector_type} ${into.vector(0, n=plan.vec_c)}, [%t0+${g * plan.config.ml * plan.c_row_pitch * plan.epilogue_bytes}];
% if g:
% for q in range(plan.vec_c):
    ${plan.gather_guard}${plan.add} ${plan.row[q]}, ${plan.row[q]}, ${plan.addend[q]};
% endfor
% endif
% endfor
${store_op.store_vector([plan.row[q] for q in range(plan.vec_c)], "%addr", 0, plan.gather_guard, add_c, ("%c_row", 0), ("%c_col", 0))}\
    add.u32 %i, %i, ${plan.threads};
% endfor
% if plan.gather_rounds > plan.UNROLLED:
    setp.lt.u32 %p, %i, ${plan.gather_loads};
    @%p bra STORE_ROWS${int(add_c)};
% endif
    }
</%def>
