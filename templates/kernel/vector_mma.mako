## Products of row windows of a sparse matrix on tensor cores: a warp multiplies the blocks of a window, in order, for a
## slab of columns.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="convert" file="/ptx/convert.mako"/>\
<% blocks, op = plan.mainloop, plan.arithmetic %>\
    .reg .b64 %window_starts, %window_columns, %window_values, %B, %C, %ptr_column, %ptr_value, %ptr_row, %ptr_c, %pitch64;
    .reg .b32 %M, %N, %ldc, %pitch, %thread, %lane, %group, %member, %window, %begin, %end, %blocks_left, %row, %last, %tmp0;
    .reg .b32 %col<${blocks.vectors}>;
    .reg .pred %p, %present, %reads_c, %stores<${blocks.vectors}>;
    .reg .${op.type} %alpha, %beta;

% for name in ("window_starts", "window_columns", "window_values", "B", "C"):
    ld.param.u64 %${name}, [${name}];  cvta.to.global.u64 %${name}, %${name};
% endfor
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];  ld.param.u32 %pitch, [ldb];  ld.param.u32 %ldc, [ldc];
    ld.param.${op.type} %alpha, [alpha];  ld.param.${op.type} %beta, [beta];
${ptx.banner("warp to row window, lanes to columns: those after the last are computed as the last, and not stored")}\
    mov.u32 %thread, %tid.x;
    mov.u32 %window, %ctaid.x;
    shr.u32 %tmp0, %thread, 5;
    mad.lo.u32 %window, %window, ${blocks.windows}, %tmp0;
    shl.b32 %row, %window, ${blocks.window_rows.bit_length() - 1};
    setp.ge.u32 %p, %row, %M;
    @%p bra DONE;
    and.b32 %lane, %thread, 31;
    shr.u32 %group, %lane, 2;
    and.b32 %member, %lane, 3;
    mov.u32 %tmp0, %ctaid.y;
    mul.lo.u32 %tmp0, %tmp0, ${blocks.slab};
    mad.lo.u32 %tmp0, %group, ${blocks.vec}, %tmp0;
    sub.u32 %last, %N, ${blocks.vec};
    mul.lo.u32 %pitch, %pitch, ${blocks.size};
% for v in range(blocks.vectors):
    add.u32 %col${v}, %tmp0, ${v * blocks.groups * blocks.vec};
    setp.lt.u32 %stores${v}, %col${v}, %N;
    min.u32 %col${v}, %col${v}, %last;
    mad.wide.u32 ${blocks.from_b[v]}, %col${v}, ${blocks.size}, %B;
% endfor
${ptx.banner("the blocks of the window")}\
    mad.wide.u32 %ptr_column, %window, 4, %window_starts;
    ld.global.nc.u32 %begin, [%ptr_column];
    ld.global.nc.u32 %end, [%ptr_column+4];
    sub.u32 %blocks_left, %end, %begin;
    setp.eq.${op.type} %p, %alpha, ${op.zero};
    @%p mov.b32 %blocks_left, 0; // A and B are not read
    mad.wide.u32 %ptr_column, %begin, ${blocks.column_bytes}, %window_columns;
    mad.wide.u32 %ptr_column, %member, ${4 * blocks.rows}, %ptr_column;
    mad.wide.u32 %ptr_value, %begin, ${blocks.block_bytes}, %window_values;
    mad.wide.u32 %ptr_value, %lane, 8, %ptr_value;
% for name in blocks.sums.all:
    mov.${op.type} ${name}, ${op.zero};
% endfor
% for name in blocks.loaded.all: # absent vectors, which have no values, are not loaded
    mov.${blocks.loaded.kind} ${name}, 0;
% endfor
${ptx.banner(f"loop over blocks, {blocks.depths[0]} at once")}\
    setp.lt.u32 %p, %blocks_left, ${blocks.depths[0]};
    @%p bra REST;
    .pragma "nounroll";
BLOCK_LOOP:
${multiply(blocks.depths[0])}\
    sub.u32 %blocks_left, %blocks_left, ${blocks.depths[0]};
    setp.ge.u32 %p, %blocks_left, ${blocks.depths[0]};
    @%p bra BLOCK_LOOP;
REST:
% for n in blocks.depths[1:]:
    and.b32 %tmp0, %blocks_left, ${n};
    setp.eq.u32 %p, %tmp0, 0;
    @%p bra AFTER_${n};
