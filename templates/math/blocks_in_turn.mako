## Columns and values of the present blocks are loaded before their products.
<%def name="first(load)"></%def>
<%def name="own(load)">${load(plan.mainloop.value)}</%def>
<%def name="following(load)"></%def>
<%def name="advance()"></%def>
