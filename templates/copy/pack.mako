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
% elif b.method == "exchange":
${exchange(b)}\
% else:
${transpose(b)}\
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
${shift_bytes(b.byte_shifts[j])}\
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

## The words of two aligned chunks become those from a byte address on.
<%def name="shift_bytes(words)">
    cvt.u32.u64 %shift, ${words.address};
% for bytes, selections in ((8, words.by_8), (4, words.by_4)):
  % if selections:
    and.b32 %tmp0, %shift, ${bytes};
    setp.ne.u32 %p, %tmp0, 0;
  % endif
  % for shifted, after, word in selections:
    selp.b32 ${shifted}, ${after}, ${word}, %p;
  % endfor
% endfor
% if words.by_bytes:
    shl.b32 %shift, %shift, 3;
% endif
% for shifted, word, after in words.by_bytes:
    shf.r.wrap.b32 ${shifted}, ${word}, ${after}, %shift;
% endfor
</%def>

## A block copies words of rows that are neighbours in the operand, and exchanges them through shared memory.
<%def name="exchange(b)">
    .reg .b32 %smem, %smem_addr, %first_row, %first_word, %row_thread, %word_thread, %element, %copy_row, %byte, %word<4>;
    .reg .pred %in_rows;
    // the block's first row and its first word of each row
${row_and_part("%block")}\
    mul.lo.u32 %first_word, %row_part, ${b.words};
    mul.lo.u32 %first_row, %row, ${b.columns};
    and.b32 %word_thread, %thread, ${b.word_mask};
    shr.u32 %row_thread, %thread, ${b.log2_words};
    mov.u32 %smem, smem;
    // load the elements of word %word_thread of rows from %row on
    add.u32 %element, %first_word, %word_thread;
    mul.lo.u32 %element, %element, ${b.word_elements};
    add.u32 %row, %first_row, %row_thread;
% for elements in b.loads:
${address(b, "%element")}\
    setp.lt.u32 %in_rows, %row, %count;
  % for register, element, at in elements:
    mov.${b.loaded.ptx_type} ${register}, 0;
${constants.add("%tmp0", "%element", element)}\
    setp.lt.and.u32 %p, %tmp0, %depth, %in_rows;
    @%p ld.global.nc.${b.load} ${register}, [${at}];
  % endfor
    add.u32 %row, %row, ${b.round_rows};
% endfor
    // write words to shared memory, each row at a pitch that has no bank conflicts
    mad.lo.u32 %smem_addr, %row_thread, ${b.pitch}, %word_thread;
    mad.lo.u32 %smem_addr, %smem_addr, ${b.WORD}, %smem;
% for word, at in b.words_of:
    mov.b32 %word0, ${word};
    st.shared.b32 [%smem_addr+${at}], %word0;
% endfor
    // ---- wait: the block's words are in shared memory; each thread stores 16 bytes of rows
    bar.sync 0;
    and.b32 %word_thread, %thread, ${b.chunk_mask};
    shr.u32 %row_thread, %thread, ${b.log2_chunks};
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
${copy_row(b)}\
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

## %copy_row: the row of the copy, from its digits.
<%def name="copy_row(b)">
    mul.lo.u32 %copy_row, ${b.digits[0]}, %rows0;
% for digit, stride in b.rows_of:
    mad.lo.u32 %copy_row, ${digit}, ${stride}, %copy_row;
% endfor
</%def>

## A thread loads a line of adjacent elements for each element of a chunk of the copy, and transposes them in registers. Lines are
## adjacent to those of other lanes along the operand, chunks along a row of the copy.
<%def name="transpose(b)">
    .reg .b64 %along_step, %row_step64;
    .reg .b32 %chunk, %row_thread, %element, %left, %rows_left, %copy_row;
    // the thread's chunk of rows, and its number %row along the operand, where ${b.adjacent} lanes load 32 adjacent bytes
${row_and_part("%block")}\
    and.b32 %row_thread, %thread, ${b.adjacent_mask};
    shr.u32 %tmp0, %thread, ${b.log2_adjacent};
    and.b32 %chunk, %tmp0, ${b.lane_mask};
    shr.u32 %tmp0, %tmp0, ${b.log2_lanes};
    mad.lo.u32 %row_thread, %tmp0, ${b.adjacent}, %row_thread;
    mad.lo.u32 %chunk, %row_part, ${b.lanes}, %chunk;
    mad.lo.u32 %row, %row, ${b.threads_down}, %row_thread;
    setp.ge.u32 %p, %chunk, %chunks;
    setp.ge.or.u32 %p, %row, %count, %p;
    @%p bra DONE;
    mul.lo.u32 %element, %chunk, ${b.chunk_elements};
    sub.u32 %left, %depth, %element;
