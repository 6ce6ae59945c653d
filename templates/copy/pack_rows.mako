## Copies operands to rows of whole 128 bytes. A thread assembles 16 bytes from the two aligned chunks of 16 bytes that hold
## them, several times for large operands. Columns past the end of a row are never read.
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%def name="entries()">
<% packing, t = plan.packing, plan.packing.copy_kernel %>\

// C = A B needs ${" and ".join(name.upper() for name in packing.copied)} in rows of whole 128 bytes: each thread copies 16 bytes
.visible .entry ${plan.entry}_pack_rows(
% for line in packing.parameter_list.declarations:
    ${line}
% endfor
)
.maxntid ${t.THREADS}, 1, 1
{
    .reg .b64 %base, %bytes, %operand_end, %ld, %dst, %src<${t.ROUNDS}>, %dst<${t.ROUNDS}>, %first_chunk, %last_chunk, %pitch, %tmp64;
    .reg .b32 %rows, %columns, %copy_offset128, %chunk, %row, %column, %row_chunks, %chunk_stride, %columns_left<${t.ROUNDS}>, %shift, %tmp0;
    .reg .b${max(t.bits, 16)} %elem;
    .reg .pred %p, %in_rows<${t.ROUNDS}>, %whole<${t.ROUNDS}>;
% if len(packing.copied) > 1:
    .reg .pred %is_a, %is_b;
% endif
% if plan.batch.active:
    .reg .b64 %batch_stride, %copy_item_bytes;
    .reg .b32 %item, %items;
% endif
    ${t.loaded.declaration}
    ${t.shifted_8.declaration}
    ${t.shifted_4.declaration}
% if t.stored is not t.shifted_4:
    ${t.stored.declaration}
% endif
    ld.param.u64 %dst, [W];
    cvta.to.global.u64 %dst, %dst;
    mov.u32 %chunk, %ctaid.x;
${pdl.trigger_and_wait()}\
% if len(packing.copied) > 1:
    // the first blocks copy A, the others B
    ld.param.u32 %tmp0, [blocks_a];
    setp.lt.u32 %is_a, %chunk, %tmp0;
    not.pred %is_b, %is_a;
    @%is_b sub.u32 %chunk, %chunk, %tmp0;
% endif
% for guard, x in zip(["@%is_a ", "@%is_b "] if len(packing.copied) > 1 else [""], packing.copied):
    ${guard}ld.param.u64 %base, [${x.upper()}];
% for kind, register in packing.copy_registers(x):
    ${guard}ld.param.${kind} %${register}, [${register}_${x}];
% endfor
% endfor
    cvta.to.global.u64 %base, %base;
    mad.wide.u32 %dst, %copy_offset128, ${t.ROW}, %dst;
% if plan.batch.active:
    // a batch item of the launch, if it has an operand of its own
    mov.u32 %item, %ctaid.z;
    setp.ge.u32 %p, %item, %items;
    @%p bra DONE;
    ld.param.u32 %tmp0, [first_item];
    add.u32 %item, %item, %tmp0;
    cvt.u64.u32 %tmp64, %item;
    mad.lo.u64 %base, %tmp64, %batch_stride, %base;
    mad.lo.u64 %dst, %tmp64, %copy_item_bytes, %dst;
% endif
    add.u32 %row_chunks, %columns, ${t.chunk_elements - 1};
    div.u32 %row_chunks, %row_chunks, ${t.chunk_elements};
    mul.wide.u32 %pitch, %row_chunks, ${t.CHUNK};
    add.u64 %pitch, %pitch, ${t.ROW - 1};
    and.b64 %pitch, %pitch, ${-t.ROW};
    add.u64 %operand_end, %base, %bytes;
    mov.u32 %tmp0, %tid.x;
    mad.lo.u32 %chunk, %chunk, ${t.THREADS}, %tmp0;
% for j in range(t.ROUNDS):
    // chunk %chunk of the copy: ${t.chunk_elements} columns of row %row, from %column on
    div.u32 %row, %chunk, %row_chunks;
    mul.lo.u32 %tmp0, %row, %row_chunks;
    sub.u32 %column, %chunk, %tmp0;
    setp.lt.u32 %in_rows${j}, %row, %rows;
    cvt.u64.u32 %tmp64, %row;
    mad.lo.u64 %src${j}, %tmp64, %ld, %base;
    mad.wide.u32 %src${j}, %column, ${t.CHUNK}, %src${j};
    mad.lo.u64 %dst${j}, %tmp64, %pitch, %dst;
    mad.wide.u32 %dst${j}, %column, ${t.CHUNK}, %dst${j};
    mul.lo.u32 %column, %column, ${t.chunk_elements};
    sub.u32 %columns_left${j}, %columns, %column;
    // load the aligned chunks that hold its first byte and its last, if both are inside the operand
    and.b64 %first_chunk, %src${j}, ${-t.CHUNK};
    add.u64 %last_chunk, %src${j}, ${t.CHUNK - 1};
    and.b64 %last_chunk, %last_chunk, ${-t.CHUNK};
    setp.ge.and.u64 %whole${j}, %first_chunk, %base, %in_rows${j};
    add.u64 %tmp64, %last_chunk, ${t.CHUNK};
    setp.le.and.u64 %whole${j}, %tmp64, %operand_end, %whole${j};
    @%whole${j} ld.global.nc.v4.b32 ${t.loaded.vector(j, 0, n=4)}, [%first_chunk];
    @%whole${j} ld.global.nc.v4.b32 ${t.loaded.vector(j, 4, n=4)}, [%last_chunk];
    add.u32 %chunk, %chunk, %chunk_stride;
% endfor
% for j in range(t.ROUNDS):
    // shift the two chunks to the required bytes: by 8, by 4, then by less than 4
    @!%whole${j} bra STORED${j};
    cvt.u32.u64 %shift, %src${j};
    and.b32 %tmp0, %shift, 8;
    setp.ne.u32 %p, %tmp0, 0;
% for n in range(6):
    selp.b32 ${t.shifted_8[n]}, ${t.loaded[j, n + 2]}, ${t.loaded[j, n]}, %p;
% endfor
    and.b32 %tmp0, %shift, 4;
    setp.ne.u32 %p, %tmp0, 0;
% for n in range(5):
    selp.b32 ${t.shifted_4[n]}, ${t.shifted_8[n + 1]}, ${t.shifted_8[n]}, %p;
% endfor
% if t.size < 4:
    shl.b32 %shift, %shift, 3;
% for n in range(4):
    shf.r.wrap.b32 ${t.stored[n]}, ${t.shifted_4[n]}, ${t.shifted_4[n + 1]}, %shift;
% endfor
% endif
    st.global.v4.b32 [%dst${j}], ${t.stored.vector(0, n=4)};
STORED${j}:
% endfor
% for j in range(t.ROUNDS):
    // at the edges of the operand: element by element, up to the end of the row
    xor.pred %p, %in_rows${j}, %whole${j};
    @!%p bra NEXT${j};
    min.u32 %columns_left${j}, %columns_left${j}, ${t.chunk_elements};
    .pragma "nounroll";
EDGE${j}:
    ld.global.nc.b${t.bits} %elem, [%src${j}];
    st.global.b${t.bits} [%dst${j}], %elem;
    add.u64 %src${j}, %src${j}, ${t.size};
    add.u64 %dst${j}, %dst${j}, ${t.size};
    sub.u32 %columns_left${j}, %columns_left${j}, 1;
    setp.ne.u32 %p, %columns_left${j}, 0;
    @%p bra EDGE${j};
NEXT${j}:
% endfor
DONE:
    ret;
}
</%def>
