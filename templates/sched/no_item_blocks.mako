## No array has places that count blocks of K.
<%def name="registers()"></%def>
<%def name="begin()"></%def>
<%def name="count()"></%def>
<%def name="end()"></%def>
