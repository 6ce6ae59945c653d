## Products of row windows of a sparse matrix on tensor cores: a warp multiplies the blocks of a window, in order, for a
## slab of columns.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="convert" file="/ptx/convert.mako"/>\
<%namespace name="row_parts" file="/epilogue/row_parts.mako"/>\
<%namespace name="order" file="/${context['plan'].mainloop.order}"/>\
<% blocks, op = plan.mainloop, plan.arithmetic %>\
    .reg .b64 ${plan.address_registers}, %ptr_column, %ptr_value, %ptr_row, %ptr_c, %pitch64;
    .reg .b32 %M, %N, %ldc, %pitch, %count, %thread, %lane, %group, %member, %window, %begin, %end, %row, %last, %tmp0;
    .reg .s32 %blocks_left;
    .reg .b32 %col<${blocks.vectors}>;
    .reg .pred %p, %present, %reads_c, %exists<${blocks.in_flight}>, %stores<${blocks.vectors}>;
    .reg .${op.type} %alpha, %beta;

% for name, register in plan.addresses.items():
    ld.param.u64 %${register}, [${name}];  cvta.to.global.u64 %${register}, %${register};
% endfor
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];  ld.param.u32 %pitch, [ldb];  ld.param.u32 %ldc, [ldc];
    ld.param.${op.type} %alpha, [alpha];  ld.param.${op.type} %beta, [beta];
    ld.param.u32 %count, [${plan.count_parameter}];
${ptx.banner("warp to row window, lanes to columns: those after the last are computed as the last, and not stored")}\
    mov.u32 %thread, %tid.x;
    mov.u32 %window, %ctaid.x;
    shr.u32 %tmp0, %thread, 5;
    mad.lo.u32 %window, %window, ${blocks.windows}, %tmp0;
    setp.ge.u32 %p, %window, %count;
    @%p bra DONE;
    and.b32 %lane, %thread, 31;
    shr.u32 %group, %lane, 2;
    and.b32 %member, %lane, 3;
    mov.u32 %tmp0, %ctaid.y;
    mul.lo.u32 %tmp0, %tmp0, ${blocks.slab};
    mad.lo.u32 %tmp0, %group, ${blocks.vec}, %tmp0;
    sub.u32 %last, %N, ${blocks.vec};
    mul.lo.u32 %pitch, %pitch, ${blocks.size};
% for v, column in enumerate(blocks.vector_columns):
    add.u32 %col${v}, %tmp0, ${column};
    setp.lt.u32 %stores${v}, %col${v}, %N;
    min.u32 %col${v}, %col${v}, %last;
    mad.wide.u32 ${blocks.from_b[v]}, %col${v}, ${blocks.size}, %B;
% endfor
${ptx.banner("the blocks of the window")}\
% if plan.work_list:
    .reg .b64 %partials, %row_pitch;
    .reg .b32 %part_id;
    mad.wide.u32 %ptr_column, %window, 16, %items;
    ld.global.nc.v4.u32 {%window, %begin, %end, %part_id}, [%ptr_column];
% else:
    mad.wide.u32 %ptr_column, %window, 4, %window_starts;
    ld.global.nc.u32 %begin, [%ptr_column];
    ld.global.nc.u32 %end, [%ptr_column+4];
% endif
    sub.s32 %blocks_left, %end, %begin;
    mul.lo.u32 %row, %window, ${blocks.part_rows};
    mad.lo.u32 %row, %member, ${blocks.lane_rows}, %row;
% for name in blocks.sums.all:
    mov.${op.type} ${name}, ${op.zero};
% endfor
    setp.eq.${op.type} %p, %alpha, ${op.zero};
    @%p bra PRODUCTS_END; // A and B are not read
    setp.le.s32 %p, %blocks_left, 0;
    @%p bra PRODUCTS_END;
    mad.wide.u32 %ptr_column, %begin, ${blocks.column_bytes}, %window_columns;
    mad.wide.u32 %ptr_column, %member, ${blocks.member_bytes}, %ptr_column;
    mad.wide.u32 %ptr_value, %begin, ${blocks.block_bytes}, %window_values;
    mad.wide.u32 %ptr_value, %lane, 8, %ptr_value;
% for name in blocks.loaded.all: # absent vectors, which have no values, are not loaded
    mov.${blocks.loaded.ptx_type} ${name}, 0;
% endfor
${order.first(load_block_operands)}\
${ptx.banner(f"loop over blocks, {blocks.in_flight} at once; those after the last have no vectors")}\
    .pragma "nounroll";
