## Packs the items of A and B by blocks of 128 bytes of K: a block has all rows of an item, and the last block is filled with zeros.
<%namespace name="pdl" file="/ptx/pdl.mako"/>
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
.maxntid ${t.PACK_THREADS}, 1, 1
{
    .reg .b64 %table, %descriptors, %descriptor, %base, %copy, %item_at, %end, %src, %dst, %first_chunk, %last_chunk, %tmp64;
    .reg .b32 %side, %chunk, %part, %packed_row, %items, %lower_bound, %count, %first, %rows, %K, %ld, %row, %block, %blocks, %left, %shift;
    .reg .b32 %loaded<8>, %by_8_<6>, %by_4_<5>, %word<4>, %bits, %byte, %tmp0, %tmp1;
    .reg .b16 %element;
    .reg .pred %p, %whole;
    ld.param.u64 %table, [table];  ld.param.u64 %tmp64, [W];  ld.param.u32 %items, [items];
    add.u64 %table, %table, %tmp64;
    cvta.to.global.u64 %table, %table;  cvta.to.global.u64 %tmp64, %tmp64;
${pdl.trigger_and_wait()}\
    add.u32 %tmp0, %items, 3;
    shr.u32 %tmp0, %tmp0, 2;
    mad.wide.u32 %descriptors, %tmp0, 16, %table;
    add.u64 %descriptors, %descriptors, ${t.HEADER};
    // a thread makes ${t.CHUNK} bytes of a row of the packed operand
    mov.u32 %tmp0, %ctaid.x;
    mov.u32 %chunk, %tid.x;
    mad.lo.u32 %chunk, %tmp0, ${t.PACK_THREADS}, %chunk;
    shr.u32 %packed_row, %chunk, ${t.log2_chunks};
    and.b32 %part, %chunk, ${t.CHUNKS - 1};
    mov.u32 %side, %ctaid.y;
    setp.ne.u32 %p, %side, 0;
    @%p bra.uni PACK_${t.sides[1].name.upper()};
% for x in t.sides:
PACK_${x.name.upper()}:
    ld.param.u32 %tmp0, [rows_${x.name}];
    setp.ge.u32 %p, %packed_row, %tmp0;
    @%p bra PACKED;
    ld.param.u64 %base, [${x.name.upper()}];  ld.param.u64 %copy, [copy_${x.name}];
    cvta.to.global.u64 %base, %base;
    add.u64 %copy, %copy, %tmp64;
    // %lower_bound: the last descriptor whose first packed row is not above %packed_row
    mov.u32 %lower_bound, 0;
    mov.u32 %count, %items;
    .pragma "nounroll";
FIND_${x.name.upper()}:
    shr.u32 %tmp0, %count, 1;
    add.u32 %tmp1, %lower_bound, %tmp0;
    mad.wide.u32 %descriptor, %tmp1, ${t.layout.descriptor_bytes}, %descriptors;
    ld.global.u32 %first, [%descriptor+${x.first}];
    setp.le.u32 %p, %first, %packed_row;
    selp.b32 %lower_bound, %tmp1, %lower_bound, %p;
    @%p sub.u32 %tmp0, %count, %tmp0;
    mov.u32 %count, %tmp0;
    setp.gt.u32 %p, %count, 1;
    @%p bra FIND_${x.name.upper()};
    mad.wide.u32 %descriptor, %lower_bound, ${t.layout.descriptor_bytes}, %descriptors;
    ld.global.u32 %first, [%descriptor+${x.first}];
    ld.global.u32 %rows, [%descriptor+${x.rows}];
    ld.global.u32 %ld, [%descriptor+${x.ld}];
    ld.global.u64 %item_at, [%descriptor+${x.address}];
  % if not loop.last:
    bra.uni FOUND;
  % endif
% endfor
FOUND:
    ld.global.u32 %K, [%descriptor+${t.layout.offsets["k"]}];
    // the place in the item: row %row, block %block; threads after the last row of the last item have nothing to do
    sub.u32 %row, %packed_row, %first;
    add.u32 %blocks, %K, ${t.last_of_block};
    shr.u32 %blocks, %blocks, ${t.block_shift};
    mul.lo.u32 %tmp0, %rows, %blocks;
    setp.ge.u32 %p, %row, %tmp0;
    @%p bra PACKED;
    div.u32 %block, %row, %rows;
    mul.lo.u32 %tmp0, %block, %rows;
    sub.u32 %row, %row, %tmp0;
    // %left: bytes of the row from this thread's first on, of which it takes at most ${t.CHUNK}
    mul.lo.u32 %left, %K, ${size};
    shl.b32 %byte, %block, ${t.log2_row};
    mad.lo.u32 %byte, %part, ${t.CHUNK}, %byte;
    sub.u32 %left, %left, %byte;
    max.s32 %left, %left, 0;
    min.s32 %left, %left, ${t.CHUNK};
    // %src: the first byte; %item_at, %end: the bounds of the item
    add.u64 %item_at, %base, %item_at;
    mul.wide.u32 %src, %row, %ld;
    mad.lo.u64 %src, %src, ${size}, %item_at;
    cvt.u64.u32 %tmp64, %byte;
    add.u64 %src, %src, %tmp64;
    sub.u32 %tmp0, %rows, 1;
    mul.wide.u32 %end, %tmp0, %ld;
    cvt.u64.u32 %tmp64, %K;
    add.u64 %end, %end, %tmp64;
    mad.lo.u64 %end, %end, ${size}, %item_at;
    mad.wide.u32 %dst, %chunk, ${t.CHUNK}, %copy;
    // load the aligned chunks that hold its first byte and its last, if both are inside the item
    and.b64 %first_chunk, %src, ${-t.CHUNK};
    add.u64 %last_chunk, %src, ${t.CHUNK - 1};
    and.b64 %last_chunk, %last_chunk, ${-t.CHUNK};
    setp.ge.u64 %whole, %first_chunk, %item_at;
    add.u64 %tmp64, %last_chunk, ${t.CHUNK};
    setp.le.and.u64 %whole, %tmp64, %end, %whole;
% for word in range(8):
    mov.b32 %loaded${word}, 0;
% endfor
    @%whole ld.global.nc.v4.b32 {%loaded0, %loaded1, %loaded2, %loaded3}, [%first_chunk];
    @%whole ld.global.nc.v4.b32 {%loaded4, %loaded5, %loaded6, %loaded7}, [%last_chunk];
    // shift the two chunks to the required bytes: by 8, by 4, then by less than 4; zeros after the last byte
    cvt.u32.u64 %shift, %src;
    and.b32 %tmp0, %shift, 8;
    setp.ne.u32 %p, %tmp0, 0;
% for n in range(6):
    selp.b32 %by_8_${n}, %loaded${n + 2}, %loaded${n}, %p;
% endfor
    and.b32 %tmp0, %shift, 4;
    setp.ne.u32 %p, %tmp0, 0;
% for n in range(5):
    selp.b32 %by_4_${n}, %by_8_${n + 1}, %by_8_${n}, %p;
% endfor
    shl.b32 %shift, %shift, 3;
    shl.b32 %bits, %left, 3;
% for n in t.words:
    shf.r.wrap.b32 %word${n}, %by_4_${n}, %by_4_${n + 1}, %shift;
    bfe.u32 %word${n}, %word${n}, 0, %bits;
    sub.s32 %bits, %bits, 32;
    max.s32 %bits, %bits, 0;
% endfor
    st.global.v4.b32 [%dst], {%word0, %word1, %word2, %word3};
    // at the edges of the item: byte by byte
    setp.eq.or.u32 %p, %left, 0, %whole;
    @%p bra PACKED;
    .pragma "nounroll";
EDGE:
    ld.global.nc.u8 %element, [%src];
    st.global.u8 [%dst], %element;
    add.u64 %src, %src, 1;
    add.u64 %dst, %dst, 1;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %p, %left, 0;
    @%p bra EDGE;
PACKED:
    ret;
}
</%def>
