## A block packs bytes into words of bits, 1 where the byte is not 0. Bytes are tested four at a time: in t = ((x & 0x7f7f7f7f)
## + 0x7f7f7f7f | x), bit 7 of each byte is the bit of that byte.
<%def name="registers(x)">
    .reg .b64 %src, %dst, %tmp64;
    .reg .b32 %rows, %depth, %ld, %pitch, %chunks, %thread, %block, %row, %k, %word, %tmp0;
    .reg .pred %p, %in;
    ${x.bytes.declaration}
% if x.vec < 4:
    ${x.parts.declaration}
% endif
% if not x.kmajor:
    .reg .b64 %ld64;
    .reg .b32 %left, %tmp1, %bits<4>, %low<2>, %high<2>, %column<4>;
    .reg .pred %in_row<${len(x.pieces)}>;
% endif
</%def>

## Bit 7 of each byte of a register: the byte is not 0; all others are 0.
<%def name="test(register)">
    and.b32 %tmp0, ${register}, 0x7f7f7f7f;
    add.u32 %tmp0, %tmp0, 0x7f7f7f7f;
    or.b32 %tmp0, %tmp0, ${register};
    and.b32 %tmp0, %tmp0, 0x80808080;
</%def>

<%def name="join(x)">
% for whole, parts in x.joins:
    mov.b32 ${whole}, ${parts[0][0]};
  % for part, at in parts[1:]:
    bfi.b32 ${whole}, ${part}, ${whole}, ${at}, ${x.load_bits};
  % endfor
% endfor
</%def>

<%def name="pack(x, suffix)">
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
% if x.kmajor:
${pack_rows(x, suffix)}\
% else:
${pack_columns(x, suffix)}\
% endif
DONE${suffix}:
</%def>

## 2^chunks threads pack a row: each makes 16 bits of 16 bytes, then the next ones.
<%def name="pack_rows(x, suffix)">
    // thread to row, and to 16 bytes of it
    shl.b32 %block, %block, ${x.LOG2_THREADS};
    add.u32 %thread, %block, %thread;
    shr.u32 %row, %thread, %chunks;
    setp.ge.u32 %p, %row, %rows;
    @%p bra DONE${suffix};
    mov.u32 %tmp0, 1;
    shl.b32 %block, %tmp0, %chunks;
    sub.u32 %tmp0, %block, 1;
    and.b32 %thread, %thread, %tmp0;
    mul.wide.u32 %tmp64, %row, %ld;
    add.u64 %src, %src, %tmp64;
    mad.wide.u32 %src, %thread, 16, %src;
    mul.wide.u32 %tmp64, %row, %pitch;
    mad.lo.u64 %dst, %tmp64, 4, %dst;
    mad.wide.u32 %dst, %thread, 2, %dst;
    // bytes of the row, with those that fill its last words
    add.u32 %row, %depth, ${x.last_padded};
    and.b32 %row, %row, ${-x.padded};
    shl.b32 %k, %thread, 4;
    shl.b32 %block, %block, 4;
    setp.ge.u32 %p, %k, %row;
    @%p bra DONE${suffix};
    .pragma "nounroll";
ROW_LOOP${suffix}:
% for l in x.row_loads[0]:
    add.u32 %tmp0, %k, ${l.first};
    setp.lt.u32 %in, %tmp0, %depth;
  % for register in l.registers:
    mov.b32 ${register}, 0;
  % endfor
    @%in ld.global.nc.${x.load_type} ${l.destination}, [%src+${l.first}];
% endfor
${join(x)}\
    mov.b32 %word, 0;
% for n in reversed(range(4)):
${test(x.bytes[0, n])}\
    // bits 7, 15, 23 and 31 to bits 28 to 31, then into the word
    mul.lo.u32 %tmp0, %tmp0, 0x00204081;
    shf.l.clamp.b32 %word, %tmp0, %word, 4;
