## Makes packed copies of operands in the workspace (codegen/launches/copy_kernel.py). The digits of a place's number in the
## copy determine which element of the operand is stored there.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%def name="operand_addresses()">
% for x in plan.packing.names:
    // ${x.upper()}: the address of its packed copy
    ld.param.u32 %tmp0, [copy_offset128_${x}];
    mad.wide.u32 %${x.upper()}, %tmp0, 128, %workspace;
% endfor
</%def>

<%def name="entries()">
<% packing = plan.packing %>\

// C = A B needs packed copies of ${" and ".join(x.upper() for x in packing.copied)}: rows of whole 16 bytes
.visible .entry ${plan.entry}_pack(
% for line in packing.parameter_list.declarations:
    ${line}
% endfor
)
.maxntid ${packing.THREADS}, 1, 1
{
    .reg .b64 %dst;
    .reg .b32 %block, %blocks_a, %thread, %tmp0;
    .reg .pred %p;
    ld.param.u64 %dst, [W];
    cvta.to.global.u64 %dst, %dst;
    mov.u32 %block, %ctaid.x;
    mov.u32 %thread, %tid.x;
${pdl.trigger_and_wait()}\
% if len(packing.copied) > 1:
    // the first blocks copy A, the others B
    ld.param.u32 %blocks_a, [blocks_a];
    setp.ge.u32 %p, %block, %blocks_a;
    @%p bra.uni OTHER;
% endif
% for name, code in packing.codes.items():
    // ${name.upper()}: ${code.title}
    {
${copy(code, name)}\
    }
  % if not loop.last:
    bra.uni DONE;
OTHER:
    sub.u32 %block, %block, %blocks_a;
  % endif
% endfor
DONE:
    ret;
}
</%def>

<%def name="copy(b, name)">
    .reg .b64 %base, %global_addr, %tmp64;
    .reg .b32 %offset, %row, %row_part, %position, %digit<${len(b.copy.digits)}>, %quotient<${len(b.copy.digits)}>;
    .reg .pred %inside;
% for x in b.tiles:
    ${x.declaration}
% endfor
    ld.param.u64 %base, [${name.upper()}];
% for bits, registers in plan.packing.registers(name).items():
    .reg .b${bits} ${", ".join(registers)};
  % for register in registers:
    ld.param.u${bits} ${register}, [${register[1:]}_${name}];
  % endfor
% endfor
    cvta.to.global.u64 %base, %base;
    mad.wide.u32 %dst, %copy_offset128, ${b.ROW}, %dst;
% if plan.packing.batched:
    // a batch item of the launch, if it has an operand of its own
    .reg .b32 %item;
    mov.u32 %item, %ctaid.z;
    setp.ge.u32 %p, %item, %items;
    @%p bra DONE;
    mul.wide.u32 %tmp64, %item, %copy_item128;
    mad.lo.u64 %dst, %tmp64, ${b.ROW}, %dst;
    ld.param.u32 %tmp0, [first_item];
    add.u32 %item, %item, %tmp0;
    cvt.u64.u32 %tmp64, %item;
    mad.lo.u64 %base, %tmp64, %batch_stride, %base;
% endif
% if b.method == "gather":
${gather(b)}\
% elif b.method == "shift":
${shift(b)}\
% else:
${exchange(b)}\
% endif
</%def>

## %row, %row_part: the row and the part of it that number ``chunk`` makes.
<%def name="row_and_part(chunk)">
    div.u32 %row, ${chunk}, %row_parts;
    mul.lo.u32 %tmp0, %row, %row_parts;
    sub.u32 %row_part, ${chunk}, %tmp0;
</%def>

## The digits of row %row, the last one first.
<%def name="digits(b)">
% for digit, number, rest, extent in b.divisions:
    div.u32 ${rest}, ${number}, ${extent};
    mul.lo.u32 ${digit}, ${rest}, ${extent};
    sub.u32 ${digit}, ${number}, ${digit};
