## Multistage: the loads of a stage are stored to shared memory in the same iteration.
<%def name="prologue(operands)"></%def>
<%def name="begin_iteration()"></%def>
<%def name="store_stage(operands)">
% for copy, addr, x in operands:
${copy.store_stage(addr, x, "%write_stage", "%prefetch")}\
% endfor
</%def>

<%def name="load_stage(operands)">
% for copy, addr, x in operands:
${copy.load_stage(addr, x, "%write_stage", "%prefetch")}\
${addr.advance(x, False)}\
% endfor
</%def>
