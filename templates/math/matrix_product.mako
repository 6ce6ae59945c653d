## One mma.sync adds to a lane's sums. If its accumulator would lose bits, it starts from zero, and add.f32 adds its result to
## the sums.
<%def name="product(instruction, sums, a, b)">
% if instruction.promotes:
    {
    .reg .f32 ${instruction.partial_registers}, %zero;
    mov.f32 %zero, 0f00000000;
    ${instruction.name} {${instruction.partial_registers}}, ${a}, ${b}, {${instruction.zeros}};
  % for total, part in zip(sums, instruction.partial):
    add.f32 ${total}, ${total}, ${part};
  % endfor
    }
% else:
<% totals = ", ".join(sums) %>\
    ${instruction.name} {${totals}}, ${a}, ${b}, {${totals}};
% endif
</%def>