% endfor
</%def>

## %global_addr: the address of place ``place`` of row %row in the operand; %inside: the row's positions are inside axes with bounds.
<%def name="address(b, place)">
${digits(b)}\
% for position, digit, step in b.moves:
  % if step:
    mad.lo.u32 ${position}, ${digit}, ${step}, ${position};
  % else:
    add.u32 ${position}, ${position}, ${digit};
  % endif
% endfor
% for digit, step in b.shifts:
    mad.lo.u32 ${place}, ${digit}, ${step}, ${place};
% endfor
% for compare, position, extent, and_inside in b.inside:
    setp.${compare}.u32 %inside, ${position}, ${extent}${and_inside};
% endfor
% if len(b.terms) == 1:
    mul.wide.u32 %tmp64, ${b.terms[0][0]}, ${b.terms[0][1]};
    mad.lo.u64 %global_addr, %tmp64, ${b.size}, %base;
  % if b.contiguous:
    mad.wide.u32 %global_addr, ${place}, ${b.size}, %global_addr;
  % else:
    mul.wide.u32 %tmp64, ${place}, ${b.along_stride};
    mad.lo.u64 %global_addr, %tmp64, ${b.size}, %global_addr;
  % endif
% else:
    mul.lo.u32 %offset, ${place}, ${b.along_stride};
  % for value, stride in b.terms:
    mad.lo.u32 %offset, ${value}, ${stride}, %offset;
  % endfor
    mad.wide.${b.offset_type} %global_addr, %offset, ${b.size}, %base;
% endif
</%def>

## The elements of a chunk one by one: zeros for those outside the operand.
<%def name="gather(b)">
    .reg .b64 %along_step, %within_step, %element_addr;
    .reg .b32 %chunk, %word<4>;
    // chunk %chunk of the copy: part %row_part of row %row
    mad.lo.u32 %chunk, %block, ${b.THREADS}, %thread;
    setp.ge.u32 %p, %chunk, %count;
    @%p bra DONE;
${row_and_part("%chunk")}\
    mad.wide.u32 %dst, %chunk, ${b.CHUNK}, %dst;
    // the operand's first element: the digits of the row, then the position along it
% if b.copy.along.first is None:
    mul.lo.u32 %position, %row_part, ${b.places};
% else:
    mad.lo.u32 %position, %row_part, ${b.places}, %first;
% endif
${address(b, "%position")}\
% if b.steps:
    mul.wide.u32 %along_step, %along_stride, ${b.size};
% endif
% if b.copy.padded > 1:
    mul.wide.u32 %within_step, %within_stride, ${b.size};
% endif
% for place, more in b.loads:
    setp.${b.compare}.u32 %p, %position, %depth${b.and_inside};
  % for register, at, moved in place:
    mov.${b.loaded.ptx_type} ${register}, 0;
    % if at:
    @%p ld.global.nc.${b.load} ${register}, [${at}];
    % endif
    % if moved:
    add.u64 %element_addr, ${moved}, %within_step;
    % endif
  % endfor
  % if more:
    add.u32 %position, %position, 1;
    % if b.steps:
    add.u64 %global_addr, %global_addr, %along_step;
    % endif
  % endif
% endfor
% for low, high in b.byte_pairs:
    shl.b16 ${high}, ${high}, 8;
    or.b16 ${low}, ${low}, ${high};
% endfor
% for halves in b.halves:
    mov.b32 %word${loop.index}, ${halves};
% endfor
    st.global.${b.store} [%dst], ${b.stored};
</%def>

## A thread shifts two aligned chunks to the bytes of a chunk of the copy, several times for large operands. Elements past the end of
## a row are undefined in the copy.
<%def name="shift(b)">
    .reg .b64 %operand_end, %src<${b.ROUNDS}>, %dst<${b.ROUNDS}>, %first_chunk, %last_chunk;
    .reg .b32 %chunk, %left<${b.ROUNDS}>, %shift;
    .reg .b${b.register_bits} %elem;
    .reg .pred %last, %in_copy<${b.ROUNDS}>, %whole<${b.ROUNDS}>;
    add.u64 %operand_end, %base, %bytes;
    mad.lo.u32 %chunk, %block, ${b.THREADS}, %thread;
