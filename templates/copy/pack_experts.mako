## The kernels before the product of a group with items that are rows of A: one makes the descriptor table, the others pack A and B.
<%namespace name="table" file="/sched/jagged_table.mako"/>
<%namespace name="rows" file="/copy/pack_kernels.mako"/>
<%def name="operand_addresses()"></%def>
<%def name="entries()">${table.entries()}${rows.entries()}</%def>\
