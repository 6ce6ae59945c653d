## A pair of adjacent sums makes a word of 16 bits. Threads store words to swizzled boxes, because stmatrix takes two words.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="pairs" file="/${context['plan'].c.pairs}"/>
<%def name="setup(s)">
    {
    .reg .b32 %row_addr, %chunk;
    shr.u32 %row_addr, %lane, 2;
    mad.lo.u32 %row_addr, %wg_warp, 16, %row_addr;
${constants.shr("%chunk", "%row_addr", s.swizzle_shift)}\
    and.b32 %chunk, %chunk, ${s.swizzle_mask};
    mad.lo.u32 %row_addr, %row_addr, ${s.span}, %staging;
    mad.lo.u32 %word_row, %chunk, 16, %row_addr;
    and.b32 %tmp0, %lane, 3;
    mad.lo.u32 %word_row, %tmp0, 2, %word_row;
    }
</%def>

## The words of a few columns at a time: without a branch between them, ptxas would interleave all of them, and spill. Those
## past the end of C are not computed.
<%def name="write(s, c)">
% for n, batch in enumerate(c.batches):
    setp.le.s32 %past_end, %subtile_rem, ${batch.column};
    @%past_end bra.uni WRITTEN${c.index}_${n};
  % for chunk, words in batch.chunks:
${constants.xor("%word_addr", "%word_row", chunk)}\
    % for low, high, offset in words:
    mov.f32 %c_val0, ${low};
    mov.f32 %c_val1, ${high};
${pairs.pack("%half0", "%c_val0", "%c_val1", "")}\
    st.shared.b16 [%word_addr+${offset}], %half0;
    % endfor
  % endfor
WRITTEN${c.index}_${n}:
% endfor
</%def>
