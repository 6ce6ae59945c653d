## Grouped: a block multiplies all of K of a tile.
<%def name="registers()"></%def>
<%def name="counters()"></%def>
<%def name="slice_of_tile()"></%def>
<%def name="finish_sums()"></%def>
<%def name="tile_end()"></%def>
