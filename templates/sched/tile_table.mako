## Each tile of each item has a block. The kernel has set %descriptor, that of the block's item, and %tile, the block's number.
<%namespace name="grouped" file="/sched/grouped.mako"/>
<%def name="find()">
    mov.u32 %tile, %ctaid.x;
${grouped.descriptors()}\
${grouped.find_item()}\
</%def>

<%def name="parameters()"></%def>
<%def name="open()"></%def>
<%def name="close()"></%def>
<%def name="finish_sums()"></%def>
<%def name="tile()">${grouped.item_values(grouped.slice_of_tile)}</%def>
<%def name="k_iterations()">${grouped.k_iterations()}</%def>
<%def name="choose_loop(copy_loop)">${grouped.choose_loop(copy_loop)}</%def>
<%def name="other_loops(copy_loop, k_loop, copies)">${grouped.other_loops(copy_loop, k_loop, copies)}</%def>
