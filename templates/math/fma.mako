## Scalar multiply-adds: FFMA or DFMA.
<%def name="clear_accumulators()">
% for r in plan.acc.all:
    mov.${plan.epilogue_type} ${r}, ${plan.zero};
% endfor
</%def>

<%def name="read(x, k, buffer, guard='')">
% for r in x.fragment_loads(k, buffer):
    ${guard}ld.shared.${r.kind} ${r.registers}, [${r.address}];
% endfor
</%def>

<%def name="multiply(k)">
<% s = plan.set_of(k) %>\
% for i, j in plan.products:
    fma.rn.${plan.epilogue_type} ${plan.acc[s, i, j]}, ${plan.a.element(i, k)}, ${plan.b.element(j, k)}, ${plan.acc[s, i, j]};
% endfor
</%def>

## Row i of the thread's tile, times alpha, into the registers e. Storing the accumulators themselves would tie them to
## aligned groups of four, which costs the K loop register-bank conflicts.
<%def name="scaled_row(i)">
% for s in range(1, plan.ks):
% for j in range(plan.ns):
    add.rn.${plan.epilogue_type} ${plan.acc[0, i, j]}, ${plan.acc[0, i, j]}, ${plan.acc[s, i, j]};
% endfor
% endfor
% for j in range(plan.ns):
    mul.rn.${plan.epilogue_type} ${plan.row[j]}, ${plan.acc[0, i, j]}, %alpha;
% endfor
</%def>
