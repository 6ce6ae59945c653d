## Loads of packed items: %k is the place in a block of K, which has all rows of the item.
<%def name="setup()"></%def>

<%def name="begin()">
    // an item without K begins after a block, where TMA gives zeros
    setp.eq.u32 %p, %K, 0;
    selp.b32 %k, ${plan.loads.block}, 0, %p;
</%def>

<%def name="step()">
% if plan.loads.by_parts:
    add.u32 %k, %k, ${plan.config.u};
    setp.eq.u32 %p, %k, ${plan.loads.block};
    @%p mov.u32 %k, 0;
    @%p add.u32 %x0, %x0, ${plan.scheduler.x_extent};
    @%p add.u32 %y0, %y0, ${plan.scheduler.y_extent};
% else:
    // the next block
    add.u32 %x0, %x0, ${plan.scheduler.x_extent};
    add.u32 %y0, %y0, ${plan.scheduler.y_extent};
% endif
</%def>
