## Products of a stage by wgmma, whose operands are read from shared memory by descriptors.
<%namespace name="halves" file="/ptx/convert.mako"/>
<%namespace name="brought" file="/${context['plan'].brought}"/>
<%def name="setup()">
    // descriptors of stage 0, low words: address / 16 (a cluster's rank lies above its bits) and the leading offset
    mad.lo.u32 %x_low, %wg, ${plan.x_part}, %smem;
    and.b32 %x_low, %x_low, ${plan.ADDRESS_MASK};
    shr.u32 %x_low, %x_low, 4;
    or.b32 %x_low, %x_low, ${plan.x.low};
${y_setup()}\
${brought.setup()}\
</%def>

<%def name="y_setup()">
    add.u32 %y_low, %smem, ${plan.y.base};
    and.b32 %y_low, %y_low, ${plan.ADDRESS_MASK};
    shr.u32 %y_low, %y_low, 4;
    or.b32 %y_low, %y_low, ${plan.y.low};
</%def>

<%def name="multiply(ring)">
${brought.settle()}\
    {
    .reg .b32 %x_at, %y_at, %low;
    .reg .b64 %x_desc, %y_desc;
    mul.lo.u32 %low, %stage, ${plan.stage_bytes // 16};
    add.u32 %x_at, %x_low, ${plan.x.stage};
    add.u32 %y_at, %y_low, ${plan.y.stage};
    wgmma.fence.sync.aligned;
% for s in plan.products:
    add.u32 %low, %x_at, ${s.x};
    mov.b64 %x_desc, {%low, ${plan.x.high}};
    add.u32 %low, %y_at, ${s.y};
    mov.b64 %y_desc, {%low, ${plan.y.high}};
    wgmma.mma_async.sync.aligned.${plan.instruction} ${plan.into.vector(s.mi, 0, n=plan.into.shape[1])}, %x_desc, %y_desc, ${s.adds}${plan.modes};
% endfor
    wgmma.commit_group.sync.aligned;
    }
</%def>

## Sums of f16 come in pairs.
<%def name="widen()">
% if plan.packed:
    {
    .reg .b16 %half<2>;
% for n, word in enumerate(plan.into.all):
${halves.widen_pair("f16", plan.acc.all[2 * n], plan.acc.all[2 * n + 1], word, ("%half0", "%half1"))}\
% endfor
    }
% endif
</%def>

## Finished sums, in the type of what follows.
<%def name="convert()">
% if plan.s32_to_f32:
% for r in plan.final.all:
    cvt.rn.${plan.epilogue_type}.s32 ${r}, ${r};
% endfor
% endif
</%def>
