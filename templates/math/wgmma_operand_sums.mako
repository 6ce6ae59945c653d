## The elements of rows of A, which is X, are added along K in the tiles with the first columns: X times 8 columns of ones.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="convert" file="/ptx/convert.mako"/>
<%namespace name="wgmma" file="/math/wgmma.mako"/>
<%def name="setup()">
<% low, high = plan.operand_sums.descriptor %>\
    // ones in shared memory, which wgmma reads, and their descriptor
    .reg .b64 %ones_desc;
    add.u32 %tmp0, %smem, ${plan.operand_sums.ones};
    mad.lo.u32 %tmp1, %thread, 4, %tmp0;
    mov.b32 %tmp2, ${plan.operand_sums.word};
    setp.lt.u32 %p, %thread, ${plan.operand_sums.words};
    @%p st.shared.b32 [%tmp1], %tmp2;
    fence.proxy.async.shared::cta;
    // ---- wait: the ones are in shared memory
    bar.sync 1, ${plan.operand_sums.math_threads};
    and.b32 %tmp0, %tmp0, ${f"0x{plan.mainloop.ADDRESS_MASK:x}"};
    shr.u32 %tmp0, %tmp0, 4;
    or.b32 %tmp0, %tmp0, ${low};
    mov.b64 %ones_desc, {%tmp0, ${high}};
</%def>

## A branch ends a group of wgmma: ptxas commits what comes before. These products come first, because a wait for all but the last
## group would otherwise wait for the products of C.
<%def name="multiply(sum)">
    setp.ne.u32 %p, %y0, 0;
    @%p bra.uni ROWS_ADDED;
    wgmma.fence.sync.aligned;
% for s in sum.products:
${wgmma.descriptor("%x_desc", "%x_stage_desc_low", s.x, plan.x)}\
    wgmma.mma_async.sync.aligned.${plan.mainloop.instruction_of_ones} ${plan.mainloop.row_sums[s.mi, :]}, %x_desc, %ones_desc, ${s.scale_d}${plan.mainloop.immediates_of_ones};
% endfor
ROWS_ADDED:
</%def>

## The same with X from registers, in K step k.
<%def name="multiply_fragments(k)">
    setp.ne.u32 %p, %y0, 0;
    @%p bra.uni ROWS_ADDED${k};
    wgmma.fence.sync.aligned;
% for s in plan.mainloop.step_products[k]:
    wgmma.mma_async.sync.aligned.${plan.mainloop.instruction_of_ones} ${plan.mainloop.row_sums[s.mi, :]}, ${plan.mainloop.fragments.operands[k][s.mi]}, %ones_desc, ${s.scale_d}${plan.mainloop.immediates_of_ones};
% endfor
ROWS_ADDED${k}:
</%def>

## Adds the sums to the array: other blocks may have other parts of K. The first of four lanes with the same row does so.
<%def name="store()">
    {
    .reg .b64 %sums_addr;
    .reg .b32 %sum_row;
    .reg .pred %adds, %in_rows;
    // ---- sums of rows of A
    and.b32 %tmp0, %lane, 3;
    setp.eq.u32 %adds, %tmp0, 0;
    setp.eq.and.u32 %adds, %y0, 0, %adds;
    ld.param.u64 %sums_addr, [a_sums];
    cvta.to.global.u64 %sums_addr, %sums_addr;
${constants.mad("%sum_row", "%wg", plan.mainloop.wg_rows, "%x0")}\
${convert.add_thread_terms("%sum_row", "%wg_thread", plan.mainloop.row_terms)}\
    mad.wide.u32 %sums_addr, %sum_row, 4, %sums_addr;
% for row, r in plan.operand_sums.rows:
    add.u32 %tmp0, %sum_row, ${row};
    setp.lt.and.u32 %in_rows, %tmp0, %M, %adds;
    @%in_rows red.global.add.f32 [%sums_addr+${plan.operand_sums.offsets[row]}], ${r};
% endfor
    }
</%def>