${multiply(n)}\
AFTER_${n}:
% endfor
${ptx.banner("epilogue: C = alpha * sums + beta * C, of two rows")}\
    setp.neu.${op.type} %reads_c, %beta, ${op.zero};
    mad.lo.u32 %row, %member, 2, %row;
% for name in blocks.sums.all:
    ${op.mul} ${name}, ${name}, %alpha;
% endfor
% for r in range(2):
% if r:
    add.u32 %row, %row, 1;
% endif
    setp.ge.u32 %p, %row, %M;
    @%p bra DONE;
    mul.wide.u32 %pitch64, %row, %ldc;
    mad.lo.u64 %ptr_row, %pitch64, ${blocks.size}, %C;
% for v in range(blocks.vectors):
    @!%stores${v} bra ROW_END_${r};
    mad.wide.u32 %ptr_c, %col${v}, ${blocks.size}, %ptr_row;
${store(r, v)}\
% endfor
ROW_END_${r}:
% endfor
DONE:
<%def name="after_entry()"></%def>\

## The next n blocks: their columns and values, then the rows of B, then the products in the order of the blocks.
<%def name="multiply(n)">
<% blocks = plan.mainloop %>\
% for q in range(n):
    ld.global.nc.v${blocks.rows}.u32 ${blocks.column.vector(q, 0, n=blocks.rows)}, [%ptr_column+${q * blocks.column_bytes}];
% endfor
% for q in range(n):
    ld.global.nc.v2.b32 ${blocks.value.vector(q, 0, n=2)}, [%ptr_value+${q * blocks.block_bytes}];
% endfor
% for q in range(n):
% for i in range(blocks.rows):
    setp.ne.u32 %present, ${blocks.column[q, i]}, ${blocks.absent};
% for v in range(blocks.vectors):
    mad.wide.u32 %ptr_row, ${blocks.column[q, i]}, %pitch, ${blocks.from_b[v]};
    @%present ld.global.nc.${blocks.access} ${blocks.loaded.vector(q, i, v, 0, n=blocks.packed)}, [%ptr_row];
% endfor
% endfor
% endfor
    add.u64 %ptr_column, %ptr_column, ${n * blocks.column_bytes};
    add.u64 %ptr_value, %ptr_value, ${n * blocks.block_bytes};
% for q in range(n):
% for pair in blocks.pairs:
% for line in blocks.fragment(q, pair):
    ${line}
% endfor
    ${blocks.product(q, pair)}
% endfor
% endfor
</%def>

## Vector v of row r of the lane: beta * C is added if beta is not 0.
<%def name="store(r, v)">
<% blocks, op = plan.mainloop, plan.arithmetic %>\
<% c, sums = blocks.loaded, [blocks.sum(r, v * blocks.vec + i) for i in range(blocks.vec)] %>\
    @!%reads_c bra STORE_${r}_${v};
    ld.global.${blocks.access} ${c.vector(0, 0, 0, 0, n=blocks.packed)}, [%ptr_c];
% if blocks.converts and blocks.vec == 1:
${convert.widen(blocks.kind, blocks.wide[0], c[0, 0, 0, 0])}\
% elif blocks.converts:
% for i in range(0, blocks.vec, 2):
${convert.widen_pair(blocks.kind, blocks.wide[i], blocks.wide[i + 1], c[0, 0, 0, i // 2], blocks.half.all)}\
% endfor
% endif
% for i, name in enumerate(sums):
    ${op.fma} ${name}, ${blocks.wide[i] if blocks.converts else c[0, 0, 0, i]}, %beta, ${name};
% endfor
STORE_${r}_${v}:
% if blocks.converts and blocks.vec == 1:
    cvt.rn.${blocks.kind}.${op.type} ${c[0, 0, 0, 0]}, ${sums[0]};
% elif blocks.converts:
% for i in range(0, blocks.vec, 2):
    cvt.rn.${blocks.kind}.${op.type} ${blocks.half[0]}, ${sums[i]};
    cvt.rn.${blocks.kind}.${op.type} ${blocks.half[1]}, ${sums[i + 1]};
    mov.b32 ${c[0, 0, 0, i // 2]}, {${blocks.half[0]}, ${blocks.half[1]}};
% endfor
% endif
    st.global.${blocks.access} [%ptr_c], ${c.vector(0, 0, 0, 0, n=blocks.packed) if blocks.converts else operand_list(sums)};
</%def>
