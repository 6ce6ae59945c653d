## Waits on mbarriers, and barriers among the threads of one warpgroup.
<%def name="wait(at, parity, order='')">
    {
    .reg .pred %ready;
WAIT:
    mbarrier.try_wait.parity${order}.shared::cta.b64 %ready, [${at}], ${parity};
    @!%ready bra WAIT;
    }
</%def>

## Each warpgroup waits at a named barrier of its own, an immediate: a number in a register would reserve all sixteen.
<%def name="warpgroup()">
<% pipe = plan.pipeline %>\
% if not pipe.first_barriers:
    bar.sync ${pipe.last_barrier}, 128;
% else:
    {
  % for wg, barrier, next in pipe.first_barriers:
    .reg .pred %warpgroup_${next};
    setp.ne.u32 %warpgroup_${next}, %wg, ${wg};
    @%warpgroup_${next} bra.uni WARPGROUP_${next};
    bar.sync ${barrier}, 128;
    bra.uni JOIN;
WARPGROUP_${next}:
  % endfor
    bar.sync ${pipe.last_barrier}, 128;
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
