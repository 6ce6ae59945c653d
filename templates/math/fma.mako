## Scalar multiply-adds: FFMA or DFMA. Complex multiply-adds also take negated parts of elements of A.
<%def name="clear_accumulators()">
% for r in plan.mainloop.acc.all:
    mov.${plan.arithmetic.type} ${r}, ${plan.arithmetic.zero};
% endfor
</%def>

<%def name="read(x, k, buffer, part, guard='')">
% for r in plan.mainloop.fragment_loads(x, k, buffer, part):
    ${guard}ld.shared.${r.ptx_type} ${r.registers}, [${r.address}];
% endfor
</%def>

<%def name="multiply(k, part)">
% for line in plan.mainloop.fma_lines(k, part):
    ${line}
% endfor
</%def>

## Row i of the thread's tile, scaled, into %result. Storing the accumulators themselves would tie them to
## aligned groups of four, which costs the K loop register-bank conflicts.
<%def name="scaled_row(i)">
% for sum, other in plan.mainloop.further_row_sums[i]:
    add.rn.${plan.arithmetic.type} ${sum}, ${sum}, ${other};
% endfor
% for line in plan.epilogue.scaled_row(plan.mainloop.row_sums[i]):
    ${line}
% endfor
</%def>