${address(b, "%element")}\
    mul.wide.u32 %along_step, %along_stride, ${b.size};
    // its first row of the copy, and the rows that are left in the line
${copy_row(b)}\
    mad.wide.u32 %dst, %copy_row, %row_bytes, %dst;
    mad.wide.u32 %dst, %chunk, ${b.CHUNK}, %dst;
    cvt.u64.u32 %row_step64, %row_step;
    mul.lo.u32 %rows_left, ${b.digits[-1]}, ${b.rows};
    sub.u32 %rows_left, %line_rows, %rows_left;
    // load the line of each element of the chunk; zeros past the last one. They are read once (.cs)
% if b.shifts_bytes:
${shifted_lines(b)}\
% else:
${aligned_lines(b)}\
% endif
    // the elements of each row of the copy
% for instructions, chunk in b.stores:
  % for instruction in instructions:
    ${instruction};
  % endfor
    setp.gt.s32 %p, %rows_left, ${loop.index};
    @%p st.global.v4.b32 [%dst], ${chunk};
    add.u64 %dst, %dst, %row_step64;
% endfor
% if b.shifts_bytes:
    bra DONE;
${edge(b)}\
% endif
</%def>

<%def name="aligned_lines(b)">
% for line in b.lines:
${zeros(line)}\
    setp.gt.s32 %p, %left, ${loop.index};
    @%p ld.global.cs.nc.${b.load} ${b.loads[loop.index][0]}, [%global_addr];
    add.u64 %global_addr, %global_addr, %along_step;
% endfor
</%def>

<%def name="zeros(registers)">
% for register in registers:
    mov.b32 ${register}, 0;
% endfor
</%def>

## The two aligned lines that contain a line, which is shifted. Those with the first element and the last one must be inside the
## operand; others past its end are not loaded.
<%def name="shifted_lines(b)">
    .reg .b64 %lines_end, %src, %first_line, %last_line;
    .reg .b32 %shift, %elements;
    .reg .pred %whole;
    mov.b64 %src, %global_addr;
    add.u64 %lines_end, %base, %bytes;
    and.b64 %lines_end, %lines_end, ${b.line_floor};
    min.u32 %elements, %left, ${b.chunk_elements};
    sub.u32 %tmp0, %elements, 1;
    cvt.u64.u32 %tmp64, %tmp0;
    mad.lo.u64 %last_line, %tmp64, %along_step, %src;
    min.u32 %rows_left, %rows_left, ${b.rows};
    sub.u32 %tmp0, %rows_left, 1;
    mad.wide.u32 %last_line, %tmp0, ${b.step_bytes}, %last_line;
    setp.lt.u64 %whole, %last_line, %lines_end;
    and.b64 %first_line, %src, ${b.line_floor};
    setp.ge.and.u64 %whole, %first_line, %base, %whole;
% for first, last in b.loads:
${zeros(b.loaded.rows[loop.index])}\
    setp.gt.and.s32 %p, %left, ${loop.index}, %whole;
    and.b64 %first_line, %global_addr, ${b.line_floor};
    add.u64 %last_line, %global_addr, ${b.line_mask};
    and.b64 %last_line, %last_line, ${b.line_floor};
    @%p ld.global.cs.nc.${b.load} ${first}, [%first_line];
    setp.lt.and.u64 %p, %last_line, %lines_end, %p;
    @%p ld.global.cs.nc.${b.load} ${last}, [%last_line];
    add.u64 %global_addr, %global_addr, %along_step;
% endfor
    @!%whole bra EDGE;
    // shift the two aligned lines to the required bytes
% for words in b.byte_shifts:
${shift_bytes(words)}\
    add.u64 %src, %src, %along_step;
% endfor
</%def>

## Row by row, element by element, zeros past the last element.
<%def name="edge(b)">
EDGE:
    // at the edges of the operand
    .reg .b64 %element_addr;
    ${b.edge.declaration}
    .pragma "nounroll";
EDGE_ROW:
    mov.b64 %element_addr, %src;
% for register, _ in b.elements:
    mov.${b.edge.ptx_type} ${register}, 0;
    setp.gt.u32 %p, %elements, ${loop.index};
    @%p ld.global.nc.${b.edge.ptx_type} ${register}, [%element_addr];
    add.u64 %element_addr, %element_addr, %along_step;
% endfor
% for register, offset in b.elements:
    st.global.${b.edge.ptx_type} [%dst+${offset}], ${register};
% endfor
    add.u64 %src, %src, ${b.step_bytes};
    add.u64 %dst, %dst, %row_step64;
    sub.u32 %rows_left, %rows_left, 1;
    setp.ne.u32 %p, %rows_left, 0;
    @%p bra EDGE_ROW;
</%def>
