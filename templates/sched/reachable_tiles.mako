## Tiles from which no result is taken are neither loaded nor multiplied. The blocks of a cluster load for each other, so they
## skip their tiles together, if no result of any of them is taken.
<%namespace name="values" file="/epilogue/result_values.mako"/>
<%namespace name="turns" file="/sched/pingpong_turns.mako"/>
<%def name="registers()">
    .reg .pred %reachable;
</%def>

## %reachable: a result of the tile at %x0, %y0, or of another tile of the cluster, may be taken.
<%def name="test()">
    {
    .reg .b32 %first_i, %first_j, %last_i, %last_j;
% for index, extent, side, tile, tiles, rank in plan.cluster_tile:
  % if tiles > tile:
    mul.lo.u32 %first_${index}, ${rank}, ${tile};
    sub.u32 %first_${index}, %${side}0, %first_${index};
  % else:
    mov.b32 %first_${index}, %${side}0;
  % endif
    add.u32 %last_${index}, %first_${index}, ${tiles};
    min.u32 %last_${index}, %last_${index}, %${extent};
    sub.u32 %last_${index}, %last_${index}, 1;
% endfor
${values.corner_keys()}\
% for line in plan.values.reach_lines:
    ${line}
% endfor
    }
</%def>

## A block that computes several tiles goes on to its next one.
<%def name="skip(who)">
${test()}\
    @!%reachable ${plan.scheduler.bra[who]} ${who}_NEXT;
% if plan.config.pingpong and who == "CONSUMER":
${take_turn()}\
% endif
</%def>
<%def name="skipped(who)">
${who}_NEXT:
</%def>

## A block that computes one tile ends.
<%def name="skip_block(sched)">
    // no pair of the tile is taken: the block has nothing to do
${registers()}\
${sched.tile()}\
${test()}\
    @!%reachable bra.uni END;
</%def>

## Pingpong: warpgroups take the reachable tiles in turns, and skip the stages of each other's. %turn: whose turn it is.
<%def name="take_turn()">
    setp.eq.u32 %p, %turn, %wg;
    xor.b32 %turn, %turn, 1;
    @%p bra.uni CONSUMER_TURN;
    add.u32 %stage, %stage, ${plan.batch.skipped};
${turns.wrap_stage()}\
    bra.uni CONSUMER_NEXT;
CONSUMER_TURN:
</%def>
