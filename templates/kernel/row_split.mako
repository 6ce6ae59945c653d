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
    .reg .b64 ${", ".join(f"%{register}" for register in plan.addresses.values())}, %ptr_index, %ptr_value, %ptr_row, %ptr_c, %pitch64;
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
    shr.u32 %tmp0, %thread, ${rows.row_threads.bit_length() - 1};
    mad.lo.u32 %row, %row, ${rows.groups}, %tmp0;
    setp.lt.u32 %exists, %row, %M;
    and.b32 %lane, %thread, ${rows.lanes - 1};
% if rows.nonzero_groups > 1:
    shr.u32 %group, %thread, ${rows.lanes.bit_length() - 1};
    and.b32 %group, %group, ${rows.nonzero_groups - 1};
% endif
    mov.u32 %tmp0, %ctaid.y;
    mul.lo.u32 %tmp0, %tmp0, ${rows.slab};
    mad.lo.u32 %tmp0, %lane, ${rows.vec}, %tmp0;
    sub.u32 %last, %N, ${rows.vec};
${b_access.row_pitch()}\
% for v in range(rows.vectors):
    add.u32 %col${v}, %tmp0, ${v * rows.lanes * rows.vec};
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
% for v in range(rows.vectors):
<% c, sums = rows.loaded, [rows.sums[v, i] for i in range(rows.vec)] %>\
    @!%stores${v} bra DONE;
${c_access.vector(v)}\
    @!%reads_c bra STORE_${v};
    ld.global.${rows.access} ${c.vector(0, 0, 0, n=rows.packed)}, [%ptr_c];
${products.widen(0, 0)}\
  % for i, name in enumerate(sums):
    ${op.fma} ${name}, ${products.element(0, 0, i)}, %beta, ${name};
  % endfor
STORE_${v}:
  % if rows.converts and rows.vec == 1:
    cvt.rn.${rows.kind}.${op.type} ${c[0, 0, 0]}, ${sums[0]};
  % elif rows.converts:
    % for i in range(0, rows.vec, 2):
    cvt.rn.${rows.kind}.${op.type} ${rows.half[0]}, ${sums[i]};
    cvt.rn.${rows.kind}.${op.type} ${rows.half[1]}, ${sums[i + 1]};
    mov.b32 ${c[0, 0, i // 2]}, {${rows.half[0]}, ${rows.half[1]}};
    % endfor
  % endif
    st.global.${rows.access} [%ptr_c], ${c.vector(0, 0, 0, n=rows.packed) if rows.converts else operand_list(sums)};
% endfor
DONE:
<%def name="after_entry()"></%def>\
