## Which elements a thread takes of both operands, and where it finds them in global memory.
<%def name="setup()">
${lanes()}\
% for x, own in ((plan.a, "%row"), (plan.b, "%col")):
${pointers(x, own)}\
% endfor
</%def>

<%def name="lanes()">
    {
    .reg .b32 %lane, %warp, %k_group, %long_lane, %k_lane, %addr;
    and.b32 %lane, %thread, 31;
    shr.u32 %warp, %thread, 5;
% if plan.x.kmajor:
    // neighbouring lanes along K
    and.b32 %k_lane, %lane, ${plan.lanes - 1};
    shr.u32 %long_lane, %lane, ${plan.log2_across};
% else:
    // neighbouring lanes along ${plan.x.extent}
    shr.u32 %k_lane, %lane, ${plan.log2_wm};
    and.b32 %long_lane, %lane, ${plan.config.lanes_m - 1};
% endif
    setp.eq.u32 %k_lane0, %k_lane, 0;
    shr.u32 %k_group, %warp, ${plan.log2_warps_along};
    and.b32 %warp, %warp, ${plan.warps_along - 1};
    mad.lo.u32 %long_lane, %warp, ${plan.config.lanes_m}, %long_lane;
    mad.lo.u32 %k_lane, %k_group, ${plan.lanes}, %k_lane;
    mul.lo.u32 %k_pos, %k_lane, ${plan.depth};
    mul.lo.u32 ${"%col" if plan.config.transposed_mma else "%row"}, %long_lane, ${plan.x.side};
    mov.u32 ${"%row" if plan.config.transposed_mma else "%col"}, 0;
    // where its share of the tile lies when it leaves through shared memory
    mad.lo.u32 %addr, %k_group, ${plan.config.ml}, %row;
    mad.lo.u32 %addr, %addr, ${plan.c_row_pitch}, %col;
    mad.lo.u32 %smem_c, %addr, ${plan.epilogue_bytes}, %smem;
    add.u32 %k_pos, %k_pos, %k0;
    }
</%def>

<%def name="pointers(x, own)">
    // ${x.upper}: ${len(x.rows)} ${"rows along K" if x.kmajor else f"vectors along {x.extent}"}, none past the last
    .reg .b64 %ptr_${x.name}<${len(x.rows)}>;
% if x.hops:
    .reg .b64 %hop_${x.name}<${len(x.hops)}>;
% endif
    sub.u32 %t2, %${x.extent}, ${x.edge};
% for n, row in enumerate(x.rows):
    add.u32 %t0, %${x.extent.lower()}0, ${own};
    add.u32 %t0, %t0, ${row};
    min.u32 %t0, %t0, %t2;
% if x.kmajor:
    mul.wide.u32 %t64, %t0, %ld${x.name};
    cvt.u64.u32 %u64, %k_pos;
% else:
    mul.wide.u32 %t64, %k_pos, %ld${x.name};
    cvt.u64.u32 %u64, %t0;
% endif
    add.u64 %t64, %t64, %u64;
    mad.lo.u64 %ptr_${x.name}${n}, %t64, ${x.size}, %${x.upper};
% endfor
% for n, hop in enumerate(x.hops):
    mul.wide.u32 %hop_${x.name}${n}, %ld${x.name}, ${hop * x.size};
% endfor
</%def>

## After whole passes: how much of K is left, and where it ends.
<%def name="rest()">
    sub.u32 %k_rem, %k_len, %t0;
    setp.eq.u32 %p, %k_rem, 0;
    @%p bra.uni EPILOGUE;
    add.u32 %k_pos, %k_pos, %t0;
    add.u32 %t0, %k0, %k_len;
</%def>

## What vectors do not cover: nothing, rows are of whole ones.
<%def name="ragged(math)"></%def>

## The loads of a step. go: what all of them wait for; zeros: whether registers hold zeros where that does not hold.
<%def name="load(x, step, go='', following=False, zeros=False)">
% for l in x.loads(step, following):
% if zeros:
% for r in l.names:
    mov.${x.raw.kind} ${r}, ${x.nothing};
% endfor
% endif
    ${go}ld.global.nc${x.past}.${l.kind} ${l.registers}, [${l.pointer}+${l.offset}];
% if l.hop >= 0:
% for n in range(len(x.rows)):
    ${go}add.u64 %ptr_${x.name}${n}, %ptr_${x.name}${n}, %hop_${x.name}${l.hop};
% endfor
% endif
% endfor
</%def>

## On to the next pass, where K is contiguous.
<%def name="advance(x)">
% if x.kmajor:
% for n in range(len(x.rows)):
    add.u64 %ptr_${x.name}${n}, %ptr_${x.name}${n}, ${x.stride * x.size};
% endfor
% endif
</%def>
