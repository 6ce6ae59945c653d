## wgmma adds to the sums in place: the products of one iteration may still run when those of the next are issued.
<%def name="begin()"></%def>
<%def name="promote(complete)"></%def>

<%def name="end_iteration(pipeline)">
    // ---- wait: at most this iteration's products are in flight
    wgmma.wait_group.sync.aligned 1;
${pipeline.free_previous()}\
    mov.b32 %prev_stage, ${plan.mainloop.realign.consumed_slot};
</%def>
