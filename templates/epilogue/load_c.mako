## Loads C to the boxes of a tile that warps store row by row.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%namespace name="loaded" file="/epilogue/loaded_boxes.mako"/>
<%namespace name="rows" file="/epilogue/row_tails.mako"/>
## + beta C: loads elements to the subtile's boxes, one at a time.
<%def name="load_c(s, c)">
<% k = s.rows %>\
% for n, segment in enumerate(k.segments(c)):
    {
    .reg .b32 %word;
    .reg .pred %in_row, %has_word;
${rows.addresses(s, segment, plan.batch.c_base)}\
    shl.b32 %column, %lane, 1;
    mul.wide.u32 %tmp64, %column, 2;
    add.u64 %c_addr, %c_addr, %tmp64;
    setp.lt.u32 %has_word, %lane, ${k.last_words};
    .pragma "nounroll";
LOAD_ROWS${c.label}_${n}:
  % for x in k.words[segment]:
${constants.add("%tmp0", "%row", x.row)}\
    setp.lt.s32 %in_row, %tmp0, %rows_rem;
    % for i, (column, offset) in enumerate(x.elements):
${constants.add("%tmp0", "%column", column)}\
    setp.lt.and.s32 %p, %tmp0, %columns_left, %in_row;
    mov.b16 %half${i}, 0;
    @%p ld.global.b16 %half${i}, [%c_addr+${offset}];
    % endfor
    mov.b32 %word, {%half0, %half1};
    % if x.last:
    @%has_word st.shared.b32 [${x.address}], %word;
    add.u64 %c_addr, %c_addr, %row_step;
    % else:
    st.shared.b32 [${x.address}], %word;
    % endif
  % endfor
${rows.next_rows(s, f"LOAD_ROWS{c.label}_{n}")}\
    }
% endfor
    // ---- wait: the warpgroup has loaded C
${sync.warpgroup()}\
${loaded.add(s, c, None)}\
</%def>