BLOCK_LOOP:
${order.own(load_block_operands)}\
% for q in range(blocks.in_flight):
  % for i in range(blocks.rows):
    setp.ne.u32 %present, ${blocks.column[q, i]}, ${blocks.absent};
    % for v in range(blocks.vectors):
    mad.wide.u32 %ptr_row, ${blocks.column[q, i]}, %pitch, ${blocks.from_b[v]};
    @%present ld.global.nc.${blocks.access} ${blocks.loaded[q, i, v, :]}, [%ptr_row];
    % endfor
  % endfor
% endfor
    mov.s32 %end, %blocks_left;
    sub.s32 %blocks_left, %blocks_left, ${blocks.in_flight};
${order.following(load_block_operands)}\
% for q in range(blocks.in_flight):
  % if q:
    setp.le.s32 %p, %end, ${q};
    @%p bra PRODUCTS_END;
  % endif
  % for line in blocks.products[q]:
    ${line}
  % endfor
% endfor
${order.advance()}\
    setp.gt.s32 %p, %blocks_left, 0;
    @%p bra BLOCK_LOOP;
PRODUCTS_END:
% if plan.work_list:
    ld.param.u64 %partials, [partials];
    add.u64 %partials, %partials, %workspace;
    mul.wide.u32 %row_pitch, %N, ${op.bytes};
    cvt.u64.u32 %pitch64, %member;
    mul.lo.u64 %pitch64, %pitch64, ${blocks.lane_rows};
    mad.lo.u64 %partials, %pitch64, %row_pitch, %partials; // the first row of the lane
${row_parts.add_parts()}\
% endif
${ptx.banner("epilogue: C = alpha * sums + beta * C, of two rows")}\
    setp.neu.${op.type} %reads_c, %beta, ${op.zero};
% for name in blocks.sums.all:
    ${op.mul} ${name}, ${name}, %alpha;
% endfor
% for r in range(blocks.lane_rows):
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
${store(r, v, *blocks.c_vectors[r, v])}\
  % endfor
ROW_END_${r}:
% endfor
DONE:
<%def name="after_entry()"></%def>\

## The columns of the next blocks, and their values into ``values``; the columns after the last block are absent.
<%def name="load_block_operands(values)">
<% blocks = plan.mainloop %>\
% for q in range(blocks.in_flight):
    setp.gt.s32 %exists${q}, %blocks_left, ${q};
% endfor
% for q in range(blocks.in_flight):
  % for i in range(blocks.rows):
    mov.b32 ${blocks.column[q, i]}, ${blocks.absent};
  % endfor
    @%exists${q} ld.global.nc.v${blocks.rows}.u32 ${blocks.column[q, :]}, [%ptr_column+${blocks.column_offsets[q]}];
% endfor
% for q in range(blocks.in_flight):
    @%exists${q} ld.global.nc.v2.b32 ${values[q, :]}, [%ptr_value+${blocks.value_offsets[q]}];
% endfor
    add.u64 %ptr_column, %ptr_column, ${blocks.column_offsets[blocks.in_flight]};
    add.u64 %ptr_value, %ptr_value, ${blocks.value_offsets[blocks.in_flight]};
</%def>

## Vector v of row r of the lane: beta * C is added if beta is not 0.
<%def name="store(r, v, sums, pairs, stored)">
<% blocks, op = plan.mainloop, plan.arithmetic %>\
    @!%reads_c bra STORE_${r}_${v};
    ld.global.${blocks.access} ${blocks.loaded[0, 0, 0, :]}, [%ptr_c];
% for word, low, high in blocks.c_pairs:
${convert.widen_pair(blocks.ptx_type, low, high, word, blocks.half.all)}\
% endfor
% if blocks.converts and not pairs:
${convert.widen(blocks.ptx_type, blocks.wide[0], blocks.loaded[0, 0, 0, 0])}\
% endif
% for sum, element in zip(sums, blocks.c_elements):
    ${op.fma} ${sum}, ${element}, %beta, ${sum};
% endfor
STORE_${r}_${v}:
% for word, low, high in pairs:
    cvt.rn.${blocks.ptx_type}.${op.type} ${blocks.half[0]}, ${low};
    cvt.rn.${blocks.ptx_type}.${op.type} ${blocks.half[1]}, ${high};
    mov.b32 ${word}, ${blocks.half[:]};
% endfor
% if blocks.converts and not pairs:
    cvt.rn.${blocks.ptx_type}.${op.type} ${blocks.loaded[0, 0, 0, 0]}, ${sums[0]};
% endif
    st.global.${blocks.access} [%ptr_c], ${stored};
</%def>
