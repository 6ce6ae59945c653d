## Pairs of sums are packed to words of two elements of C, which stmatrix writes to swizzled boxes.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="sums" file="/${context['plan'].epilogue.column_sums}"/>
<%namespace name="fused_ops" file="/${context['plan'].fused_ops.template}"/>
<%def name="setup(s)">
    {
    .reg .b32 %row_addr, %chunk;
% if s.transposed:
    // C is contiguous along X: pairs of matrices are neighbours along X, then along Y
    shr.u32 %chunk, %lane, 3;
    and.b32 %chunk, %chunk, 1;
    mad.lo.u32 %chunk, %wg_warp, 2, %chunk;
    and.b32 %tmp0, %lane, 7;
    xor.b32 %chunk, %chunk, %tmp0;
    shr.u32 %row_addr, %lane, 4;
    mad.lo.u32 %row_addr, %row_addr, 8, %tmp0;
% else:
    and.b32 %row_addr, %lane, 15;
    mad.lo.u32 %row_addr, %wg_warp, 16, %row_addr;
${constants.shr("%chunk", "%row_addr", s.swizzle_shift)}\
    shr.u32 %tmp0, %lane, 4;
    xor.b32 %chunk, %chunk, %tmp0;
    and.b32 %chunk, %chunk, ${s.swizzle_mask};
% endif
    mad.lo.u32 %row_addr, %row_addr, ${s.span}, %staging;
% for v, chunk in enumerate(s.variant_chunks):
${constants.xor("%tmp0", "%chunk", chunk)}\
    mad.lo.u32 %stmatrix_row${v}, %tmp0, 16, %row_addr;
% endfor
    }
</%def>

<%def name="write(s, c)">
% for p, stmatrix in enumerate(c.stmatrices):
${fused_ops.activate(stmatrix, f"PACK{c.index}_{p}")}\
${sums.add(c, p)}\
${pack(s, stmatrix, plan.epilogue.has_activation)}\
% endfor
</%def>

## The sums, before an activation.
<%def name="write_sums(s, c)">
% for stmatrix in c.stmatrices:
${pack(s, stmatrix, False)}\
% endfor
</%def>

<%def name="pack(s, stmatrix, activated)">
% for n, (low, high) in enumerate(plan.epilogue.results(stmatrix, activated)):
    cvt.rn.${plan.problem.out}x2.f32 %word${n}, ${high}, ${low};
% endfor
    stmatrix.sync.aligned.m8n8.x${len(stmatrix.registers)}${s.trans}.shared.b16 [%stmatrix_row${stmatrix.variant}+${stmatrix.offset}], ${stmatrix.words};
</%def>
