## The products of a stage by wgmma with X from registers: the weights of a K step are dequantized while the previous step's
## products run.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="smem" file="/math/wgmma.mako"/>
<%namespace name="bits" file="/ptx/convert.mako"/>
<%namespace name="dequantize" file="/${context['plan'].mainloop.fragments.dequantizer.template}"/>
<%namespace name="scales" file="/${context['plan'].scales.template}"/>
<%namespace name="promotion" file="/${context['plan'].mainloop.accumulate}"/>
<%def name="setup()">
<% m, f = plan.mainloop, plan.mainloop.fragments %>\
${smem.y_setup()}\
    // this thread's address of X in stage 0: its first row, the word of its pair, the swizzle of the row
    .reg .b32 %frag_ptr, %weight_selector;
    ${f.tile.declaration}
    ${f.raw.declaration}
${dequantize.registers(f.dequantizer)}\
    {
    .reg .b32 %row, %pair;
${constants.mad("%frag_ptr", "%wg", m.x_wg_bytes, "%smem")}\
    mov.u32 %row, 0;
${bits.add_thread_terms("%row", "%wg_thread", m.row_terms)}\
    mad.lo.u32 %frag_ptr, %row, ${f.span}, %frag_ptr;
% if f.swizzle_mask:
${constants.shr("%row", "%row", f.swizzle_shift)}\
    and.b32 %row, %row, ${f.swizzle_mask};
    mad.lo.u32 %frag_ptr, %row, 16, %frag_ptr;
% endif
    // the pair of a word, and the word of 8 elements of K
    and.b32 %pair, %lane, 3;
    shr.u32 %row, %pair, ${f.log2_pairs};
    mad.lo.u32 %frag_ptr, %row, 4, %frag_ptr;
    and.b32 %pair, %pair, ${f.last_pair};
    mad.lo.u32 %weight_selector, %pair, ${f.dequantizer.selector_step}, ${f.dequantizer.first_selector};
    }
</%def>

<%def name="multiply(pipeline)">
<% m, f = plan.mainloop, plan.mainloop.fragments %>\
    {
    .reg .b32 %frag_addr, %chunk_addr, %y_stage_desc_low, %desc_low;
    .reg .b64 %y_desc;
    mad.lo.u32 %frag_addr, %stage, ${m.stage_bytes}, %frag_ptr;
    // this stage: descriptor of Y in units of 16 bytes
    mul.lo.u32 %desc_low, %stage, ${m.stage_units};
    add.u32 %y_stage_desc_low, %y_desc_low, %desc_low;
${load(f.first_chunk)}\
% for step in plan.weight_steps:
  % if step.begins_group:
${scales.begin_zero_points()}\
  % endif
    // ---- K step ${step.k}; wait: the products of the step before the previous one, which frees the registers of the fragments
    wgmma.wait_group.sync.aligned 1;
  % if step.frees_previous:
${pipeline.free_previous()}\
  % endif
  % for x in step.dequantized:
${dequantize.word(f.dequantizer, x.to, x.word, x.offsets)}\
${scales.scale_weights(x)}\
  % endfor
  % for chunk in step.chunks:
${load(chunk)}\
  % endfor
  % for sums in step.complete:
${promotion.promote(sums)}\
  % endfor
  % if step.begins_group:
${scales.begin_scales()}\
  % endif
    wgmma.fence.sync.aligned;
  % for s in step.products:
${smem.descriptor("%y_desc", "%y_stage_desc_low", s.y, plan.y)}\
    wgmma.mma_async.sync.aligned.${m.instruction} ${m.wgmma_acc[s.mi, :]}, ${step.operands[s.mi]}, %y_desc, ${s.scale_d}${m.immediates};
  % endfor
    wgmma.commit_group.sync.aligned;
% endfor
    }
</%def>

<%def name="load(chunk)">
${constants.xor("%chunk_addr", "%frag_addr", chunk.flip)}\
% for x in chunk.loads:
    ld.shared.${x.suffix} ${x.registers}, [%chunk_addr+${x.offset}];
% endfor
</%def>

<%def name="widen()">
% if not plan.scales.grouped:
    // the sums times the scales of their rows
${scales.scale_rows()}\
% endif
</%def>
<%def name="convert()">
${smem.convert()}\
</%def>
