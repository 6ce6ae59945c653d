## wgmma truncates the terms of long sums, so it sums parts of K only; add.f32 adds these sums to the totals. While one
## warpgroup adds, the other one multiplies.
<%def name="begin()">
% for r in plan.mainloop.acc.all:
    mov.${plan.arithmetic.type} ${r}, ${plan.arithmetic.zero};
% endfor
</%def>

<%def name="add()">
% for r, part in zip(plan.mainloop.acc.all, plan.mainloop.wgmma_acc.all):
    ${plan.arithmetic.add} ${r}, ${r}, ${part};
% endfor
</%def>

## Adds the sum of the last products to the total.
<%def name="promote()">
    // ---- wait: these products are complete; add their sums to the totals
    wgmma.wait_group.sync.aligned 0;
${add()}\
</%def>

<%def name="end_iteration(pipeline)">
    // ---- wait: the products of this iteration are complete
    wgmma.wait_group.sync.aligned 0;
    mov.b32 %prev_stage, %bar_offset;
${pipeline.free("%arrives_empty")}\
    // add the sums of this iteration
${add()}\
</%def>
