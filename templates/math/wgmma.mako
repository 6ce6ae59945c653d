## The products of a stage by wgmma, which reads both operands from shared memory through descriptors.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="halves" file="/ptx/convert.mako"/>
<%namespace name="operand_sums" file="/${context['plan'].operand_sums.template}"/>
<%namespace name="promotion" file="/${context['plan'].mainloop.accumulate}"/>
<%namespace name="realign" file="/${context['plan'].mainloop.realign.template}"/>
<%def name="setup()">
    // descriptors of stage 0. Low word: address / 16 (bits 0-13; a cluster's rank is above), leading offset / 16 (16-29);
    // high word: stride / 16 (bits 0-13), swizzle (30-31)
    // X = ${plan.x.name.upper()}. ${plan.x.desc_fields}
${constants.mad("%x_desc_low", "%wg", plan.mainloop.x_wg_bytes, "%smem")}\
    and.b32 %x_desc_low, %x_desc_low, ${f"0x{plan.mainloop.ADDRESS_MASK:x}"};
    shr.u32 %x_desc_low, %x_desc_low, 4;
    or.b32 %x_desc_low, %x_desc_low, ${plan.x.desc_low_hex};
${y_setup()}\
${realign.setup()}\
</%def>

<%def name="y_setup()">
    // Y = ${plan.y.name.upper()}. ${plan.y.desc_fields}
    add.u32 %y_desc_low, %smem, ${plan.y.base};
    and.b32 %y_desc_low, %y_desc_low, ${f"0x{plan.mainloop.ADDRESS_MASK:x}"};
    shr.u32 %y_desc_low, %y_desc_low, 4;
    or.b32 %y_desc_low, %y_desc_low, ${plan.y.desc_low_hex};
</%def>

<%def name="multiply(pipeline)">
<% m = plan.mainloop %>\
${realign.realign()}\
    // ${len(m.products)} products; descriptors advance in units of 16 bytes
    {
    .reg .b32 %x_stage_desc_low, %y_stage_desc_low, %desc_low, %stage_offset;
    .reg .b64 %x_desc, %y_desc;
    mul.lo.u32 %stage_offset, %stage, ${m.stage_units};
    add.u32 %x_stage_desc_low, %x_desc_low, ${plan.x.stage_register};
    add.u32 %y_stage_desc_low, %y_desc_low, ${plan.y.stage_register};
% for sum in m.stage_sums:
${operand_sums.multiply(sum)}\
    wgmma.fence.sync.aligned;
  % for s in sum.products:
${descriptor("%x_desc", "%x_stage_desc_low", s.x, plan.x)}\
${descriptor("%y_desc", "%y_stage_desc_low", s.y, plan.y)}\
    wgmma.mma_async.sync.aligned.${m.instruction} ${sum.registers[s.mi, :]}, %x_desc, %y_desc, ${s.scale_d}${m.immediates};
  % endfor
    wgmma.commit_group.sync.aligned;
${promotion.promote(sum.complete)}\
% endfor
    }
</%def>

<%def name="descriptor(to, low, offset, x)">
% if offset:
    add.u32 %desc_low, ${low}, ${offset};
    mov.b64 ${to}, {%desc_low, ${x.desc_high_hex}};
% else:
    mov.b64 ${to}, {${low}, ${x.desc_high_hex}};
% endif
</%def>

## f16 sums are in pairs.
<%def name="widen()">
% if plan.mainloop.f16_pairs:
    // f16 sums to f32
    {
    .reg .b16 %half<2>;
  % for word, low, high in zip(plan.mainloop.wgmma_acc.all, plan.mainloop.acc.all[::2], plan.mainloop.acc.all[1::2]):
${halves.widen_pair("f16", low, high, word, ("%half0", "%half1"))}\
  % endfor
    }
% endif
</%def>

## Finished sums to the type of the epilogue.
<%def name="convert()">
% if plan.arithmetic.s32_to_f32:
  % for r in plan.fixup.sums.all:
    cvt.rn.${plan.arithmetic.type}.s32 ${r}, ${r};
  % endfor
% endif
</%def>
