## Multistage: loads go to registers one iteration before they are stored to shared memory. %has_load: true if there is a stage
## to load.
<%def name="prologue(operands)">
    setp.gt.u32 %has_load, %k_iters, ${plan.mainloop.stages_ahead};
% for copy, addr, x in operands:
${copy.prologue_load(addr, x, "%has_load")}\
  % if not x.asynchronous:
${addr.advance(x, False)}\
  % endif
% endfor
</%def>

<%def name="begin_iteration()">
    add.u32 %tmp0, %k_iter, ${plan.mainloop.stages};
    setp.lt.u32 %has_load, %tmp0, %k_iters;
</%def>

<%def name="store_stage(operands)"></%def>
<%def name="load_stage(operands)">
% for copy, addr, x in operands:
${copy.store_then_load(addr, x, "%write_stage", "%prefetch", "%has_load")}\
${addr.advance(x, False)}\
% endfor
</%def>
