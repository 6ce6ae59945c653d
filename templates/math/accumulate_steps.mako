## wgmma adds to the sums in place, and each K step waits for the products of the step before the previous one.
<%def name="begin()"></%def>

## The K steps have freed the previous stage.
<%def name="end_iteration(pipeline)">
    mov.b32 %prev_stage, %bar_offset;
</%def>
