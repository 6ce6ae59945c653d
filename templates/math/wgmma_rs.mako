## The products of a stage by wgmma with X from registers: the fragments of a K step are loaded while the previous step's
## products run.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="smem" file="/math/wgmma.mako"/>
<%namespace name="bits" file="/ptx/convert.mako"/>
<%namespace name="operand_sums" file="/${context['plan'].operand_sums.template}"/>
<%namespace name="promotion" file="/${context['plan'].mainloop.accumulate}"/>
<%def name="setup()">
<% m, f = plan.mainloop, plan.mainloop.fragments %>\
${smem.y_setup()}\
    // this thread's addresses of X in stage 0
    .reg .b32 %frag_ptr<${f.bases}>;
    ${f.tile.declaration}
% if f.pairs:
    ${f.pairs.declaration}
    .reg .b32 %selector0, %selector1;
% endif
    {
    .reg .b32 %row, %k;
${constants.mad("%frag_ptr0", "%wg", m.x_wg_bytes, "%smem")}\
% if f.words:
    // a load reads a pair of neighbours along X, at K = lane mod 4, or 4 further on
    mov.u32 %row, 0;
${bits.add_thread_terms("%row", "%wg_thread", m.row_terms)}\
    shr.u32 %tmp0, %row, 5;
    mad.lo.u32 %frag_ptr0, %tmp0, ${f.box_bytes}, %frag_ptr0;
    and.b32 %k, %wg_thread, 3;
    mad.lo.u32 %frag_ptr0, %k, ${f.span}, %frag_ptr0;
    and.b32 %row, %row, 31;
    shl.b32 %row, %row, 2;
    shl.b32 %k, %k, 4;
    xor.b32 %row, %row, %k;
    add.u32 %frag_ptr0, %frag_ptr0, %row;
    xor.b32 %frag_ptr1, %frag_ptr0, 64;
    add.u32 %frag_ptr1, %frag_ptr1, ${f.second_offset};
% else:
    // ldmatrix loads pairs of neighbours along X, of two K a register; the order of the lanes' rows avoids bank conflicts
    shr.u32 %tmp0, %lane, 1;
    xor.b32 %tmp0, %tmp0, %lane;
    shr.u32 %tmp0, %tmp0, 2;
    and.b32 %tmp0, %tmp0, 1;
    shl.b32 %k, %tmp0, 1;
    and.b32 %tmp0, %lane, 1;
    add.u32 %k, %k, %tmp0;
    and.b32 %tmp0, %lane, 6;
    mad.lo.u32 %k, %tmp0, 2, %k;
    and.b32 %tmp0, %lane, 16;
    add.u32 %k, %k, %tmp0;
    mad.lo.u32 %frag_ptr0, %k, ${f.span}, %frag_ptr0;
    shr.u32 %k, %k, 1;
    and.b32 %k, %k, 3;
    xor.b32 %k, %k, %wg_warp;
    mad.lo.u32 %frag_ptr0, %k, 16, %frag_ptr0;
    and.b32 %tmp0, %lane, 2;
    setp.eq.u32 %p, %tmp0, 0;
    selp.b32 %selector0, 0x6420, 0x2064, %p;
    add.u32 %selector1, %selector0, 0x1111;
% endif
    }
</%def>

<%def name="multiply(pipeline)">
<% m, f = plan.mainloop, plan.mainloop.fragments %>\
    {
    .reg .b32 %frag_addr<${f.bases}>, %y_stage_desc_low, %desc_low;
    .reg .b64 %y_desc;
% for n in range(f.bases):
    mad.lo.u32 %frag_addr${n}, %stage, ${m.stage_bytes}, %frag_ptr${n};
% endfor
    // this stage: addresses of X, descriptor of Y in units of 16 bytes
    mul.lo.u32 %desc_low, %stage, ${m.stage_units};
    add.u32 %y_stage_desc_low, %y_desc_low, %desc_low;
% for k in range(f.k_steps):
    // ---- K step ${k}; wait: the products of the step before the previous one, which frees the registers of the fragments
    wgmma.wait_group.sync.aligned 1;
  % if k == 1 and not m.promotes:
${pipeline.free_previous()}\
  % endif
  % for x in f.loads(k):
    % if f.words:
    ld.shared.v2.b32 ${x.registers}, [%frag_addr${x.base}+${x.offset}];
    % else:
    ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 ${x.registers}, [%frag_addr${x.base}+${x.offset}];
    % endif
  % endfor
  % for to, low, high, row in f.permutes(k):
    prmt.b32 ${to}, ${low}, ${high}, %selector${row};
  % endfor
${operand_sums.multiply_fragments(k)}\
    wgmma.fence.sync.aligned;
  % for s in m.step_products[k]:
${smem.descriptor("%y_desc", "%y_stage_desc_low", s.y, plan.y)}\
    wgmma.mma_async.sync.aligned.${m.instruction} ${m.wgmma_acc[s.mi, :]}, ${f.operands[k][s.mi]}, %y_desc, ${s.scale_d}${m.immediates};
  % endfor
    wgmma.commit_group.sync.aligned;
  % if m.ends_sum(k):
${promotion.promote(m.complete_sums)}\
  % endif
% endfor
    }
</%def>

<%def name="widen()">
${smem.widen()}\
</%def>
<%def name="convert()">
${smem.convert()}\
</%def>
