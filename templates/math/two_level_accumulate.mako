## add.f32 adds two-level sums to the totals.
<%def name="begin()"></%def>
<%def name="next_block()"></%def>

<%def name="add(partial)">
% for r, part in zip(plan.mainloop.acc.all, partial.all):
    ${plan.arithmetic.add} ${r}, ${r}, ${part};
% endfor
</%def>

<%def name="add_text()">add their sums to the totals</%def>
<%def name="add_iteration_text()">add the sums of this iteration</%def>
