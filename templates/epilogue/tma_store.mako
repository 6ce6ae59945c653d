## Boxes of a tile by TMA, which clips them: to C, and what C and the residual hold to the sums.
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%namespace name="convert" file="/ptx/convert.mako"/>
## The residual is under way while the tile is multiplied.
<%def name="early()">
% if plan.brings_early:
    {
    .reg .b32 %x, %y, %at, %x_at, %y_at;
    mad.lo.u32 %x, %wg, ${plan.x_own}, %x0;
    mov.b32 %y, %y0;
% if plan.config.persistent:
    @%leader cp.async.bulk.wait_group.read 0;
% endif
${bring_first()}\
    }
% endif
</%def>

<%def name="bring_first()">
% for c in plan.staging.chunks[:plan.staging.buffers]:
${bring(plan.staging, c)}\
% endfor
</%def>

<%def name="bring(s, c)">
    @!%leader bra BRINGS${c.index};
${boxes(s, c, "%map_residual", f"%got+{s.brought(c)}")}\
BRINGS${c.index}:
    bar.warp.sync 0xffffffff;
</%def>

<%def name="boxes(s, c, source, barrier)">
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [${barrier}], ${s.size};
% for b in c.stores:
${place(b)}\
    cp.async.bulk.tensor.${s.rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%at], [${source}, ${plan.operand_list(s.coordinates)}], [${barrier}];
% endfor
</%def>

## Before a part's memory is written again: what was sent from there has been read.
<%def name="free(s)">
    @%leader cp.async.bulk.wait_group.read ${s.buffers - 1};
${sync.warpgroup(plan.wg)}\
</%def>

<%def name="send(s, c)">
    fence.proxy.async.shared::cta;
${sync.warpgroup(plan.wg)}\
    @!%leader bra SENT${c.index};
% for b in c.stores:
${place(b)}\
    cp.async.bulk.tensor.${s.rank}d.global.shared::cta.tile.bulk_group [%map_c, ${plan.operand_list(s.coordinates)}], [%at];
% endfor
    cp.async.bulk.commit_group;
SENT${c.index}:
    bar.warp.sync 0xffffffff;
</%def>

<%def name="finish()">
    @%leader cp.async.bulk.wait_group.read 0;
</%def>

<%def name="place(b)">
    add.u32 %at, %staging, ${b.offset};
    add.u32 %x_at, %x, ${b.x};
    add.u32 %y_at, %y, ${b.y};
</%def>

## + beta C: the boxes of the chunk, as they are in memory.
<%def name="fetch(s, c)">
    @!%leader bra FETCHED${c.index};
${boxes(s, c, "%map_c", "%got")}\
FETCHED${c.index}:
    bar.warp.sync 0xffffffff;
${sync.wait("%got", "%got_phase")}\
    xor.b32 %got_phase, %got_phase, 1;
${merge(c, s, weighted)}\
</%def>

## What boxes brought, put to sums.
<%def name="merge(c, s, operation)">
% for put in c.puts:
    ldmatrix.sync.aligned.m8n8.x${len(put.registers)}${s.trans}.shared.b16 ${s.words(put)}, [%put${put.variant}+${put.offset}];
% for n, (low, high) in enumerate(put.registers):
${convert.widen_pair(plan.problem.out, "%wide0", "%wide1", f"%word{n}", ("%half0", "%half1"))}\
${operation(low, "%wide0")}\
${operation(high, "%wide1")}\
% endfor
% endfor
</%def>

<%def name="weighted(r, wide)">
    fma.rn.f32 ${r}, ${wide}, %beta, ${r};
</%def>

<%def name="added(r, wide)">
    add.rn.f32 ${r}, ${r}, ${wide};
</%def>
