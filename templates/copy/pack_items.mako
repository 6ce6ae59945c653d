## Packs the items of A and B by blocks of K: a block has all rows of an item, and the last block is filled with zeros.
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%namespace name="pack" file="/copy/pack.mako"/>
<%namespace name="table" file="/${context['plan'].packing.table_template}"/>
<%def name="operand_addresses()"></%def>

<%def name="entries()">
<% t, size = plan.packing, plan.problem.element.bytes %>\
${table.entries()}\

// C = alpha A B needs the items of A and B in blocks of ${t.ROW} bytes of K
.visible .entry ${plan.entry}_pack(
% for line in t.pack_parameters.declarations:
    ${line}
% endfor
)
.maxntid ${t.code.THREADS}, 1, 1
{
    .reg .b64 %table, %descriptors, %descriptor, %workspace, %base, %copy, %item_at, %item_end, %src0, %dst, %first_chunk, %last_chunk, %tmp64;
    .reg .b32 %chunk, %row_chunk, %packed_row, %items, %lower_bound, %count, %first, %rows, %K, %ld, %row, %block, %blocks, %left, %shift, %bits, %byte, %tmp0, %tmp1;
    .reg .pred %p, %whole;
% if t.copies:
    .reg .b16 %edge_element;
  % for x in t.code.tiles:
    ${x.declaration}
  % endfor
% endif
% if t.transposes:
    .reg .b64 %step;
    ${t.elements.declaration}
% endif
    ld.param.u64 %table, [table];  ld.param.u64 %workspace, [W];  ld.param.u32 %items, [items];
    cvta.to.global.u64 %workspace, %workspace;
% if t.makes_table:
    add.u64 %table, %table, %workspace;
% else:
    cvta.to.global.u64 %table, %table;
% endif
${pdl.trigger_and_wait()}\
    add.u32 %tmp0, %items, 3;
    shr.u32 %tmp0, %tmp0, 2;
    mad.wide.u32 %descriptors, %tmp0, 16, %table;
    add.u64 %descriptors, %descriptors, ${t.HEADER};
    // a thread makes ${t.CHUNK} bytes of a packed row
    mov.u32 %tmp0, %ctaid.x;
    mov.u32 %chunk, %tid.x;
    mad.lo.u32 %chunk, %tmp0, ${t.code.THREADS}, %chunk;
    shr.u32 %packed_row, %chunk, ${t.log2_chunks};
    and.b32 %row_chunk, %chunk, ${t.last_chunk};
    // the first row of blocks packs A, the second one B
    mov.u32 %tmp0, %ctaid.y;
    setp.ne.u32 %p, %tmp0, 0;
    @%p bra.uni PACK_B;
% for x in t.sides:
PACK_${x.label}:
${find(t, x)}\
    bra.uni ${x.method};
% endfor
% if t.copies:
COPY:
${place(t, size)}\
${copy(t, size)}\
% endif
% if t.copies and t.transposes:
    bra DONE;
% endif
% if t.transposes:
TRANSPOSE:
${place(t, size)}\
${transpose(t)}\
% endif
DONE:
    ret;
}
</%def>

## %row, %block: the row of packed row %packed_row, and its block of K; %left: bytes of the row from this thread's first byte %byte on.
<%def name="place(t, size)">
    ld.global.u32 %K, [%descriptor+${t.layout.offsets["k"]}];
    // row %row of block %block; after the last row of the last item there is nothing to do
    sub.u32 %row, %packed_row, %first;
    add.u32 %blocks, %K, ${t.last_of_block};
    shr.u32 %blocks, %blocks, ${t.block_shift};
    mul.lo.u32 %tmp0, %rows, %blocks;
    setp.ge.u32 %p, %row, %tmp0;
    @%p bra DONE;
    div.u32 %block, %row, %rows;
    mul.lo.u32 %tmp0, %block, %rows;
    sub.u32 %row, %row, %tmp0;
    // %left: bytes of the row from this thread's first on, of which it takes at most ${t.CHUNK}
    mul.lo.u32 %left, %K, ${size};
    shl.b32 %byte, %block, ${t.log2_row};
    mad.lo.u32 %byte, %row_chunk, ${t.CHUNK}, %byte;
    sub.u32 %left, %left, %byte;
    max.s32 %left, %left, 0;
    min.s32 %left, %left, ${t.CHUNK};
    add.u64 %item_at, %base, %item_at;
    mad.wide.u32 %dst, %chunk, ${t.CHUNK}, %copy;
</%def>