% for j in b.all:
    // chunk %chunk of the copy: part %row_part of row %row
${row_and_part("%chunk")}\
    setp.lt.u32 %in_copy${j}, %chunk, %count;
    mad.wide.u32 %dst${j}, %row, %row_bytes, %dst;
    mad.wide.u32 %dst${j}, %row_part, ${b.CHUNK}, %dst${j};
    mul.lo.u32 %position, %row_part, ${b.chunk_elements};
    sub.u32 %left${j}, %depth, %position;
${address(b, "%position")}\
    mov.b64 %src${j}, %global_addr;
    // load the aligned chunks that hold its first byte and its last, if both are inside the operand
    and.b64 %first_chunk, %src${j}, ${-b.CHUNK};
    add.u64 %last_chunk, %src${j}, ${b.chunk_mask};
    and.b64 %last_chunk, %last_chunk, ${-b.CHUNK};
    setp.ge.and.u64 %whole${j}, %first_chunk, %base, %in_copy${j};
    add.u64 %tmp64, %last_chunk, ${b.CHUNK};
    setp.le.and.u64 %whole${j}, %tmp64, %operand_end, %whole${j};
    @%whole${j} ld.global.nc.v4.b32 ${b.chunks[j][0]}, [%first_chunk];
    @%whole${j} ld.global.nc.v4.b32 ${b.chunks[j][1]}, [%last_chunk];
    add.u32 %chunk, %chunk, %chunk_stride;
  % if j == 0:
    setp.ge.u32 %last, %chunk, %count;
    @%last bra LOADED;
  % endif
% endfor
LOADED:
% for j in b.all:
    // shift the two chunks to the required bytes: by 8, by 4, then by less than 4
    @!%whole${j} bra STORED${j};
${shift_bytes(b, j)}\
    st.global.v4.b32 [%dst${j}], ${b.vector};
STORED${j}:
    // at the edges of the operand: element by element, up to the end of the row
    xor.pred %p, %in_copy${j}, %whole${j};
    @!%p bra NEXT${j};
    min.u32 %left${j}, %left${j}, ${b.chunk_elements};
    .pragma "nounroll";
EDGE${j}:
    ld.global.nc.b${b.bits} %elem, [%src${j}];
    st.global.b${b.bits} [%dst${j}], %elem;
    add.u64 %src${j}, %src${j}, ${b.size};
    add.u64 %dst${j}, %dst${j}, ${b.size};
    sub.u32 %left${j}, %left${j}, 1;
    setp.ne.u32 %p, %left${j}, 0;
    @%p bra EDGE${j};
NEXT${j}:
  % if j == 0:
    @%last bra DONE;
  % endif
% endfor
</%def>

## The bytes from address %src${j} on, in two aligned chunks, become those of a chunk.
<%def name="shift_bytes(b, j)">
    cvt.u32.u64 %shift, %src${j};
    and.b32 %tmp0, %shift, 8;
    setp.ne.u32 %p, %tmp0, 0;
% for shifted, after, word in b.by_8[j]:
    selp.b32 ${shifted}, ${after}, ${word}, %p;
% endfor
    and.b32 %tmp0, %shift, 4;
    setp.ne.u32 %p, %tmp0, 0;
% for shifted, after, word in b.by_4:
    selp.b32 ${shifted}, ${after}, ${word}, %p;
% endfor
% if b.by_bytes:
    shl.b32 %shift, %shift, 3;
% endif
% for shifted, word, after in b.by_bytes:
    shf.r.wrap.b32 ${shifted}, ${word}, ${after}, %shift;
% endfor
</%def>

