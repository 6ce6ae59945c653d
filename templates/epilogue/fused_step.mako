## The instructions of one step of a fused operation.
## A step on registers, with %elem.
<%def name="on_all(step, registers, guard='')">
% for r in registers:
${on(step, r, "%elem", guard)}\
% endfor
</%def>

## A step on one register.
<%def name="on(step, r, operand, guard='')">
% for line in plan.fused_ops.lines(step, r, operand, guard):
    ${line}
% endfor
</%def>
