## The phase of a strided input gradient whose tile a block computes. A table has the numbers of each phase; all phases have
## the same tiles.
<%def name="registers()">
    .reg .b32 %item, %items, %phase_start, %phase_pixels<${plan.batch.axes}>;
    .reg .b64 %phase_table, %phase_row, %item_c;
    ld.param.u64 %phase_table, [phase_table];  ld.param.u32 %items, [phases];
    cvta.to.global.u64 %phase_table, %phase_table;
</%def>

<%def name="last_coordinates()">
    .reg .b32 %item_tiles, %item_tile;
</%def>

## grid.z counts phases.
<%def name="from_block()">
    mov.u32 %item, %ctaid.z;
${phase()}\
</%def>

## The phase from a tile's number among the tiles of all phases; %item_tiles: tiles of a phase.
<%def name="from_tile()">
    div.u32 %item, %tile, %item_tiles;
    mul.lo.u32 %tmp0, %item, %item_tiles;
    sub.u32 %item_tile, %tile, %tmp0;
${phase()}\
</%def>

## %item_c: the first pixel of the phase in C; %phase_pixels: its pixels along each axis; %min_iters: its iterations of K.
<%def name="phase()">
    mad.wide.u32 %phase_row, %item, ${plan.batch.row_bytes}, %phase_table;
    ld.global.nc.v2.u32 {%min_iters, %phase_start}, [%phase_row];
% for a in range(plan.batch.axes):
    ld.global.nc.u32 %phase_pixels${a}, [%phase_row+${16 + 16 * a}];
% endfor
    mad.wide.u32 %item_c, %phase_start, ${plan.c.bytes}, %C;
</%def>

<%def name="tensor_coordinates()"></%def>
