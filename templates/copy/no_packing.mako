## No operand is packed: the main kernel reads A and B directly.
<%def name="operand_addresses()"></%def>
<%def name="entries()"></%def>
