## Blocks after the last one of an item have the scale zero: an item without K has no block, and those of the next item are not
## its own.
<%def name="setup()">
    .reg .pred %has_block;
</%def>

<%def name="begin()">
    // the last block of the item; -1: it has none
    sub.u32 %last_block, %K, 1;
    shr.s32 %last_block, %last_block, ${plan.scales.block_shift};
</%def>

<%def name="compare()">
    setp.le.s32 %has_block, %scale_block, %last_block;
</%def>

<%def name="load(to)">
    mov.f32 ${to}, 0f00000000;
    @%has_block ld.global.nc.f32 ${to}, [%scale_base];
</%def>
