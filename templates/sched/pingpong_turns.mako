## The turns of the warpgroups of a pingpong kernel.
<%namespace name="batch" file="/${context['plan'].batch.template}"/>
<%def name="first()">
    // warpgroups take alternate tiles, and skip the stages of each other's
${batch.skip("%tile")}\
    mad.lo.u32 %tile, %tile_step, %wg, %tile;
    add.u32 %tile_step, %tile_step, %tile_step;
    setp.ne.u32 %p, %wg, 0;
    @%p mov.u32 %stage, ${plan.batch.skipped};
${wrap_stage()}\
</%def>

<%def name="next()">
${batch.skip_next()}\
    add.u32 %stage, %stage, ${plan.batch.skipped};
${wrap_stage()}\
</%def>

## %stage may be past the last stage: reduces it to a stage number and a parity.
<%def name="wrap_stage()">
    div.u32 %tmp0, %stage, ${plan.pipeline.stages};
    mul.lo.u32 %tmp1, %tmp0, ${plan.pipeline.stages};
    sub.u32 %stage, %stage, %tmp1;
    and.b32 %tmp0, %tmp0, 1;
    xor.b32 %phase, %phase, %tmp0;
</%def>
