## The products of a stage by wgmma with X from registers: images, K-major, from the first pixel that a tile's tap reads. The
## fragments of a K step are loaded while the previous step's products run.
<%namespace name="smem" file="/math/wgmma.mako"/>
<%namespace name="rs" file="/math/wgmma_rs.mako"/>
<%def name="setup()">
<% f = plan.mainloop.shifted_fragments %>\
${smem.y_setup()}\
    // this thread's addresses of words in stage 0: of the chunks of a line, then of the last chunk of its rows${"; the same of the next words" if f.words > 1 else ""}
    .reg .b32 %frag_ptr<${f.words * f.bases}>;
    ${f.tile.declaration}
% if f.words > 1:
    // whether pixels begin in the middle of a word
    .reg .pred %odd;
    ${f.next_words.declaration}
% endif
</%def>

## The addresses of a tile: its tap decides how many elements of the first chunk precede the first pixel.
<%def name="begin()">
<% m, f = plan.mainloop, plan.mainloop.shifted_fragments %>\
    {
    .reg .b32 %shift, %divisor, %row, %swizzle, %word, %next_chunk, %chunk, %line, %end;
    .reg .pred %next;
    ld.param.u32 %divisor, [channels];
    div.u32 %shift, %x0, %divisor;
% if len(plan.loads.axes) > 1:
    ld.param.u32 %divisor, [taps0];
    rem.u32 %shift, %shift, %divisor;
% endif
    ld.param.u32 %divisor, [dilation0];
    ld.param.u32 %tmp0, [lower_corner0];
    mad.lo.u32 %shift, %shift, %divisor, %tmp0;
    and.b32 %shift, %shift, ${16 // f.element - 1};
% if f.words > 1:
    and.b32 %tmp0, %shift, 1;
    setp.ne.u32 %odd, %tmp0, 0;
    shr.u32 %shift, %shift, 1;
% endif
    // this thread's first row, and where its line, and its chunk past the end, begin
    shr.u32 %swizzle, %lane, 2;
    mad.lo.u32 %row, %wg_warp, 16, %swizzle;
% if m.wg_rows:
    mad.lo.u32 %row, %wg, ${m.wg_rows}, %row;
% endif
    mad.lo.u32 %line, %row, ${f.span}, %smem;
    mad.lo.u32 %end, %row, 16, %smem;
    add.u32 %end, %end, ${f.end};
% if f.swizzle_shift:
    shr.u32 %swizzle, %swizzle, ${f.swizzle_shift};
% endif
    and.b32 %word, %lane, 3;
    add.u32 %word, %word, %shift;
% for n in range(f.words):
% if n:
    add.u32 %word, %word, 1;
% endif
    shr.u32 %next_chunk, %word, 2;
    setp.ne.u32 %next, %next_chunk, 0;
    and.b32 %tmp0, %word, 3;
    shl.b32 %tmp0, %tmp0, 2;
    add.u32 %tmp1, %line, %tmp0;
    add.u32 %tmp2, %end, %tmp0;
% for chunk in range(f.line_chunks - 1):
    add.u32 %chunk, %next_chunk, ${chunk};
    xor.b32 %chunk, %chunk, %swizzle;
    mad.lo.u32 %frag_ptr${n * f.bases + chunk}, %chunk, 16, %tmp1;
% endfor
    xor.b32 %chunk, %swizzle, ${f.line_chunks - 1};
    mad.lo.u32 %chunk, %chunk, 16, %tmp1;
    mad.lo.u32 %tmp0, %swizzle, 16, %tmp1;
    add.u32 %tmp0, %tmp0, ${f.block_bytes};
    selp.b32 %frag_ptr${n * f.bases + f.line_chunks - 1}, %tmp0, %chunk, %next;
% for row in f.rows:
    add.u32 %tmp0, %chunk, ${f.block_bytes * (f.chunks // f.line_chunks - 1) + f.row(row) * f.span};
    add.u32 %tmp1, %tmp2, ${f.row(row) * 16};
    selp.b32 %frag_ptr${n * f.bases + f.line_chunks + row}, %tmp1, %tmp0, %next;
% endfor
% endfor
    }
</%def>

<%def name="multiply(pipeline)">
<% m, f = plan.mainloop, plan.mainloop.shifted_fragments %>\
    {
    .reg .b32 %frag_addr<${f.words * f.bases}>, %stage_start, %y_stage_desc_low, %desc_low;
    .reg .b64 %y_desc;
    mul.lo.u32 %stage_start, %stage, ${m.stage_bytes};
% for n in range(f.words * f.bases):
    add.u32 %frag_addr${n}, %frag_ptr${n}, %stage_start;
% endfor
    // this stage: the descriptor of Y in units of 16 bytes
    shr.u32 %desc_low, %stage_start, 4;
    add.u32 %y_stage_desc_low, %y_desc_low, %desc_low;
% for k in range(f.k_steps):
    // ---- K step ${k}; wait: the products of the step before the previous one, which frees the registers of the fragments
    wgmma.wait_group.sync.aligned 1;
% if k == 1:
${pipeline.free_previous()}\
% endif
% for x in f.loads(k, 0):
    ld.shared.b32 ${x.register}, [%frag_addr${x.base}+${plan.x.base + x.offset}];
% endfor
% if f.words > 1:
% for x in f.loads(k, 1):
    @%odd ld.shared.b32 ${x.register}, [%frag_addr${x.base}+${plan.x.base + x.offset}];
% endfor
% for register, next_word in f.joins(k):
    @%odd prmt.b32 ${register}, ${register}, ${next_word}, 0x5432;
% endfor
% endif
    wgmma.fence.sync.aligned;
% for s in m.products[k * m.mi : (k + 1) * m.mi]:
${smem.descriptor("%y_desc", "%y_stage_desc_low", s.y, plan.y)}\
    wgmma.mma_async.sync.aligned.${m.instruction} ${m.wgmma_acc.vector(s.mi, 0, n=m.wgmma_acc.shape[1])}, ${f.operand(k, s.mi)}, %y_desc, ${s.scale_d}${m.immediates};
% endfor
    wgmma.commit_group.sync.aligned;
% endfor
    }
</%def>

<%def name="end_iteration(pipeline)">
${rs.end_iteration(pipeline)}\
</%def>

<%def name="widen()">
${smem.widen()}\
</%def>
<%def name="convert()">
${smem.convert()}\
</%def>
