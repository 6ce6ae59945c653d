## Threads store the boxes of a tile to a C whose columns are in runs of constant stride. A thread has two adjacent columns of
## every few rows, with many rows in flight. Where rows begin at any element, it stores words that begin at a multiple of four bytes:
## its two columns, or its second one and the next thread's first; single elements only at the ends of runs and boxes.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%namespace name="loaded" file="/epilogue/loaded_boxes.mako"/>
<%namespace name="fused_ops" file="/epilogue/fused_ops_subtile.mako"/>
<%namespace name="scatter" file="/epilogue/run_offsets.mako"/>
<%namespace name="locations" file="/${context['plan'].epilogue.locations}"/>
<%def name="early()"></%def>
<%def name="finish()"></%def>
<%def name="acquire(s)">
    // ---- wait: the warpgroup has stored the boxes of the buffer
${sync.warpgroup()}\
</%def>

<%def name="store(s, c, array='C')">
    // ---- wait: the warpgroup has written the boxes; threads store their columns
${sync.warpgroup()}\
${fused_ops.locate(array)}\
% for b in s.pairs.emitted(c):
    {
${begin(s, b, f"STORE_BOX{c.label}", plan.batch.bases[array])}\
  % if s.pairs.unaligned_stores:
${words(s, b)}\
  % endif
  % for rows in s.pairs.batches:
    % for n, row in enumerate(rows):
    ld.shared.b32 %pair${n}, [${s.pairs.addresses[row]}];
    % endfor
    % for n, row in enumerate(rows):
      % if plan.epilogue.paired:
${in_bounds(s, row)}\
    @%p st.global.b32 [%c_addr], %pair${n};
      % else:
    shfl.sync.down.b32 %following, %pair${n}, 1, 31, 0xffffffff;
    prmt.b32 %following, %pair${n}, %following, 0x5432;
    mov.b32 {%half0, %half1}, %pair${n};
        % for guard, width, at, value in s.pairs.unaligned_stores[n]:
    setp.gt.and.s32 %p, %rows_rem, ${s.pairs.first_rows[row]}, ${guard};
    @%p st.global.${width} [${at}], ${value};
        % endfor
      % endif
${next_row()}\
    % endfor
  % endfor
${end(s, c, f"STORE_BOX{c.label}")}\
    }
% endfor
</%def>

## + beta C: loads C to the subtile's boxes.
<%def name="load_c(s, c)">
% for b in s.pairs.emitted(c):
    {
${begin(s, b, f"LOAD_BOX{c.label}", plan.batch.c_base)}\
  % for rows in s.pairs.batches:
    % for n, row in enumerate(rows):
${in_bounds(s, row)}\
      % if plan.epilogue.paired:
    mov.b32 %pair${n}, 0;
    @%p ld.global.b32 %pair${n}, [%c_addr];
      % else:
    mov.b16 %half0, 0;
    mov.b16 %half1, 0;
    @%p ld.global.b16 %half0, [%c_addr];
        % if plan.epilogue.phased:
${in_bounds(s, row, "%next_in_n")}\
        % else:
    and.pred %p, %p, %next_in_n;
        % endif
    @%p ld.global.b16 %half1, [%next_c_addr];
    mov.b32 %pair${n}, {%half0, %half1};
      % endif
${next_row()}\
    % endfor
    % for n, row in enumerate(rows):
    st.shared.b32 [${s.pairs.addresses[row]}], %pair${n};
    % endfor
  % endfor
${end(s, c, f"LOAD_BOX{c.label}")}\
    }
% endfor
    // ---- wait: the warpgroup has loaded C
${sync.warpgroup()}\
${loaded.add(s, c, None)}\
</%def>

## A thread's two columns of a box's first row: %c_addr and %next_c_addr in C, %smem_addr in the box; %rows_rem: rows of C from
## there on. Loops over many boxes: unrolled, ptxas hoists every address and spills.
<%def name="begin(s, b, label, base)">
<%
    rows, columns = plan.epilogue.runs
    row, column, next_column = s.pairs.places[b]
    first_row, first_column, staging = s.pairs.first
%>\
    .reg .b64 %c_addr, %product, %next_c_addr, %row_bytes;
    .reg .b32 %row, %pair_index, %col_offset, %next_col_offset, %row_offset, %rows_rem, %smem_addr, %smem_addr_odd, %pair<${s.pairs.in_flight}>, ${rows.operand}, ${columns.operand};
    .reg .pred %in_n, %next_in_n;
${locations.predicates("%column_inside, %next_column_inside")}\
% if s.pairs.loops:
    .reg .b32 %loop_x, %loop_y, %box, %boxes;
    mov.b32 %loop_x, ${s.rows.row};  mov.b32 %loop_y, ${s.rows.column};
    mov.b32 %box, %staging;  mov.u32 %boxes, 0;
    .pragma "nounroll";
${label}:
% endif
% for name in (*rows.registers, *columns.registers):
    ld.param.u32 %${name}, [${name}];
% endfor
    shr.u32 %row, %wg_thread, ${s.pairs.shift};
    and.b32 %pair_index, %wg_thread, ${s.pairs.thread_mask};
    mad.lo.u32 %tmp2, %pair_index, 2, ${first_column};
