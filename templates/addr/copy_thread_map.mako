## The first element (mn, k) of an operand's tile that a thread copies, and its byte offset in the stage.
## ``pointers``: further 64-bit registers that the addressing declares.
<%def name="setup(x, pointers)">
    .reg .b32 %mn_${x.name}, %k_${x.name}, %smem_off_${x.name};
    .reg .b64 ${pointers};
${first(x)}\
    mad.lo.u32 %smem_off_${x.name}, %smem_off_${x.name}, ${x.bytes}, ${x.base};
% for offset, swizzle in x.swizzled_offsets:
    .reg .b32 ${offset};
    xor.b32 ${offset}, %smem_off_${x.name}, ${swizzle};
% endfor
% if x.last_copies:
    .reg .pred %has_copy_${x.name}, %issue_${x.name};
    setp.lt.u32 %has_copy_${x.name}, %thread, ${x.last_copies};
% endif
% for oob in x.oob_predicates if plan.mainloop.predicated else ():
    .reg .pred ${oob};
% endfor
</%def>

## %issue: ``guard`` for the threads that have the last load; the others idle where threads do not divide the tile's vectors.
<%def name="copy_guard(x, guard)">
% if x.last_copies:
    and.pred %issue_${x.name}, ${guard}, %has_copy_${x.name};
% endif
</%def>

<%def name="first(x)">
% if x.swizzled:
${swizzled(x, *x.row_axes)}\
% elif x.kmajor_smem:
    // lanes along K; 16-byte chunk q of row mn is stored at chunk q ^ (mn >> ${x.swizzle_shift})
    shr.u32 %mn_${x.name}, %thread, ${x.log2_across};
    and.b32 %k_${x.name}, %thread, ${x.across_mask};
    mul.lo.u32 %k_${x.name}, %k_${x.name}, ${x.vec};
    shr.u32 %tmp0, %mn_${x.name}, ${x.swizzle_shift};
    shr.u32 %tmp1, %k_${x.name}, ${x.log2_chunk};
    xor.b32 %tmp0, %tmp0, %tmp1;
    and.b32 %tmp0, %tmp0, ${x.swizzle_mask};
    mad.lo.u32 %tmp0, %mn_${x.name}, ${x.swizzle_q}, %tmp0;
    and.b32 %tmp1, %k_${x.name}, ${x.chunk_mask};
    mad.lo.u32 %smem_off_${x.name}, %tmp0, ${x.chunk}, %tmp1;
% elif x.transposed:
    // lanes along K read whole sectors, and store down a column
    and.b32 %k_${x.name}, %thread, ${x.across_mask};
    shr.u32 %tmp0, %thread, ${x.log2_across};
    and.b32 %mn_${x.name}, %tmp0, ${x.tile_mask};
    shr.u32 %tmp0, %tmp0, ${x.log2_tile};
    mad.lo.u32 %k_${x.name}, %tmp0, ${x.across}, %k_${x.name};
    mul.lo.u32 %k_${x.name}, %k_${x.name}, ${x.vec};
    mad.lo.u32 %smem_off_${x.name}, %k_${x.name}, ${x.row}, %mn_${x.name};
% else:
    // lanes along ${x.extent}
    and.b32 %mn_${x.name}, %thread, ${x.across_mask};
    mul.lo.u32 %mn_${x.name}, %mn_${x.name}, ${x.vec};
    shr.u32 %k_${x.name}, %thread, ${x.log2_across};
  % for line in x.thread_runs:
    ${line}
  % endfor
    mad.lo.u32 %smem_off_${x.name}, %k_${x.name}, ${x.row}, %mn_${x.name};
% endif
</%def>

## Lanes along a row; the swizzle XORs its 16-byte chunks with bits of the row.
<%def name="swizzled(x, row, column)">
    // lanes along ${x.along}; swizzle: 16-byte chunks XORed with bits of the row
    shr.u32 %${row}_${x.name}, %thread, ${x.log2_across};
    and.b32 %${column}_${x.name}, %thread, ${x.across_mask};
    mul.lo.u32 %${column}_${x.name}, %${column}_${x.name}, ${x.vec};
    mov.b32 %tmp1, %${column}_${x.name};
% for instruction, bits, mask in x.key_shifts:
    ${instruction} %tmp0, %${row}_${x.name}, ${bits};
    and.b32 %tmp0, %tmp0, ${mask};
    shl.b32 %tmp0, %tmp0, ${x.log2_chunk};
    xor.b32 %tmp1, %tmp1, %tmp0;
% endfor
    mad.lo.u32 %smem_off_${x.name}, %${row}_${x.name}, ${x.row}, %tmp1;
</%def>