% endfor
    st.global.u16 [%dst], %word;
    add.u32 %k, %k, %block;
    cvt.u64.u32 %tmp64, %block;
    add.u64 %src, %src, %tmp64;
    shr.u64 %tmp64, %tmp64, 3;
    add.u64 %dst, %dst, %tmp64;
    setp.lt.u32 %p, %k, %row;
    @%p bra ROW_LOOP${suffix};
</%def>

## A warp packs 32 rows of K: a lane makes the words of four columns. A block has as many words along K as warps.
<%def name="pack_columns(x, suffix)">
    // block to columns and words, lane to four columns
    div.u32 %tmp1, %block, %chunks;
    mul.lo.u32 %tmp0, %tmp1, %chunks;
    sub.u32 %tmp0, %block, %tmp0;
    shr.u32 %word, %thread, 5;
    mad.lo.u32 %word, %tmp1, ${x.WARPS}, %word;
    and.b32 %row, %thread, 31;
    shl.b32 %row, %row, 2;
    mad.lo.u32 %row, %tmp0, ${x.columns}, %row;
    shl.b32 %k, %word, 5;
    add.u32 %tmp0, %depth, ${x.last_padded};
    and.b32 %tmp0, %tmp0, ${-x.padded};
    setp.ge.u32 %p, %k, %tmp0;
    setp.ge.or.u32 %p, %row, %rows, %p;
    @%p bra DONE${suffix};
    max.u32 %left, %depth, %k;
    sub.u32 %left, %left, %k;
    mul.wide.u32 %tmp64, %k, %ld;
    add.u64 %src, %src, %tmp64;
    cvt.u64.u32 %tmp64, %row;
    add.u64 %src, %src, %tmp64;
    cvt.u64.u32 %ld64, %ld;
% for n, first in enumerate(x.pieces):
    add.u32 %tmp0, %row, ${first};
    setp.lt.u32 %in_row${n}, %tmp0, %rows;
% endfor
% for group, rows in enumerate(x.row_groups):
    // rows ${rows[0]} to ${rows[-1]} of K: bits of a byte for each column
  % for row, loads in zip(rows, x.row_loads):
    % for n, l in enumerate(loads):
    setp.gt.and.u32 %in, %left, ${row}, %in_row${n};
      % for register in l.registers:
    mov.b32 ${register}, 0;
      % endfor
    @%in ld.global.nc.${x.load_type} ${l.destination}, [%src+${l.first}];
    % endfor
    add.u64 %src, %src, %ld64;
  % endfor
${join(x)}\
    mov.b32 %bits${group}, 0;
  % for r in range(x.ROWS):
${test(x.bytes[r, 0])}\
    shr.u32 %bits${group}, %bits${group}, 1;
    or.b32 %bits${group}, %bits${group}, %tmp0;
  % endfor
% endfor
    // bytes of the four groups to the word of each column
    prmt.b32 %low0, %bits0, %bits1, 0x5140;
    prmt.b32 %low1, %bits2, %bits3, 0x5140;
    prmt.b32 %high0, %bits0, %bits1, 0x7362;
    prmt.b32 %high1, %bits2, %bits3, 0x7362;
    prmt.b32 %column0, %low0, %low1, 0x5410;
    prmt.b32 %column1, %low0, %low1, 0x7632;
    prmt.b32 %column2, %high0, %high1, 0x5410;
    prmt.b32 %column3, %high0, %high1, 0x7632;
    mul.wide.u32 %tmp64, %row, %pitch;
    mad.lo.u64 %dst, %tmp64, 4, %dst;
    mad.wide.u32 %dst, %word, 4, %dst;
    mul.wide.u32 %ld64, %pitch, 4;
% for n in range(4):
    add.u32 %tmp0, %row, ${n};
    setp.lt.u32 %in, %tmp0, %rows;
    @%in st.global.u32 [%dst], %column${n};
    add.u64 %dst, %dst, %ld64;
% endfor
</%def>
