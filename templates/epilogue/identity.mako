## The epilogue has no fused operations.
<%def name="setup()"></%def>
<%def name="registers()"></%def>
<%def name="scale_subtile(chunk)"></%def>
<%def name="finish_subtile(chunk)"></%def>
<%def name="activate(stmatrix, label)"></%def>
<%def name="scale_product(registers, at, offset, guard, row, column)"></%def>
<%def name="finish(registers, at, offset, guard, row, column)"></%def>
