## The product reads A and B where they are.
<%def name="entries()"></%def>
