## One mma.sync adds to a lane's sums. Where its accumulator loses bits, it starts from zero, and add.f32 adds its products.
<%def name="product(instruction, sums, a, b)">
% if instruction.promotes:
    {
    .reg .f32 ${", ".join(instruction.partial)}, %zero;
    mov.f32 %zero, 0f00000000;
    ${instruction.name} {${", ".join(instruction.partial)}}, ${a}, ${b}, {${", ".join("%zero" for _ in sums)}};
  % for total, part in zip(sums, instruction.partial):
    add.f32 ${total}, ${total}, ${part};
  % endfor
    }
% else:
    ${instruction.name} {${", ".join(sums)}}, ${a}, ${b}, {${", ".join(sums)}};
% endif
</%def>
