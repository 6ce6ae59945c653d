## Row stores of a tile: the addresses of a thread, and the ends of rows.
## Registers of a segment: %rows_rem: rows inside C; %columns_left: elements of a row inside C; %c_first_addr: the address of its first
## element.
## Registers of the warp's row %row (its next row is four rows on): %c_addr: the row's address in C; %row_step: bytes to the next row. In
## shared memory: %word_addr: this thread's word of the row; %next_word_addr: the word after it; %last_word_addr,
## %last_next_word_addr: the same for the last 64 elements. The swizzle inverts a bit in every other row, so there are two
## registers of each address.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%def name="addresses(s, segment, base)">
<% k = s.rows %>\
    .reg .b64 %c_addr, %c_first_addr, %row_step;
    .reg .b32 %row, %column, %smem_addr, %swizzle, %rows_rem, %columns_left, %round, ${k.address_registers};
${constants.add("%tmp0", k.row, segment.row)}\
    sub.s32 %rows_rem, %M, %tmp0;
    min.s32 %rows_rem, %rows_rem, ${k.count};
${constants.add("%tmp1", k.column, segment.column)}\
    sub.s32 %columns_left, %N, %tmp1;
    max.s32 %columns_left, %columns_left, 0;
    min.s32 %columns_left, %columns_left, ${k.width};
    mul.wide.u32 %c_first_addr, %tmp0, %ldc;
    cvt.u64.u32 %tmp64, %tmp1;
    add.u64 %c_first_addr, %c_first_addr, %tmp64;
    mad.lo.u64 %c_first_addr, %c_first_addr, 2, ${base};
    mov.u32 %row, %wg_warp;
    mul.wide.u32 %c_addr, %row, %ldc;
    mad.lo.u64 %c_addr, %c_addr, 2, %c_first_addr;
    mul.wide.u32 %row_step, %ldc, 8;
    mad.lo.u32 %smem_addr, %row, ${s.span}, %staging;
    shr.u32 %swizzle, %row, ${s.swizzle_shift};
    and.b32 %swizzle, %swizzle, ${s.swizzle_mask};
    shl.b32 %swizzle, %swizzle, 4;
    add.u32 %column, %lane, 1;
${word_address(s, "%word_addr", "%lane")}\
${word_address(s, "%next_word_addr", "%column")}\
    // the last part of a row may have fewer words than a warp
% if "last_word_addr" in k.addresses:
    setp.lt.u32 %p, %lane, ${k.last_words};
    selp.b32 %tmp1, %lane, 0, %p;
${word_address(s, "%last_word_addr", "%tmp1")}\
% endif
    setp.lt.u32 %p, %column, ${k.last_words};
    selp.b32 %tmp1, %column, 0, %p;
${word_address(s, "%last_next_word_addr", "%tmp1")}\
    mov.u32 %round, 0;
</%def>

## The addresses of word ``q`` of this warp's first row, and of its second row.
<%def name="word_address(s, into, q)">
    shr.u32 %tmp0, ${q}, ${s.rows.log2_words};
    mad.lo.u32 ${into}0, %tmp0, ${s.rows.box_bytes}, %smem_addr;
    and.b32 %tmp0, ${q}, ${s.rows.word_mask};
    shl.b32 %tmp0, %tmp0, 2;
    xor.b32 %tmp0, %tmp0, %swizzle;
    add.u32 ${into}0, ${into}0, %tmp0;
    xor.b32 ${into}1, ${into}0, ${s.rows.swizzle};
</%def>

## The warp's next rows.
<%def name="next_rows(s, label)">
<% k = s.rows %>\
    add.u32 %row, %row, ${k.step_rows};
% for r in k.addresses:
    add.u32 %${r}0, %${r}0, ${k.step_bytes};
    add.u32 %${r}1, %${r}1, ${k.step_bytes};
% endfor
    add.u32 %round, %round, 1;
    setp.lt.u32 %p, %round, ${k.iterations};
    @%p bra.uni ${label};
</%def>

## The element before a row's words, and the one after them: two threads per row.
<%def name="tails(s, segment, label)">
<% k = s.rows %>\
    {
    .reg .b16 %elem16;
    .reg .pred %has_tail, %is_last;
    and.b32 %tmp0, %lane, 1;
    setp.ne.u32 %is_last, %tmp0, 0;
    sub.u32 %tmp1, %columns_left, %head;
    and.b32 %tmp1, %tmp1, 1;
    selp.b32 %tmp1, %tmp1, %head, %is_last;
    setp.ne.u32 %has_tail, %tmp1, 0;
    setp.gt.and.s32 %has_tail, %columns_left, 0, %has_tail;
    sub.u32 %column, %columns_left, 1;
    selp.b32 %column, %column, 0, %is_last;
    shr.u32 %row, %lane, 1;
    mad.lo.u32 %row, %row, 4, %wg_warp;
% for first in range(0, k.count, 64):
  % if first:
    add.u32 %row, %row, 64;
  % endif
    setp.lt.and.s32 %p, %row, %rows_rem, %has_tail;
    @!%p bra TAIL${label}_${first};
    mul.wide.u32 %c_addr, %row, %ldc;
    cvt.u64.u32 %tmp64, %column;
    add.u64 %c_addr, %c_addr, %tmp64;
    mad.lo.u64 %c_addr, %c_addr, 2, %c_first_addr;
    mad.lo.u32 %smem_addr, %row, ${s.span}, %staging;
    shr.u32 %tmp0, %column, ${k.log2_elements};
    mad.lo.u32 %smem_addr, %tmp0, ${k.box_bytes}, %smem_addr;
    shr.u32 %swizzle, %row, ${s.swizzle_shift};
    shr.u32 %tmp0, %column, 3;
    xor.b32 %tmp0, %tmp0, %swizzle;
    and.b32 %tmp0, %tmp0, ${s.swizzle_mask};
    mad.lo.u32 %smem_addr, %tmp0, 16, %smem_addr;
    and.b32 %tmp0, %column, 7;
    mad.lo.u32 %smem_addr, %tmp0, 2, %smem_addr;
    ld.shared.b16 %elem16, [%smem_addr+${segment.offset}];
    st.global.b16 [%c_addr], %elem16;
TAIL${label}_${first}:
% endfor
    }
</%def>
