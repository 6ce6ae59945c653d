## Columns and values of the next blocks are loaded before the products of the present blocks.
<%def name="first(load)">${load(plan.mainloop.value)}</%def>
<%def name="own(load)"></%def>
<%def name="following(load)">${load(plan.mainloop.next_value)}</%def>
<%def name="advance()">
% for new, old in zip(plan.mainloop.next_value.all, plan.mainloop.value.all):
    mov.b32 ${old}, ${new};
% endfor
</%def>
