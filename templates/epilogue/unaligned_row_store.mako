## Warps store a tile row by row if rows of C are not aligned to 16 bytes: a warp stores a row, and a thread a word of each 64
## elements of the row. Either all rows of a warp begin at a multiple of four bytes, or all begin two bytes after one.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%namespace name="rows" file="/epilogue/row_tails.mako"/>
<%namespace name="fused_ops" file="/epilogue/fused_ops_subtile.mako"/>
<%namespace name="c_loads" file="/epilogue/load_c.mako"/>
<%def name="early()"></%def>
<%def name="finish()"></%def>

<%def name="acquire(s)">
    // ---- wait: the warpgroup has stored the boxes of the buffer
${sync.warpgroup()}\
</%def>

<%def name="load_c(s, c)">${c_loads.load_c(s, c)}</%def>

<%def name="store(s, c, array='C')">
    // ---- wait: the warpgroup has written the boxes; warps store their rows
${sync.warpgroup()}\
${fused_ops.locate(array)}\
% for n, segment in enumerate(s.rows.segments(c)):
<% k, label = s.rows, f"{c.label}_{n}" %>\
    {
    .reg .b32 %head, %word<${len(k.batch)}>, %next_word<${len(k.batch)}>;
    .reg .pred %whole<${k.parts}>;
${rows.addresses(s, segment, plan.batch.bases[array])}\
    // one element before the first word, where the row begins in the middle of a word
    cvt.u32.u64 %head, %c_addr;
    shr.u32 %head, %head, 1;
    and.b32 %head, %head, 1;
    mad.lo.u32 %column, %lane, 2, %head;
    mul.wide.u32 %tmp64, %column, 2;
    add.u64 %c_addr, %c_addr, %tmp64;
  % for part, last in enumerate(k.last_elements):
    add.u32 %tmp0, %column, ${last};
    setp.lt.s32 %whole${part}, %tmp0, %columns_left;
  % endfor
    setp.eq.u32 %p, %head, 0;
    @%p bra EVEN${label};
${words(s, segment, f"ODD{label}", True)}\
    bra WORDS${label};
${words(s, segment, f"EVEN{label}", False)}\
WORDS${label}:
${rows.tails(s, segment, label)}\
    }
% endfor
</%def>

## The words of a warp's rows. With ``odd`` a row begins at the second element of a word: each word is made of two.
<%def name="words(s, segment, label, odd)">
<% k = s.rows %>\
    .pragma "nounroll";
${label}:
% for i, x in enumerate(k.words[segment]):
    ld.shared.b32 %word${i}, [${x.address}];
  % if odd:
    ld.shared.b32 %next_word${i}, [${x.next_address}];
  % endif
% endfor
% for i, x in enumerate(k.words[segment]):
  % if odd:
    prmt.b32 %word${i}, %word${i}, %next_word${i}, 0x5432;
  % endif
${constants.add("%tmp0", "%row", x.row)}\
    setp.lt.and.s32 %p, %tmp0, %rows_rem, %whole${x.part};
    @%p st.global.b32 [%c_addr+${x.offset}], %word${i};
  % if x.last:
    add.u64 %c_addr, %c_addr, %row_step;
  % endif
% endfor
${rows.next_rows(s, label)}\
</%def>
