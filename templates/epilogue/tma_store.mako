## TMA stores the boxes of a tile to C, and loads C and the residual to them. It clips boxes at the edges of C.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%namespace name="convert" file="/ptx/convert.mako"/>
## The residual is loaded while the tile is multiplied.
<%def name="early()">
% if plan.epilogue.residual_early:
    {
    .reg .b32 %c_x, %c_y, %box_smem, %box_x, %box_y;
${constants.mad("%c_x", "%wg", plan.mainloop.wg_rows, "%x0")}\
    mov.b32 %c_y, %y0;
% if plan.config.persistent:
    // ---- wait: TMA has read all buffers
    @%leader cp.async.bulk.wait_group.read 0;
% endif
${load_first_residuals()}\
    }
% endif
</%def>

<%def name="load_first_residuals()">
% for c in plan.epilogue.staging.subtiles[:plan.epilogue.staging.buffers]:
${load_residual(plan.epilogue.staging, c)}\
% endfor
</%def>

<%def name="load_residual(s, c)">
    @!%leader bra RESIDUAL${c.index};
${load_boxes(s, c, "%map_residual", f"%c_bar+{s.residual_barrier(c)}")}\
RESIDUAL${c.index}:
    bar.warp.sync 0xffffffff;
</%def>

<%def name="load_boxes(s, c, source, barrier)">
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [${barrier}], ${s.subtile_bytes};
% for b in c.stores:
${box_coordinates(b)}\
    cp.async.bulk.tensor.${s.rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%box_smem], [${source}, ${operand_list(s.coordinates)}], [${barrier}];
% endfor
</%def>

## Before a buffer is written again: TMA has read the previous contents.
<%def name="acquire(s)">
    // ---- wait: TMA has read the buffer
    @%leader cp.async.bulk.wait_group.read ${s.buffers - 1};
${sync.warpgroup(plan.config.math_warpgroups)}\
</%def>

<%def name="store(s, c)">
    // ---- wait: the warpgroup has written the boxes; one thread stores them
    fence.proxy.async.shared::cta;
${sync.warpgroup(plan.config.math_warpgroups)}\
    @!%leader bra STORED${c.index};
% for b in c.stores:
${box_coordinates(b)}\
    cp.async.bulk.tensor.${s.rank}d.global.shared::cta.tile.bulk_group [%map_c, ${operand_list(s.coordinates)}], [%box_smem];
% endfor
    cp.async.bulk.commit_group;
STORED${c.index}:
    bar.warp.sync 0xffffffff;
</%def>

<%def name="finish()">
    @%leader cp.async.bulk.wait_group.read 0;
</%def>

<%def name="box_coordinates(b)">
${constants.add("%box_smem", "%staging", b.offset)}\
${constants.add("%box_x", "%c_x", b.x)}\
${constants.add("%box_y", "%c_y", b.y)}\
% if plan.epilogue.shifted_rows:
    add.u32 ${plan.epilogue.shifted_rows}, ${plan.epilogue.shifted_rows}, %row_shift;
% endif
</%def>

## + beta C: loads the subtile's boxes of C.
<%def name="load_c(s, c)">
    @!%leader bra LOADED${c.index};
${load_boxes(s, c, "%map_c", "%c_bar")}\
LOADED${c.index}:
    bar.warp.sync 0xffffffff;
    // ---- wait: TMA has loaded C
${sync.wait("%c_bar", "%c_phase")}\
    xor.b32 %c_phase, %c_phase, 1;
${merge(c, s, add_beta_c)}\
</%def>

## Adds loaded boxes to the sums.
<%def name="merge(c, s, operation)">
% for stmatrix in c.stmatrices:
    ldmatrix.sync.aligned.m8n8.x${len(stmatrix.registers)}${s.trans}.shared.b16 ${s.words(stmatrix)}, [%stmatrix_row${stmatrix.variant}+${stmatrix.offset}];
% for n, (low, high) in enumerate(stmatrix.registers):
${convert.widen_pair(plan.problem.out, "%c_val0", "%c_val1", f"%word{n}", ("%half0", "%half1"))}\
${operation(low, "%c_val0")}\
${operation(high, "%c_val1")}\
% endfor
% endfor
</%def>

<%def name="add_beta_c(r, wide)">
    fma.rn.f32 ${r}, ${wide}, %beta, ${r};
</%def>

<%def name="add_residual(r, wide)">
    add.rn.f32 ${r}, ${r}, ${wide};
</%def>