${locations.column_offset(columns, "%col_offset", "%column_inside", "%tmp2", column)}\
${locations.column_offset(columns, "%next_col_offset", "%next_column_inside", "%tmp2", next_column)}\
${constants.add("%tmp2", "%tmp2", column)}\
    setp.lt.u32 %in_n, %tmp2, %N;
    add.u32 %tmp2, %tmp2, 1;
    setp.lt.u32 %next_in_n, %tmp2, %N;
${locations.and_inside("%in_n", "%column_inside")}\
${locations.and_inside("%next_in_n", "%next_column_inside")}\
    add.u32 %tmp2, ${first_row}, %row;
${scatter.offset(rows, "%row_offset", "%tmp2", row)}\
${constants.add("%tmp2", "%tmp2", row)}\
    sub.s32 %rows_rem, %M, %tmp2;
    add.s32 %tmp1, %row_offset, %col_offset;
    mad.wide.s32 %c_addr, %tmp1, 2, ${base};
    add.s32 %tmp1, %row_offset, %next_col_offset;
    mad.wide.s32 %next_c_addr, %tmp1, 2, ${base};
    mul.wide.u32 %row_bytes, %step_${rows.name}, ${s.pairs.step_bytes};
    // the swizzled offset in the box
${constants.shr("%tmp0", "%row", s.swizzle_shift)}\
    and.b32 %tmp0, %tmp0, ${s.swizzle_mask};
    shr.u32 %tmp1, %pair_index, 2;
    xor.b32 %tmp0, %tmp0, %tmp1;
    and.b32 %tmp1, %pair_index, 3;
    mad.lo.u32 %tmp0, %tmp0, 4, %tmp1;
    mad.lo.u32 %smem_addr, %row, ${s.pairs.span_words}, %tmp0;
    mad.lo.u32 %smem_addr, %smem_addr, 4, ${staging};
${constants.add("%smem_addr", "%smem_addr", b.offset)}\
${constants.xor("%smem_addr_odd", "%smem_addr", s.pairs.swizzle)}\
</%def>

## Which words and single elements of a row a thread stores. Its rows have an even number of rows between them, so that all of them
## begin at the same place in a word.
<%def name="words(s, b)">
<% (preceding, following), last = s.pairs.neighbours[b], s.pairs.last_thread %>\
    .reg .b32 %following, %following_offset, %in_word;
    .reg .pred %own_word, %next_word, %low, %high, %covered;
${locations.predicates("%other_inside")}\
    mad.lo.u32 %tmp2, %pair_index, 2, ${s.pairs.first[1]};
    // the columns before and after the thread's two
${locations.column_offset(plan.epilogue.runs[1], "%in_word", "%other_inside", "%tmp2", preceding)}\
    add.u32 %in_word, %in_word, 1;
    setp.eq.u32 %covered, %in_word, %col_offset;
    setp.ne.and.u32 %covered, %pair_index, 0, %covered;
${locations.and_inside("%covered", "%other_inside")}\
${locations.column_offset(plan.epilogue.runs[1], "%following_offset", "%other_inside", "%tmp2", following)}\
    sub.u32 %following_offset, %following_offset, 1;
    setp.eq.u32 %next_word, %following_offset, %next_col_offset;
    setp.ne.and.u32 %next_word, %pair_index, ${last}, %next_word;
${constants.add("%tmp2", "%tmp2", following)}\
    setp.lt.and.u32 %next_word, %tmp2, %N, %next_word;
${locations.and_inside("%next_word", "%next_in_n", "%other_inside")}\
    // where columns begin in a word
    cvt.u32.u64 %in_word, %next_c_addr;
    and.b32 %in_word, %in_word, 2;
    setp.eq.and.u32 %next_word, %in_word, 0, %next_word;
    cvt.u32.u64 %in_word, %c_addr;
    and.b32 %in_word, %in_word, 2;
    setp.ne.and.u32 %covered, %in_word, 0, %covered;
    add.u32 %following_offset, %col_offset, 1;
    setp.eq.and.u32 %own_word, %following_offset, %next_col_offset, %next_in_n;
    setp.eq.and.u32 %own_word, %in_word, 0, %own_word;
${locations.and_inside("%own_word", "%in_n")}\
    // single elements are those in no word
    or.pred %low, %own_word, %covered;
    not.pred %low, %low;
    and.pred %low, %low, %in_n;
    or.pred %high, %own_word, %next_word;
    not.pred %high, %high;
    and.pred %high, %high, %next_in_n;
</%def>

<%def name="end(s, c, label)">
% if s.pairs.loops:
    add.u32 %box, %box, ${s.pairs.box_bytes};
    add.u32 %boxes, %boxes, 1;  add.u32 %loop_y, %loop_y, ${s.width};
  % if s.mi > 1:
    // from the last box of 64 rows to the first of the next
    rem.u32 %tmp0, %boxes, ${s.pairs.boxes};
    setp.eq.u32 %p, %tmp0, 0;
    @%p add.u32 %loop_x, %loop_x, 64;
    @%p sub.u32 %loop_y, %loop_y, ${s.columns};
  % endif
    setp.lt.u32 %p, %boxes, ${len(c.stores)};
    @%p bra.uni ${label};
% endif
</%def>

<%def name="in_bounds(s, row, inside='%in_n')">
    setp.gt.and.s32 %p, %rows_rem, ${s.pairs.first_rows[row]}, ${inside};
</%def>

<%def name="next_row()">
% for pointer in plan.epilogue.pointers:
    add.u64 ${pointer}, ${pointer}, %row_bytes;
% endfor
</%def>
