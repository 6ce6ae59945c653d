## As many blocks as multiprocessors, each of which walks over tiles.
<%namespace name="place" file="/sched/tile_coords.mako"/>
<%namespace name="batch" file="/sched/batch.mako"/>
<%def name="open(who)">
    mov.u32 %tile, %ctaid.x;
    mov.u32 %hop, %nctaid.x;
${place.counts()}\
    mul.lo.u32 %tiles, %across, %down;
% if plan.sharing > 1:
    mul.lo.u32 %tiles, %tiles, ${plan.sharing};
% endif
% if plan.batched:
    // tiles of an item, of all items
    mov.u32 %each, %tiles;
    mul.lo.u32 %tiles, %tiles, %items;
% endif
% if plan.pingpong and who == "CONSUMER":
    // warpgroups take tiles in turn, and skip the stages of each other's
    mad.lo.u32 %tile, %hop, %wg, %tile;
    add.u32 %hop, %hop, %hop;
    setp.ne.u32 %p, %wg, 0;
    @%p mov.u32 %stage, %chunk;
${skip()}\
% endif
    .pragma "nounroll";
${who}_TILE:
    setp.ge.u32 %p, %tile, %tiles;
    @%p bra${".uni" if who == "CONSUMER" else ""} ${who}_END;
${batch.from_tile()}\
${batch.tensor_coordinates()}\
${place.of_number()}\
${place.slice()}\
</%def>

<%def name="close(who)">
% if plan.pingpong and who == "CONSUMER":
    add.u32 %stage, %stage, %chunk;
${skip()}\
% endif
    add.u32 %tile, %tile, %hop;
    bra${".uni" if who == "CONSUMER" else ""} ${who}_TILE;
${who}_END:
</%def>

## %stage may lie past the ring: back into it, and the parity with it.
<%def name="skip()">
    div.u32 %t0, %stage, ${plan.stages};
    mul.lo.u32 %t1, %t0, ${plan.stages};
    sub.u32 %stage, %stage, %t1;
    and.b32 %t0, %t0, 1;
    xor.b32 %phase, %phase, %t0;
</%def>
