## Sums of a pass are added to those of all passes in f32: wgmma cuts what it adds to long sums, and always downwards.
## While one warpgroup adds, the other multiplies.
<%def name="begin()">
% for r in plan.acc.all:
    mov.${plan.epilogue_type} ${r}, ${plan.zero};
% endfor
</%def>

<%def name="settle(ring)">
    wgmma.wait_group.sync.aligned 0;
    mov.b32 %before, %slot;
${ring.free("%frees")}\
% for r, part in zip(plan.acc.all, plan.into.all):
    ${plan.add} ${r}, ${r}, ${part};
% endfor
</%def>
