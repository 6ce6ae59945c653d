## One matrix product per launch: there are no batch items.
<%def name="registers()"></%def>
<%def name="from_block()"></%def>
<%def name="from_tile()"></%def>
<%def name="tensor_coordinates()"></%def>
<%def name="offset_operands()"></%def>
<%def name="tile_index(tile)"></%def>
<%def name="last_coordinates()"></%def>

## Pingpong: all tiles have as many K iterations.
<%def name="skip(tile)"></%def>
<%def name="skip_next()"></%def>

## Every tile has K iterations.
<%def name="begin_producer_loop()"></%def>
<%def name="end_producer_loop()"></%def>
<%def name="begin_k_loop()"></%def>
<%def name="end_k_loop()"></%def>
<%def name="zero_sums()"></%def>
