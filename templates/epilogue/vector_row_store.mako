## Threads store the boxes of a tile to rows of C that are at computed offsets: a thread has 16 bytes of every few rows.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%namespace name="loaded" file="/epilogue/loaded_boxes.mako"/>
<%namespace name="fused_ops" file="/epilogue/fused_ops_subtile.mako"/>
<%namespace name="locations" file="/${context['plan'].epilogue.locations}"/>
<%def name="early()"></%def>
<%def name="finish()"></%def>
<%def name="acquire(s)">
    // ---- wait: the warpgroup has stored the boxes of the buffer
${sync.warpgroup()}\
</%def>

<%def name="store(s, c, array='C')">
    // ---- wait: the warpgroup has written the boxes; threads store their rows
${sync.warpgroup()}\
${fused_ops.locate(array)}\
% for strip in s.vectors.strips(c):
    {
${place(s)}\
  % for batch in s.vectors.batches:
    {
${rows(s, strip, batch, plan.batch.bases[array])}\
    % for b in strip:
${column(s, b)}\
      % for n, row in enumerate(batch):
    and.pred %p, %in_row${n}, %in_column;
    @%p ld.shared.v4.b32 ${s.vectors.words[n, :]}, [%smem_addr+${s.vectors.offsets[b][row]}];
    @%p st.global${plan.c.store_cache_op}.v4.b32 [%row_addr${n}+${s.vectors.columns[b].offset}], ${s.vectors.words[n, :]};
      % endfor
    % endfor
    }
  % endfor
    }
% endfor
</%def>

## + beta C: loads C to the subtile's boxes.
<%def name="load_c(s, c)">
${load(s, c, plan.batch.c_base, "C")}\
${loaded.add(s, c, None)}\
</%def>

<%def name="load_residual(s, c)">
${load_operand(s, c, "residual")}\
</%def>

## Loads aux to the subtile's boxes, whose contents the warpgroup has read.
<%def name="load_aux(s, c)">
    // ---- wait: the warpgroup has read the boxes
${sync.warpgroup()}\
${load_operand(s, c, "aux")}\
</%def>

<%def name="load_operand(s, c, name)">
${fused_ops.locate(name)}\
${load(s, c, plan.batch.bases[name], name)}\
</%def>

## Loads rows of C, or of an operand of its shape, to the subtile's boxes.
<%def name="load(s, c, base, name)">
% for strip in s.vectors.strips(c):
    {
${place(s)}\
  % for batch in s.vectors.batches:
    {
${rows(s, strip, batch, base)}\
    % for b in strip:
${column(s, b)}\
      % for n, row in enumerate(batch):
        % for q in range(4):
    mov.b32 ${s.vectors.words[n, q]}, 0;
        % endfor
    and.pred %p, %in_row${n}, %in_column;
    @%p ld.global.v4.b32 ${s.vectors.words[n, :]}, [%row_addr${n}+${s.vectors.columns[b].offset}];
        % if s.vectors.whole:
    st.shared.v4.b32 [%smem_addr+${s.vectors.offsets[b][row]}], ${s.vectors.words[n, :]};
        % else:
    setp.lt.u32 %p, %row, ${s.vectors.rows_left[row]};
    @%p st.shared.v4.b32 [%smem_addr+${s.vectors.offsets[b][row]}], ${s.vectors.words[n, :]};
        % endif
      % endfor
    % endfor
    }
  % endfor
    }
% endfor
    // ---- wait: the warpgroup has loaded ${name}
${sync.warpgroup()}\
</%def>

## A thread's place in a box, and its first row and column of C.
<%def name="place(s)">
    .reg .b32 %row, %chunk, %first_row, %rows_rem, %first_column, %columns_rem, %swizzled, %smem_addr;
    shr.u32 %row, %wg_thread, ${s.vectors.shift};
    and.b32 %chunk, %wg_thread, ${s.vectors.thread_mask};
    add.u32 %first_row, ${s.rows.row}, %row;
    sub.s32 %rows_rem, %M, %first_row;
    mad.lo.u32 %first_column, %chunk, 8, ${s.rows.column};
    sub.s32 %columns_rem, %N, %first_column;
    // the swizzled offset in the box
${constants.shr("%swizzled", "%row", s.swizzle_shift)}\
    and.b32 %swizzled, %swizzled, ${s.swizzle_mask};
    xor.b32 %swizzled, %swizzled, %chunk;
    mad.lo.u32 %smem_addr, %row, ${s.span}, %staging;
    mad.lo.u32 %smem_addr, %swizzled, 16, %smem_addr;
</%def>

## The addresses in C, or in an operand of its shape, of a batch of a thread's rows, at its first column.
<%def name="rows(s, strip, batch, base)">
<% runs_rows, _ = plan.epilogue.runs %>\
    .reg .b64 %row_addr<${len(batch)}>, %product;
    .reg .b32 %c_offset, ${runs_rows.operand};
    ${s.vectors.words.declaration}
    .reg .pred %in_row<${len(batch)}>, %in_column;
% for name in runs_rows.registers:
    ld.param.u32 %${name}, [${name}];
% endfor
% for n, row in enumerate(batch):
${locations.locate(runs_rows, "%c_offset", f"%in_row{n}", "%rows_rem", "%first_row", s.vectors.rows[strip[0]][row])}\
  % if not s.vectors.whole:
    setp.lt.and.u32 %in_row${n}, %row, ${s.vectors.rows_left[row]}, %in_row${n};
  % endif
    add.u32 %c_offset, %c_offset, %first_column;
    mad.wide.u32 %row_addr${n}, %c_offset, 2, ${base};
% endfor
</%def>

<%def name="column(s, b)">
    setp.gt.s32 %in_column, %columns_rem, ${s.vectors.columns[b].first};
</%def>
