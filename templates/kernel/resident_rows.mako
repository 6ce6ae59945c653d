## All pairs of rows of A and columns of B, for small K: a thread keeps rows of A in registers; the columns of B stream through
## shared memory, and all lanes read the same columns. The part plan.taken takes the results.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="values" file="/epilogue/result_values.mako"/>\
<%namespace name="taken" file="/${context['plan'].taken.slot}"/>\
<%namespace name="pairs" file="/${context['plan'].mainloop.slot}"/>\
<%namespace name="sink_kernels" file="/${context['plan'].sink_kernels.template}"/>\
<% own = plan.mainloop %>\
    .reg .b64 %A, %B, %tmp64, %tmp64b;
    .reg .b32 %M, %N, %K, %lda, %ldb, %part_columns, %thread, %column_part, %column, %end, %left, %columns_addr, %tmp0, %tmp1;
    .reg .b32 %row<${own.rows}>;
    .reg .pred %p, %in_bounds;
% for _, elements in plan.row_vectors:
    ${elements.declaration}
% endfor
% for group in plan.scalars:
    .reg .${group.type} ${group.registers};
% endfor
% for line in [*own.step_temporaries, *plan.reducer.temporaries, *plan.taken.temporaries]:
    ${line}
% endfor
${taken.declare()}\
${pairs.declare()}\

    ld.param.u64 %A, [A];  ld.param.u64 %B, [B];
    cvta.to.global.u64 %A, %A;  cvta.to.global.u64 %B, %B;
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];  ld.param.u32 %K, [K];
    ld.param.u32 %lda, [lda];  ld.param.u32 %ldb, [ldb];  ld.param.u32 %part_columns, [part_columns];
% for group in plan.scalars:
    ${group.load}
% endfor
    mov.u32 %thread, %tid.x;
${values.setup()}\
${ptx.banner("block to rows and columns; rows beyond the last are the last, and are not stored")}\
    mov.u32 %column_part, %ctaid.y;
    mul.lo.u32 %column, %column_part, %part_columns;
    add.u32 %end, %column, %part_columns;
    min.u32 %end, %end, %N;
    mov.u32 %tmp0, %ctaid.x;
% if own.lanes > 1:
    // the lanes of a warp have the same rows
    shr.u32 %tmp1, %thread, ${own.log2_lanes};
    mad.lo.u32 %tmp0, %tmp0, ${own.row_elements}, %tmp1;
% else:
    mad.lo.u32 %tmp0, %tmp0, ${own.row_elements}, %thread;
% endif
% for r, first in enumerate(own.row_starts):
    add.u32 %row${r}, %tmp0, ${first};
    sub.u32 %tmp1, %M, 1;
    min.u32 %tmp1, %row${r}, %tmp1;
${element("%A", plan.problem.operands[0].access.kmajor, "%tmp1", "%lda")}\
  % for k in range(own.k):
    % if k:
    add.u64 %tmp64, %tmp64, %tmp64b;
    % endif
    ld.global.nc.${own.load} ${own.a[r, k]}, [%tmp64];
  % endfor
  % for x, elements in plan.row_vectors:
    mad.wide.u32 %tmp64, %tmp1, ${x.bytes}, %${x.name};
    ld.global.nc.${x.access} ${elements[r]}, [%tmp64];
  % endfor
% endfor
${taken.begin()}\
${pairs.begin()}\
${ptx.banner(f"tiles of {own.columns} columns: each thread copies {own.copies} elements")}\
    .pragma "nounroll";
NEXT_TILE:
    setp.ge.u32 %p, %column, %end;
    @%p bra.uni REDUCED;
    // ---- wait: all warps have read the tile before
    bar.sync 0;
% if own.copied_together > 1:
${copy_vectors()}\
% else:
${copy_elements()}\
% endif
    // ---- wait: the tile is in shared memory
    bar.sync 0;
${pairs.columns()}\
    mov.u32 %columns_addr, smem;
% for line in own.to_lane:
    ${line}
% endfor
    sub.u32 %left, %end, %column;
    min.u32 %left, %left, ${own.columns};
    add.u32 %tmp1, %column, %left;
% if own.by_columns:
    and.b32 %tmp0, %left, ${own.vec_mask};
    sub.u32 %left, %left, %tmp0;
    add.u32 %tmp1, %column, %tmp0;
    setp.ge.u32 %p, %column, %tmp1;
    @%p bra.uni LAST_COLUMNS;
% endif
    .pragma "nounroll";
NEXT_COLUMNS:
${columns(plan.group)}\
    setp.lt.u32 %p, %column, %tmp1;
    @%p bra.uni NEXT_COLUMNS;
% if own.by_columns:
LAST_COLUMNS:
    setp.eq.u32 %p, %left, 0;
    @%p bra.uni NEXT_TILE;
    add.u32 %tmp1, %column, %left;
    .pragma "nounroll";
NEXT_COLUMN:
${columns(plan.single)}\
    setp.lt.u32 %p, %column, %tmp1;
    @%p bra.uni NEXT_COLUMN;
% endif
    bra.uni NEXT_TILE;
