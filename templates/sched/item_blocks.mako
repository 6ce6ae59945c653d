## The blocks of K of the items before item %item: %first_block in the order of the items, which is that of scales; %packed_block
## in the order of the descriptors, which is that of packed items.
<%def name="registers()">
    .reg .b64 %first_block64, %packed_block64;
    .reg .b32 %first_block, %packed_block, %blocks;
</%def>

<%def name="begin()">
    mov.u32 %first_block, 0;
    mov.u32 %packed_block, 0;
</%def>

## Counts the blocks of item %tmp0, whose length is %tmp1. %p: its descriptor is before that of item %item.
<%def name="count()">
${blocks("%tmp1")}\
    @%p add.u32 %packed_block, %packed_block, %blocks;
    setp.lt.u32 %p, %tmp0, %item;
    @%p add.u32 %first_block, %first_block, %blocks;
</%def>

<%def name="blocks(length)">
    add.u32 %blocks, ${length}, ${plan.packing.last_of_block};
    shr.u32 %blocks, %blocks, ${plan.packing.block_shift};
</%def>

<%def name="end()">
% if plan.packing.scaled:
    // no scale is outside its array, whatever the offsets are
${blocks("%item_length")}\
    ld.param.u32 %tmp0, [scale_blocks];
    sub.u32 %tmp0, %tmp0, %blocks;
    min.u32 %first_block, %first_block, %tmp0;
% endif
    cvt.u64.u32 %first_block64, %first_block;
    cvt.u64.u32 %packed_block64, %packed_block;
</%def>
