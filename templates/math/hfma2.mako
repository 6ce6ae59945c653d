## fma.f16x2: pairs of columns, each row's element duplicated.
<%def name="clear_accumulators()">
    ${plan.mainloop.pairs.declaration}
    .reg .b16 %half0, %half1;
% for r in plan.mainloop.acc.all:
    mov.b32 ${r}, 0;
% endfor
</%def>

<%def name="read(x, k, buffer, part, guard='')">
% for r in plan.mainloop.fragment_loads(x, k, buffer, part):
    ${guard}ld.shared.${r.kind} ${r.registers}, [${r.address}];
% endfor
</%def>

<%def name="multiply(k, part)">
<%
    acc, pairs, s = plan.mainloop.acc, plan.mainloop.pairs, plan.mainloop.set_of(k)
    a, b = plan.a.buffer(k), plan.b.buffer(k)
%>\
% for i in range(plan.mainloop.ms // part.a):
    prmt.b32 ${pairs[i]}, ${plan.a.fragment[a, i // 2]}, ${plan.a.fragment[a, i // 2]}, ${"0x3232" if i % 2 else "0x1010"};
% endfor
% for i, j in plan.mainloop.products_of(part):
    fma.rn.f16x2 ${acc[s, i, j]}, ${pairs[i]}, ${plan.b.fragment[b, j]}, ${acc[s, i, j]};
% endfor
</%def>

<%def name="scaled_row(i)">
% for s in range(1, plan.mainloop.ks):
  % for j in range(plan.mainloop.ns // 2):
    add.rn.f16x2 ${plan.mainloop.acc[0, i, j]}, ${plan.mainloop.acc[0, i, j]}, ${plan.mainloop.acc[s, i, j]};
  % endfor
% endfor
% for j in range(0, plan.mainloop.ns, 2):
    mov.b32 {%half0, %half1}, ${plan.mainloop.acc[0, i, j // 2]};
    cvt.f32.f16 ${plan.epilogue.vector[j]}, %half0;
    cvt.f32.f16 ${plan.epilogue.vector[j + 1]}, %half1;
% endfor
% for j in range(plan.mainloop.ns):
    ${plan.epilogue.scaled(plan.epilogue.vector[j], plan.epilogue.vector[j])}
% endfor
</%def>