## Shifts two aligned chunks to the bytes of a chunk: K is contiguous.
<%def name="copy(t, size)">
    // %src0: the first byte; %item_at, %item_end: the bounds of the item
    mul.wide.u32 %src0, %row, %ld;
    mad.lo.u64 %src0, %src0, ${size}, %item_at;
    cvt.u64.u32 %tmp64, %byte;
    add.u64 %src0, %src0, %tmp64;
    sub.u32 %tmp0, %rows, 1;
    mul.wide.u32 %item_end, %tmp0, %ld;
    cvt.u64.u32 %tmp64, %K;
    add.u64 %item_end, %item_end, %tmp64;
    mad.lo.u64 %item_end, %item_end, ${size}, %item_at;
    // load the aligned chunks that hold the first byte and the last, if both are inside the item
    and.b64 %first_chunk, %src0, ${t.chunk_mask};
    add.u64 %last_chunk, %src0, ${t.last_byte};
    and.b64 %last_chunk, %last_chunk, ${t.chunk_mask};
    setp.ge.u64 %whole, %first_chunk, %item_at;
    add.u64 %tmp64, %last_chunk, ${t.CHUNK};
    setp.le.and.u64 %whole, %tmp64, %item_end, %whole;
% for word in t.code.loaded.all:
    mov.b32 ${word}, 0;
% endfor
% for words, at in zip(t.code.chunks[0], ("%first_chunk", "%last_chunk")):
    @%whole ld.global.nc.v4.b32 ${words}, [${at}];
% endfor
    // shift them to the required bytes; zeros follow the last byte of the row
${pack.shift_bytes(t.code, 0)}\
    shl.b32 %bits, %left, 3;
% for word in t.code.stored.all:
    bfe.u32 ${word}, ${word}, 0, %bits;
    sub.s32 %bits, %bits, 32;
    max.s32 %bits, %bits, 0;
% endfor
    st.global.v4.b32 [%dst], ${t.code.vector};
    // at the edges of the item: byte by byte
    setp.eq.or.u32 %p, %left, 0, %whole;
    @%p bra DONE;
    .pragma "nounroll";
EDGE:
    ld.global.nc.u8 %edge_element, [%src0];
    st.global.u8 [%dst], %edge_element;
    add.u64 %src0, %src0, 1;
    add.u64 %dst, %dst, 1;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %p, %left, 0;
    @%p bra EDGE;
</%def>

## Loads the bytes of a chunk one by one, as K is not contiguous: those of adjacent threads are adjacent.
<%def name="transpose(t)">
    // %src0: the first byte; %step: bytes from one index of K to the next
    mul.wide.u32 %src0, %byte, %ld;
    add.u64 %src0, %src0, %item_at;
    cvt.u64.u32 %tmp64, %row;
    add.u64 %src0, %src0, %tmp64;
    cvt.u64.u32 %step, %ld;
    // zeros follow the last byte of the row
% for element in t.elements.all:
    setp.gt.u32 %p, %left, ${loop.index};
    mov.b32 ${element}, 0;
    @%p ld.global.nc.u8 ${element}, [%src0];
    add.u64 %src0, %src0, %step;
% endfor
% for word, element, bit in t.insertions:
    bfi.b32 ${word}, ${element}, ${word}, ${bit}, 8;
% endfor
    st.global.v4.b32 [%dst], ${t.transposed};
</%def>

## The operand and its copy, and the item of packed row %packed_row: the last one whose first packed row is not above it.
<%def name="find(t, x)">
% if not x.kmajor:
    // adjacent threads make chunks of adjacent rows, with the same indices of K
    mov.u32 %tmp0, %ctaid.x;
    mov.u32 %tmp1, %tid.x;
    shr.u32 %row_chunk, %tmp1, ${t.log2_block_rows};
    and.b32 %packed_row, %tmp1, ${t.last_block_row};
    mad.lo.u32 %packed_row, %tmp0, ${t.block_rows}, %packed_row;
    mad.lo.u32 %chunk, %packed_row, ${t.CHUNKS}, %row_chunk;
% endif
    ld.param.u32 %tmp0, [rows_${x.name}];
    setp.ge.u32 %p, %packed_row, %tmp0;
    @%p bra DONE;
    ld.param.u64 %base, [${x.label}];  ld.param.u64 %copy, [copy_${x.name}];
    cvta.to.global.u64 %base, %base;
    add.u64 %copy, %copy, %workspace;
    mov.u32 %lower_bound, 0;
    mov.u32 %count, %items;
    .pragma "nounroll";
FIND_${x.label}:
    shr.u32 %tmp0, %count, 1;
    add.u32 %tmp1, %lower_bound, %tmp0;
    mad.wide.u32 %descriptor, %tmp1, ${t.layout.descriptor_bytes}, %descriptors;
    ld.global.u32 %first, [%descriptor+${x.first}];
    setp.le.u32 %p, %first, %packed_row;
    selp.b32 %lower_bound, %tmp1, %lower_bound, %p;
    @%p sub.u32 %tmp0, %count, %tmp0;
    mov.u32 %count, %tmp0;
    setp.gt.u32 %p, %count, 1;
    @%p bra FIND_${x.label};
    mad.wide.u32 %descriptor, %lower_bound, ${t.layout.descriptor_bytes}, %descriptors;
    ld.global.u32 %first, [%descriptor+${x.first}];
    ld.global.u32 %rows, [%descriptor+${x.rows}];
    ld.global.u32 %ld, [%descriptor+${x.ld}];
    ld.global.u64 %item_at, [%descriptor+${x.address}];
</%def>
