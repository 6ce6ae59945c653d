## TMA stores the boxes of a tile to C, and loads C and elementwise operands to the boxes. It clips boxes at the edges of C.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%namespace name="loaded" file="/epilogue/loaded_boxes.mako"/>
## The prefetched operand is loaded while the tile is multiplied.
<%def name="early()">
% if plan.epilogue.prefetches_early:
    {
    .reg .b32 %c_x, %c_y, %box_smem, %box_x, %box_y;
${constants.mad("%c_x", "%wg", plan.mainloop.wg_rows, "%x0")}\
    mov.b32 %c_y, %y0;
  % if plan.config.persistent:
    // ---- wait: TMA has read all buffers
    @%leader cp.async.bulk.wait_group.read 0;
  % endif
${prefetch_buffers()}\
    }
% endif
</%def>

<%def name="prefetch_buffers()">
% for c in plan.epilogue.staging.subtiles[:plan.epilogue.staging.buffers]:
${prefetch(plan.epilogue.staging, c)}\
% endfor
</%def>

<%def name="prefetch(s, c)">
<% name = plan.epilogue.prefetched %>\
    @!%leader bra ${name.upper()}${c.index};
${load_boxes(s, c, f"%map_{name}", s.prefetch_barriers[c.index])}\
${name.upper()}${c.index}:
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
    @%leader cp.async.bulk.wait_group.read ${s.other_buffers};
${sync.warpgroup()}\
</%def>

<%def name="store(s, c, array='C')">
    // ---- wait: the warpgroup has written the boxes; one thread stores them
    fence.proxy.async.shared::cta;
${sync.warpgroup()}\
    @!%leader bra STORED${c.label};
% for b in c.stores:
${box_coordinates(b)}\
    cp.async.bulk.tensor.${s.rank}d.global.shared::cta.tile.bulk_group [${plan.epilogue.stored_maps[array]}, ${operand_list(s.coordinates)}], [%box_smem];
% endfor
    cp.async.bulk.commit_group;
STORED${c.label}:
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
${load(s, c, "%map_c", "C", f"LOADED{c.label}")}\
${loaded.add(s, c, None)}\
</%def>

## Loads aux to the subtile's boxes, whose contents the warpgroup has read.
<%def name="load_aux(s, c)">
    // ---- wait: the warpgroup has read the boxes
${sync.warpgroup()}\
${load(s, c, "%map_aux", "aux", f"LOADED_AUX{c.index}")}\
</%def>

<%def name="load(s, c, source, name, label)">
    @!%leader bra ${label};
${load_boxes(s, c, source, "%c_bar")}\
${label}:
    bar.warp.sync 0xffffffff;
    // ---- wait: TMA has loaded ${name}
${sync.wait("%c_bar", "%c_phase")}\
    xor.b32 %c_phase, %c_phase, 1;
</%def>
