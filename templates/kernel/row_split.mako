## Products of a sparse matrix in CSR: a group of lanes adds the products of one row, in order, for a slab of columns.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="math" file="/${context['plan'].mainloop.template}"/>\
<%namespace name="products" file="/math/row_products.mako"/>\
<%namespace name="pointers" file="/${context['plan'].mainloop.row_pointers}"/>\
<%namespace name="b_access" file="/${context['plan'].mainloop.b_access}"/>\
<%namespace name="c_access" file="/${context['plan'].mainloop.c_access}"/>\
<%namespace name="row_parts" file="/epilogue/row_parts.mako"/>\
<% rows, op = plan.mainloop, plan.arithmetic %>\
    .reg .b64 ${plan.address_registers}, %ptr_index, %ptr_value, %ptr_row, %ptr_c, %pitch64;
    .reg .b32 %M, %N, %ldc, %pitch, %thread, %lane, %group, %row, %begin, %end, %left, %last, %tmp0;
    .reg .b32 %col<${rows.vectors}>;
    .reg .pred %p, %exists, %reads_c, %stores<${rows.vectors}>;
    .reg .${op.type} %alpha, %beta;

% for name, register in plan.addresses.items():
    ld.param.u64 %${register}, [${name}];  cvta.to.global.u64 %${register}, %${register};
% endfor
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];  ld.param.u32 %pitch, [ldb];  ld.param.u32 %ldc, [ldc];
    ld.param.${op.type} %alpha, [alpha];  ld.param.${op.type} %beta, [beta];
${ptx.banner("thread to row and columns: columns after the last are computed as the last, and not stored")}\
    mov.u32 %thread, %tid.x;
    mov.u32 %row, %ctaid.x;
    shr.u32 %tmp0, %thread, ${rows.log2_row_threads};
    mad.lo.u32 %row, %row, ${rows.groups}, %tmp0;
    setp.lt.u32 %exists, %row, %M;
    and.b32 %lane, %thread, ${rows.lane_mask};
% if rows.nonzero_groups > 1:
    shr.u32 %group, %thread, ${rows.log2_lanes};
    and.b32 %group, %group, ${rows.group_mask};
% endif
    mov.u32 %tmp0, %ctaid.y;
    mul.lo.u32 %tmp0, %tmp0, ${rows.slab};
    mad.lo.u32 %tmp0, %lane, ${rows.vec}, %tmp0;
    sub.u32 %last, %N, ${rows.vec};
${b_access.row_pitch()}\
% for v, column in enumerate(rows.vector_columns):
    add.u32 %col${v}, %tmp0, ${column};
    setp.lt.u32 %stores${v}, %col${v}, %N;
    min.u32 %col${v}, %col${v}, %last;
${b_access.first_row(rows.from_b[v], v)}\
% endfor
${b_access.step()}\
${ptx.banner("the nonzeros of the row")}\
    mov.b32 %begin, 0;
    mov.b32 %end, 0;
% if plan.work_list:
    .reg .b64 %partials;
    .reg .b32 %part_id;
    ld.param.u64 %partials, [partials];
    add.u64 %partials, %partials, %workspace;
    mad.wide.u32 %ptr_index, %row, 16, %items;
    mov.b32 %part_id, ${rows.whole};
    @%exists ld.global.nc.v4.u32 {%row, %begin, %end, %part_id}, [%ptr_index];
% else:
${pointers.load()}\
% endif
    sub.u32 %left, %end, %begin;
    setp.eq.${op.type} %p, %alpha, ${op.zero};
    @%p mov.b32 %left, 0; // A and B are not read
% for name in rows.sums.all:
    mov.${op.type} ${name}, ${op.zero};
% endfor
${math.multiply_row()}\
    @!%exists bra DONE;
% if rows.nonzero_groups > 1:
    setp.eq.u32 %p, %group, 0; // the others have the same sums
  % for v in range(rows.vectors):
    and.pred %stores${v}, %stores${v}, %p;
  % endfor
% endif
% if plan.work_list:
${row_parts.add_parts()}\
% endif
${ptx.banner("epilogue: C = alpha * sums + beta * C")}\
    setp.neu.${op.type} %reads_c, %beta, ${op.zero};
${c_access.row()}\
% for name in rows.sums.all:
    ${op.mul} ${name}, ${name}, %alpha;
% endfor
% for v, (sums, pairs, stored) in enumerate(rows.c_vectors):
    @!%stores${v} bra DONE;
${c_access.vector(v)}\
    @!%reads_c bra STORE_${v};
    ld.global.${rows.access} ${rows.loaded[0, 0, :]}, [%ptr_c];
${products.widen(0, 0)}\
  % for sum, element in zip(sums, rows.elements[0, 0]):
    ${op.fma} ${sum}, ${element}, %beta, ${sum};
  % endfor
STORE_${v}:
  % for word, low, high in pairs:
    cvt.rn.${rows.ptx_type}.${op.type} ${rows.half[0]}, ${low};
    cvt.rn.${rows.ptx_type}.${op.type} ${rows.half[1]}, ${high};
    mov.b32 ${word}, ${rows.half[:]};
  % endfor
  % if rows.converts and not pairs:
    cvt.rn.${rows.ptx_type}.${op.type} ${rows.loaded[0, 0, 0]}, ${sums[0]};
  % endif
    st.global.${rows.access} [%ptr_c], ${stored};
% endfor
DONE:
<%def name="after_entry()"></%def>\
