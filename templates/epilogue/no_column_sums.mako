## The columns of C are not added.
<%def name="begin()"></%def>
<%def name="begin_columns()"></%def>
<%def name="add(c, p)"></%def>
<%def name="end_columns(n)"></%def>
<%def name="end()"></%def>
