## A thread has two 8-bit results in each group of 8 columns. Four lanes exchange the results of four groups, so that each lane
## has one whole group, and stores its 8 bytes.
<%def name="setup()">
    // the group that this lane stores: bytes from its own pair, and columns of C from there on
    .reg .b64 %group_offset;
    .reg .b32 %word<3>, %group_rem, %selector;
    .reg .pred %upper_lanes, %in_group;
    and.b32 %tmp0, %lane, 1;
    setp.ne.u32 %p, %tmp0, 0;
    selp.b32 %selector, 0x3276, 0x5410, %p;
    and.b32 %tmp0, %lane, 2;
    setp.ne.u32 %upper_lanes, %tmp0, 0;
    and.b32 %tmp0, %lane, 3;
    mul.lo.u32 %tmp0, %tmp0, 6;
    cvt.u64.u32 %group_offset, %tmp0;
    sub.s32 %group_rem, %y_rem, %tmp0;
</%def>

## The pairs of row ``n`` in the four groups up to ``j``, each in the low half of its first register.
<%def name="store(j, n)">
% if (j, n) in plan.epilogue.packed_groups:
<% words, column, first = plan.epilogue.packed_groups[j, n] %>\
  % for i, (low, high) in enumerate(zip(words[::2], words[1::2])):
    prmt.b32 %word${i}, ${low}, ${high}, 0x5410;
    shfl.sync.bfly.b32 %word2, %word${i}, 1, 31, 0xffffffff;
    prmt.b32 %word${i}, %word${i}, %word2, %selector;
  % endfor
    selp.b32 %word2, %word0, %word1, %upper_lanes;
    shfl.sync.bfly.b32 %word2, %word2, 2, 31, 0xffffffff;
    @%upper_lanes mov.b32 %word0, %word2;
    @!%upper_lanes mov.b32 %word1, %word2;
    setp.gt.and.s32 %in_group, %group_rem, ${column}, %in_x${n};
    add.u64 %tmp64, %c_addr${first.pointer}, %group_offset;
    @%in_group st.global${plan.c.store_cache_op}.v2.b32 [%tmp64+${first.offset}], {%word0, %word1};
% endif
</%def>
