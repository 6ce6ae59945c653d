## Products of a sparse matrix in CSR: a group of lanes adds the products of one row, in order, for a slab of columns.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="convert" file="/ptx/convert.mako"/>\
<% rows, op = plan.mainloop, plan.arithmetic %>\
    .reg .b64 %indptr, %indices, %values, %B, %C, %ptr_index, %ptr_value, %ptr_row, %ptr_c, %pitch64;
    .reg .b32 %M, %N, %ldc, %pitch, %thread, %lane, %row, %begin, %end, %left, %last, %tmp0;
    .reg .b32 %col<${rows.vectors}>;
    .reg .pred %p, %reads_c, %stores<${rows.vectors}>;
    .reg .${op.type} %alpha, %beta;

% for name in plan.problem.arrays:
    ld.param.u64 %${name}, [${name}];  cvta.to.global.u64 %${name}, %${name};
% endfor
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];  ld.param.u32 %pitch, [ldb];  ld.param.u32 %ldc, [ldc];
    ld.param.${op.type} %alpha, [alpha];  ld.param.${op.type} %beta, [beta];
${ptx.banner("thread to row and columns: columns after the last are computed as the last, and not stored")}\
    mov.u32 %thread, %tid.x;
    mov.u32 %row, %ctaid.x;
    shr.u32 %tmp0, %thread, ${rows.lanes.bit_length() - 1};
    mad.lo.u32 %row, %row, ${rows.groups}, %tmp0;
    setp.ge.u32 %p, %row, %M;
    @%p bra DONE;
    and.b32 %lane, %thread, ${rows.lanes - 1};
    mov.u32 %tmp0, %ctaid.y;
    mul.lo.u32 %tmp0, %tmp0, ${rows.slab};
    mad.lo.u32 %tmp0, %lane, ${rows.vec}, %tmp0;
    sub.u32 %last, %N, ${rows.vec};
    mul.lo.u32 %pitch, %pitch, ${rows.size};
% for v in range(rows.vectors):
    add.u32 %col${v}, %tmp0, ${v * rows.lanes * rows.vec};
    setp.lt.u32 %stores${v}, %col${v}, %N;
    min.u32 %col${v}, %col${v}, %last;
    mad.wide.u32 ${rows.from_b[v]}, %col${v}, ${rows.size}, %B;
% endfor
${ptx.banner("the nonzeros of the row")}\
    mad.wide.u32 %ptr_index, %row, 4, %indptr;
    ld.global.nc.u32 %begin, [%ptr_index];
    ld.global.nc.u32 %end, [%ptr_index+4];
    sub.u32 %left, %end, %begin;
    setp.eq.${op.type} %p, %alpha, ${op.zero};
    @%p mov.b32 %left, 0; // A and B are not read
    mad.wide.u32 %ptr_index, %begin, 4, %indices;
    mad.wide.u32 %ptr_value, %begin, ${rows.size}, %values;
% for name in rows.sums.all:
    mov.${op.type} ${name}, ${op.zero};
% endfor
${ptx.banner(f"loop over nonzeros, {rows.depths[0]} at once")}\
    setp.lt.u32 %p, %left, ${rows.depths[0]};
    @%p bra REST;
    .pragma "nounroll";
ROW_LOOP:
${multiply(rows.depths[0])}\
    sub.u32 %left, %left, ${rows.depths[0]};
    setp.ge.u32 %p, %left, ${rows.depths[0]};
    @%p bra ROW_LOOP;
REST:
% for n in rows.depths[1:]:
    and.b32 %tmp0, %left, ${n};
    setp.eq.u32 %p, %tmp0, 0;
    @%p bra AFTER_${n};
${multiply(n)}\
AFTER_${n}:
% endfor
${ptx.banner("epilogue: C = alpha * sums + beta * C")}\
    setp.neu.${op.type} %reads_c, %beta, ${op.zero};
    mul.wide.u32 %pitch64, %row, %ldc;
    mad.lo.u64 %ptr_row, %pitch64, ${rows.size}, %C;
% for name in rows.sums.all:
    ${op.mul} ${name}, ${name}, %alpha;
% endfor
% for v in range(rows.vectors):
<% c, sums = rows.loaded, [rows.sums[v, i] for i in range(rows.vec)] %>\
    @!%stores${v} bra DONE;
    mad.wide.u32 %ptr_c, %col${v}, ${rows.size}, %ptr_row;
    @!%reads_c bra STORE_${v};
    ld.global.${rows.access} ${c.vector(0, 0, 0, n=rows.packed)}, [%ptr_c];
${widen(0, 0)}\
% for i, name in enumerate(sums):
    ${op.fma} ${name}, ${element(0, 0, i)}, %beta, ${name};
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

## The next n nonzeros: their indices and values, then the rows of B, then the products in the order of the nonzeros.
<%def name="multiply(n)">
<% rows, op = plan.mainloop, plan.arithmetic %>\
% for q in range(n):
    ld.global.nc.u32 ${rows.index[q]}, [%ptr_index+${4 * q}];
% endfor
% for q in range(n):
    ld.global.nc.${rows.scalar} ${rows.half_value[q] if rows.converts else rows.value[q]}, [%ptr_value+${rows.size * q}];
% endfor
% for q in range(n):
% for v in range(rows.vectors):
    mad.wide.u32 %ptr_row, ${rows.index[q]}, %pitch, ${rows.from_b[v]};
    ld.global.nc.${rows.access} ${rows.loaded.vector(q, v, 0, n=rows.packed)}, [%ptr_row];
% endfor
% endfor
    add.u64 %ptr_index, %ptr_index, ${4 * n};
    add.u64 %ptr_value, %ptr_value, ${rows.size * n};
% for q in range(n):
% if rows.converts:
${convert.widen(rows.kind, rows.value[q], rows.half_value[q])}\
% endif
% for v in range(rows.vectors):
${widen(q, v)}\
% for i in range(rows.vec):
    ${op.fma} ${rows.sums[v, i]}, ${rows.value[q]}, ${element(q, v, i)}, ${rows.sums[v, i]};
% endfor
% endfor
% endfor
</%def>

## A loaded vector in the type of sums.
<%def name="widen(q, v)">
<% rows = plan.mainloop %>\
% if rows.converts and rows.vec == 1:
${convert.widen(rows.kind, rows.wide[0], rows.loaded[q, v, 0])}\
% elif rows.converts:
% for i in range(0, rows.vec, 2):
${convert.widen_pair(rows.kind, rows.wide[i], rows.wide[i + 1], rows.loaded[q, v, i // 2], rows.half.all)}\
% endfor
% endif
</%def>

<%def name="element(q, v, i)"><% return plan.mainloop.wide[i] if plan.mainloop.converts else plan.mainloop.loaded[q, v, i] %></%def>
