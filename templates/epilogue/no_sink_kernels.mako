## The sink has no kernels.
<%def name="entries()"></%def>
