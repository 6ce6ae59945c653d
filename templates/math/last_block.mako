## Blocks after the last one have its scales.
<%def name="setup()">
    sub.u32 %last_block, %K, 1;
    shr.u32 %last_block, %last_block, ${plan.scales.block_shift};
</%def>
<%def name="begin()"></%def>

<%def name="compare()">
    min.u32 %scale_block, %scale_block, %last_block;
</%def>

<%def name="load(to)">
    ld.global.nc.f32 ${to}, [%scale_base];
</%def>
