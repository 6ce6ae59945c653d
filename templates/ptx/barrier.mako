## Waits on mbarriers, and barriers among the threads of one warpgroup.
<%def name="wait(at, parity, order='')">
    {
    .reg .pred %ready;
WAIT:
    mbarrier.try_wait.parity${order}.shared::cta.b64 %ready, [${at}], ${parity};
    @!%ready bra WAIT;
    }
</%def>

## Named barriers 2 and 3, as immediates: a barrier number in a register would reserve all sixteen.
<%def name="warpgroup(count)">
% if count == 1:
    bar.sync 2, 128;
% else:
    {
    .reg .pred %warpgroup_1;
    setp.ne.u32 %warpgroup_1, %wg, 0;
    @%warpgroup_1 bra.uni WARPGROUP_1;
    bar.sync 2, 128;
    bra.uni JOIN;
WARPGROUP_1:
    bar.sync 3, 128;
JOIN:
    }
% endif
</%def>

## Two warpgroups alternate: ``sync`` waits for the other one, ``arrive`` lets it continue. ``own``: the barrier for which
## warpgroup 0 does so.
<%def name="alternate(instruction, own, other)">
    {
    .reg .pred %warpgroup_1;
    setp.ne.u32 %warpgroup_1, %wg, 0;
    @%warpgroup_1 bra.uni WARPGROUP_1;
    bar.${instruction} ${own}, 256;
    bra.uni JOIN;
WARPGROUP_1:
    bar.${instruction} ${other}, 256;
JOIN:
    }
</%def>

## The next stage; the parity to wait for flips when the stage number wraps.
<%def name="advance(stages)">
    add.u32 %stage, %stage, 1;
    setp.eq.u32 %wrap, %stage, ${stages};
    selp.b32 %stage, 0, %stage, %wrap;
    @%wrap xor.b32 %phase, %phase, 1;
</%def>
