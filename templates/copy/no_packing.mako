## The product reads A and B where they are.
<%def name="operand_addresses()"></%def>
<%def name="entries()"></%def>
