## Scalar multiply-adds: FFMA or DFMA.
<%def name="clear_accumulators()">
% for r in plan.mainloop.acc.all:
    mov.${plan.arithmetic.type} ${r}, ${plan.arithmetic.zero};
% endfor
</%def>

<%def name="read(x, k, buffer, part, guard='')">
% for r in plan.mainloop.fragment_loads(x, k, buffer, part):
    ${guard}ld.shared.${r.kind} ${r.registers}, [${r.address}];
% endfor
</%def>

<%def name="multiply(k, part)">
<% acc, s, kind = plan.mainloop.acc, plan.mainloop.set_of(k), plan.arithmetic.type %>\
% for i, j in plan.mainloop.products_of(part):
    fma.rn.${kind} ${acc[s, i, j]}, ${plan.a.element(i, k)}, ${plan.b.element(j, k)}, ${acc[s, i, j]};
% endfor
</%def>

## Row i of the thread's tile, scaled, into %result. Storing the accumulators themselves would tie them to
## aligned groups of four, which costs the K loop register-bank conflicts.
<%def name="scaled_row(i)">
% for s in range(1, plan.mainloop.ks):
  % for j in range(plan.mainloop.ns):
    add.rn.${plan.arithmetic.type} ${plan.mainloop.acc[0, i, j]}, ${plan.mainloop.acc[0, i, j]}, ${plan.mainloop.acc[s, i, j]};
  % endfor
% endfor
% for j in range(plan.mainloop.ns):
    ${plan.epilogue.scaled(plan.epilogue.vector[j], plan.mainloop.acc[0, i, j])}
% endfor
</%def>
