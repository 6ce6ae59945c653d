## fma.f16x2 on pairs of columns; the element of each row is duplicated.
<%def name="clear_accumulators()">
    ${plan.mainloop.pairs.declaration}
    .reg .b16 %half0, %half1;
% for r in plan.mainloop.acc.all:
    mov.b32 ${r}, 0;
% endfor
</%def>

<%def name="read(x, k, buffer, part, guard='')">
% for r in plan.mainloop.fragment_loads(x, k, buffer, part):
    ${guard}ld.shared.${r.ptx_type} ${r.registers}, [${r.address}];
% endfor
</%def>

<%def name="multiply(k, part)">
% for pair, word, selector in plan.mainloop.pair_selections(k, part):
    prmt.b32 ${pair}, ${word}, ${word}, ${selector};
% endfor
% for sums, a, b in plan.mainloop.pair_fmas(k, part):
    fma.rn.f16x2 ${sums}, ${a}, ${b}, ${sums};
% endfor
</%def>

<%def name="scaled_row(i)">
% for sums, others in plan.mainloop.further_row_sums[i]:
    add.rn.f16x2 ${sums}, ${sums}, ${others};
% endfor
% for sums, (low, high) in zip(plan.mainloop.row_sums[i], plan.epilogue.vector_pairs):
    mov.b32 {%half0, %half1}, ${sums};
    cvt.f32.f16 ${low}, %half0;
    cvt.f32.f16 ${high}, %half1;
% endfor
% for line in plan.epilogue.scaled_row():
    ${line}
% endfor
</%def>
