## Sums stay where wgmma adds to them: products of a pass may still be under way when those of the next are asked for.
<%def name="begin()"></%def>

<%def name="settle(ring)">
    wgmma.wait_group.sync.aligned 1;
${ring.free_before()}\
    mov.b32 %before, ${plan.freed};
</%def>
