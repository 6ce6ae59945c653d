## The phase of a strided input gradient to which a block's tile belongs. A table has the numbers of each phase; all phases have
## the same tiles. If groups of channels are items of a batch, %item counts phases, and within each phase the items of the
## launch.
<%namespace name="items" file="/${context['plan'].batch.items_template}"/>
<%def name="registers()">
    .reg .b32 %item, %items, %phase_start, %phase_pixels<${plan.batch.axes}>;
    .reg .b64 %phase_table, %phase_row, %item_c;
    ld.param.u64 %phase_table, [phase_table];  ld.param.u32 %items, [phases];
${items.registers()}\
    cvta.to.global.u64 %phase_table, %phase_table;
</%def>

<%def name="last_coordinates()">
    .reg .b32 %item_tiles, %item_tile${plan.scheduler.skipped_register};
${items.last_coordinates()}\
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

## %item_c: the first pixel of the phase in C, or in its images; %phase_pixels: its pixels along each axis; %min_iters: its iterations of K.
<%def name="phase()">
${items.phase_number()}\
    mad.wide.u32 %phase_row, ${plan.batch.phase_number}, ${plan.batch.row_bytes}, %phase_table;
    ld.global.nc.v2.u32 {%min_iters, %phase_start}, [%phase_row];
% for a in range(plan.batch.axes):
    ld.global.nc.u32 %phase_pixels${a}, [%phase_row+${plan.batch.axis_offsets[a]}];
% endfor
    mad.wide.u32 %item_c, %phase_start, ${plan.c.bytes}, ${plan.batch.phases_base};
${items.c_address()}\
</%def>

<%def name="tensor_coordinates()">
${items.tensor_coordinates()}\
</%def>

## Pingpong: the K iterations of a tile of the other warpgroup, whose phase may have others.
<%def name="skip(tile)">
    {
    .reg .b64 %row;
    .reg .b32 %last;
    div.u32 %tmp0, ${tile}, %item_tiles;
    sub.u32 %last, %items, 1;
    min.u32 %tmp0, %tmp0, %last;
${items.phase_of("%tmp0")}\
    mad.wide.u32 %row, %tmp0, ${plan.batch.row_bytes}, %phase_table;
    ld.global.nc.u32 %skipped_iters, [%row];
    }
</%def>

## The same of its next tile, half a step after the last one of this warpgroup.
<%def name="skip_next()">
    shr.u32 %tmp1, %tile_step, 1;
    add.u32 %tmp1, %tile, %tmp1;
${skip("%tmp1")}\
</%def>

## A phase without taps has no iterations: nothing is loaded, and its sums are zero.
<%def name="begin_producer_loop()">
    setp.eq.u32 %p, %k_iters, 0;
    @%p bra PRODUCER_FILLED;
</%def>

<%def name="end_producer_loop()">
PRODUCER_FILLED:
</%def>

<%def name="begin_k_loop()">
    setp.eq.u32 %p, %k_iters, 0;
    @%p bra.uni K_DONE;
</%def>

## %arrives_prev: whether the thread frees the stage of the last iteration.
<%def name="end_k_loop()">
K_DONE:
% if plan.pipeline.frees_last_stage:
    setp.ne.and.u32 %arrives_prev, %k_iters, 0, %arrives_empty;
% endif
</%def>

<%def name="zero_sums()">
    setp.ne.u32 %p, %k_iters, 0;
    @%p bra.uni HAS_SUMS;
    // a phase without taps
% for r in plan.mainloop.wgmma_acc.all:
    mov.b32 ${r}, 0;
% endfor
HAS_SUMS:
</%def>
