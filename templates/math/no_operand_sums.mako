## The elements of A are not added.
<%def name="setup()"></%def>
<%def name="begin()"></%def>
<%def name="add(k)"></%def>
<%def name="multiply(sum)"></%def>
<%def name="multiply_fragments(k)"></%def>
<%def name="store()"></%def>