REDUCED:
${taken.finish()}\
<%def name="after_entry()">${sink_kernels.entries()}</%def>\

## A thread copies single elements.
<%def name="copy_elements()">
<% own = plan.mainloop %>\
    {
    .reg .b32 %copied, %of_column, %of_k, %copy_addr, %last_column;
    .reg .${own.ptx_type} %element<${own.copies}>;
    .reg .pred %copies;
    sub.u32 %last_column, %N, 1;
    mov.u32 %copy_addr, smem;
    mad.lo.u32 %copy_addr, %thread, ${own.bytes}, %copy_addr;
% for n, (first, _) in enumerate(own.copied):
    add.u32 %copied, %thread, ${first};
    and.b32 %of_column, %copied, ${own.column_mask};
    shr.u32 %of_k, %copied, ${own.log2_columns};
    add.u32 %of_column, %of_column, %column;
    min.u32 %of_column, %of_column, %last_column;
${element("%B", plan.problem.operands[1].access.kmajor, "%of_column", "%ldb", "%of_k")}\
  % if not own.copies_all:
    setp.lt.u32 %copies, %of_k, ${own.k};
  % endif
    ${own.copy_guard}ld.global.nc.${own.load} %element${n}, [%tmp64];
% endfor
% for n, (first, offset) in enumerate(own.copied):
  % if not own.copies_all:
    add.u32 %copied, %thread, ${first};
    setp.lt.u32 %copies, %copied, ${own.tile_elements};
  % endif
    ${own.copy_guard}st.shared.${own.load} [%copy_addr+${offset}], %element${n};
% endfor
    }
</%def>\

## A thread copies vectors of adjacent k of one column.
<%def name="copy_vectors()">
<% own = plan.mainloop %>\
    {
    .reg .b32 %of_column, %of_k, %copy_addr, %last_column;
    ${own.copied_elements.declaration}
    .reg .pred %copies;
    sub.u32 %last_column, %N, 1;
% for x in own.vector_copies:
${place(x)}\
    add.u32 %of_column, %of_column, %column;
    min.u32 %of_column, %of_column, %last_column;
${element("%B", plan.problem.operands[1].access.kmajor, "%of_column", "%ldb", "%of_k")}\
    ${own.copy_guard}ld.global.nc.${own.vector_load} ${x.elements}, [%tmp64];
% endfor
% for x in own.vector_copies:
${place(x)}\
    mad.lo.u32 %of_column, %of_k, ${own.columns}, %of_column;
    mov.u32 %copy_addr, smem;
    mad.lo.u32 %copy_addr, %of_column, ${own.bytes}, %copy_addr;
  % for register, offset in x.stores:
    ${own.copy_guard}st.shared.${own.load} [%copy_addr+${offset}], ${register};
  % endfor
% endfor
    }
</%def>\

## The column and the first k of a vector; %copies: the tile has it
<%def name="place(x)">
<% own = plan.mainloop %>\
    add.u32 %of_k, %thread, ${x.first};
    and.b32 %of_column, %of_k, ${own.column_mask};
    shr.u32 %of_k, %of_k, ${own.log2_columns};
    mul.lo.u32 %of_k, %of_k, ${own.copied_together};
% for line in own.has_vector:
    ${line}
% endfor
</%def>\

## %tmp64: the address of an element of row, or column, ``at`` and of ``k``; %tmp64b: bytes to the next k.
<%def name="element(base, kmajor, at, ld, k='')">
<% size = plan.mainloop.bytes %>\
% if kmajor:
    mul.wide.u32 %tmp64, ${at}, ${ld};
  % if k:
    cvt.u64.u32 %tmp64b, ${k};
    add.u64 %tmp64, %tmp64, %tmp64b;
  % endif
    mov.u64 %tmp64b, ${size};
% else:
    cvt.u64.u32 %tmp64, ${at};
  % if k:
    mul.wide.u32 %tmp64b, ${k}, ${ld};
    add.u64 %tmp64, %tmp64, %tmp64b;
  % endif
    mul.wide.u32 %tmp64b, ${ld}, ${size};
% endif
    mad.lo.u64 %tmp64, %tmp64, ${size}, ${base};
</%def>\

## The pairs of all rows of the thread with a group of columns from %column on; advances to the next ones.
<%def name="columns(group)">
<% own = plan.mainloop %>\
    {
${values.declare(group.values)}\
${taken.declare_group()}\
% for line in group.loads:
    ${line}
% endfor
% for x in group.values.held:
    ${x.tile.declaration}
    mad.wide.u32 %tmp64, %column, ${x.bytes}, %${x.name};
  % for register, offset in zip(x.tile.all, x.offsets):
    ld.global.nc.${x.access} ${register}, [%tmp64+${offset}];
  % endfor
% endfor
% for row in group.rows:
${pairs.compute(group, row)}\
${taken.take_row(group, row)}\
% endfor
${taken.take(group)}\
    add.u32 %column, %column, ${group.step};
    add.u32 %columns_addr, %columns_addr, ${group.bytes};
    }
</%def>\
