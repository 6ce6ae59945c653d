## Which rows and columns of the tile a thread multiplies, and where it reads them in shared memory.
<%def name="setup()">
    {
    .reg .b32 %lane, %warp, %kg, %lm, %ln, %at;
    and.b32 %lane, %thread, 31;
    and.b32 %warp, %thread, ${plan.group - 1};
    shr.u32 %warp, %warp, 5;
    shr.u32 %kg, %thread, ${plan.log2_group};
% if plan.interleaved:
    // bits of the lane alternate between N and M
    and.b32 %ln, %lane, 1;
    shr.u32 %lm, %lane, 1;
    and.b32 %lm, %lm, 1;
    shr.u32 %t0, %lane, 2;
    and.b32 %t1, %t0, ${(1 << plan.bits_n - 1) - 1};
    mad.lo.u32 %ln, %t1, 2, %ln;
    shr.u32 %t0, %t0, ${plan.bits_n - 1};
    mad.lo.u32 %lm, %t0, 2, %lm;
% else:
    and.b32 %ln, %lane, ${plan.warp_n - 1};
    shr.u32 %lm, %lane, ${plan.bits_n};
% endif
    shr.u32 %row, %warp, ${plan.log2_warps_across};
    and.b32 %col, %warp, ${plan.warps_across - 1};
    mul.lo.u32 %row, %row, ${plan.warp_m * plan.ms};
    mul.lo.u32 %col, %col, ${plan.warp_n * plan.ns};
    mad.lo.u32 %row, %lm, ${plan.a.contiguous}, %row;
    mad.lo.u32 %col, %ln, ${plan.b.contiguous}, %col;
% for x, first in ((plan.a, "%row"), (plan.b, "%col")):
% if x.kept:
    shr.u32 %t0, ${first}, ${x.swizzle_shift};
    mul.lo.u32 %t1, %kg, ${plan.steps // x.chunk};
    xor.b32 %t0, %t0, %t1;
    and.b32 %t0, %t0, ${x.swizzle_q - 1};
    mad.lo.u32 %at, ${first}, ${x.depth * x.bytes}, ${x.base};
    add.u32 %at, %at, %smem;
% for q in range(x.swizzle_q):
    xor.b32 %t1, %t0, ${q};
    mad.lo.u32 ${x.readers[q]}, %t1, 16, %at;
% endfor
% else:
    mad.lo.u32 %at, %kg, ${plan.steps * x.row}, ${first};
    mad.lo.u32 %at, %at, ${x.bytes}, ${x.base};
    add.u32 ${x.readers[0]}, %at, %smem;
% endif
% endfor
% if plan.geometry.gathers:
    // where this thread's share of the tile lies when it leaves through shared memory
    mad.lo.u32 %at, %kg, ${plan.config.ml}, %row;
    mad.lo.u32 %at, %at, ${plan.c_row_pitch}, %col;
    mad.lo.u32 %share, %at, ${plan.epilogue_bytes}, %smem;
% endif
    }
</%def>

## On to the next stage of the ring.
<%def name="advance()">
    add.u32 %slot, %slot, 1;
    setp.eq.u32 %wrap, %slot, ${plan.stages};
    selp.b32 %slot, 0, %slot, %wrap;
    selp.b32 %step, ${-(plan.stages - 1) * plan.stage_bytes}, ${plan.stage_bytes}, %wrap;
% for x in plan.operands:
% for reader in x.readers.all:
    add.s32 ${reader}, ${reader}, %step;
% endfor
% endfor
</%def>
