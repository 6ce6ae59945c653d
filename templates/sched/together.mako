## Warpgroups multiply the same tile at the same time.
<%def name="begin()"></%def>
<%def name="take_turn()"></%def>
<%def name="end_turn()"></%def>
