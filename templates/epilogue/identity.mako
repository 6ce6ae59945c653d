## Nothing follows the product.
<%def name="setup()"></%def>
<%def name="places()"></%def>
<%def name="scaled_tile(chunk)"></%def>
<%def name="finish_tile(chunk)"></%def>
<%def name="curve(put, label)"></%def>
<%def name="scaled(registers, at, offset, guard, row, column)"></%def>
<%def name="finish(registers, at, offset, guard, row, column)"></%def>
