## Operands are read where they are, as they are.
<%def name="entries()"></%def>