## A block copies words of rows that are neighbours in the operand, and exchanges them through shared memory.
<%def name="exchange(b)">
    .reg .b64 %along_step, %round_step;
    .reg .b32 %smem, %smem_addr, %first_row, %first_word, %row_thread, %word_thread, %element, %copy_row, %byte, %word<4>;
    .reg .pred %in_rows;
    // the block's first row and its first word of each row
${row_and_part("%block")}\
    mul.lo.u32 %first_word, %row_part, ${b.words};
    mul.lo.u32 %first_row, %row, ${b.columns};
    and.b32 ${b.across}, %thread, ${b.across_mask};
    div.u32 ${b.down}, %thread, ${b.threads_across};
    mov.u32 %smem, smem;
    // load element %element of rows from %row on: %along_step bytes from one to the next, %round_step from the last of a word to the next round
    add.u32 %element, %first_word, %word_thread;
    mul.lo.u32 %element, %element, ${b.word_elements};
% if not b.contiguous:
    mul.wide.u32 %along_step, %along_stride, ${b.size};
    mul.lo.u64 %round_step, %along_step, ${b.round_elements};
% endif
${constants.mad("%row", "%row_thread", b.vec, "%first_row")}\
% for loads in b.loads:
  % if b.round_rows or loop.first:
${address(b, "%element")}\
    setp.lt.u32 %in_rows, %row, %count;
  % endif
  % for registers, operand, element, at, step in loads:
    % for register in registers:
    mov.${b.loaded.ptx_type} ${register}, 0;
    % endfor
${constants.add("%tmp0", "%element", element)}\
    setp.lt.and.u32 %p, %tmp0, %depth, %in_rows;
    @%p ld.global.nc.${b.load} ${operand}, [${at}];
    % if step:
    add.u64 %global_addr, %global_addr, ${step};
    % endif
  % endfor
  % if b.round_rows:
    add.u32 %row, %row, ${b.round_rows};
  % endif
% endfor
    // write words to shared memory, each row at a pitch that has no bank conflicts
    mul.lo.u32 %smem_addr, %row_thread, ${b.row_step};
    add.u32 %smem_addr, %smem_addr, %word_thread;
    mad.lo.u32 %smem_addr, %smem_addr, ${b.WORD}, %smem;
% for word, at in b.words_of:
    ${word};
    st.shared.b32 [%smem_addr+${at}], %word0;
% endfor
    // ---- wait: the block's words are in shared memory; each thread stores 16 bytes of rows
    bar.sync 0;
    and.b32 %word_thread, %thread, ${b.chunk_mask};
    div.u32 %row_thread, %thread, ${b.chunks};
    mul.lo.u32 %smem_addr, %row_thread, ${b.pitch};
    mad.lo.u32 %smem_addr, %word_thread, ${b.chunk_words}, %smem_addr;
    mad.lo.u32 %smem_addr, %smem_addr, ${b.WORD}, %smem;
    mul.lo.u32 %byte, %word_thread, ${b.CHUNK};
    mad.lo.u32 %byte, %first_word, ${b.WORD}, %byte;
    cvt.u64.u32 %tmp64, %byte;
    add.u64 %dst, %dst, %tmp64;
    add.u32 %row, %first_row, %row_thread;
% for words in b.row_words:
${digits(b)}\
    mul.lo.u32 %copy_row, ${b.digits[0]}, %rows0;
  % for digit, stride in b.rows_of:
    mad.lo.u32 %copy_row, ${digit}, ${stride}, %copy_row;
  % endfor
    mad.wide.u32 %global_addr, %copy_row, %row_bytes, %dst;
    setp.lt.u32 %in_rows, %byte, %row_bytes;
    setp.lt.and.u32 %in_rows, %row, %count, %in_rows;
  % for word, at in words:
    ld.shared.b32 ${word}, [%smem_addr+${at}];
  % endfor
    @%in_rows st.global.v4.b32 [%global_addr], {%word0, %word1, %word2, %word3};
    add.u32 %row, %row, ${b.rows_at_once};
% endfor
</%def>
