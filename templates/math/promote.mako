## wgmma truncates the terms of long sums. Therefore it sums only parts of K, which are added to the totals when they are
## complete. While one warpgroup adds, the other one multiplies; while a sum is added, wgmma may fill other registers.
<%namespace name="additions" file="/${context['plan'].mainloop.additions}"/>
<%def name="begin()">
% for r in plan.mainloop.acc.all:
    mov.${plan.arithmetic.type} ${r}, ${plan.arithmetic.zero};
% endfor
${additions.begin()}\
</%def>

## Adds sums of the stage, each a pair (registers, products of so many later sums that may still run), to the totals. The end
## of the iteration adds the last one.
<%def name="promote(complete)">
% for partial, running in complete:
${additions.next_block()}\
  % if running:
    // ---- wait: all but the last products are complete; ${additions.add_text()}
  % else:
    // ---- wait: these products are complete; ${additions.add_text()}
  % endif
    wgmma.wait_group.sync.aligned ${running};
${additions.add(partial)}\
% endfor
</%def>

<%def name="end_iteration(pipeline)">
${additions.next_block()}\
    // ---- wait: the products of this iteration are complete
    wgmma.wait_group.sync.aligned 0;
    mov.b32 %prev_stage, %bar_offset;
${pipeline.free("%arrives_empty")}\
    // ${additions.add_iteration_text()}
${additions.add(plan.mainloop.last_sum)}\
</%def>
