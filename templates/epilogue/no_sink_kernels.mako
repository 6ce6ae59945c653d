## The sink needs no auxiliary kernels.
<%def name="entries()"></%def>
