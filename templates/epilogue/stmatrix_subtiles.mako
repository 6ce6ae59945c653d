## The epilogue stores C through shared memory: it packs sums, writes them to swizzled boxes, and stores the boxes to C. Where
## beta is not zero, C is loaded to the same boxes first.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%namespace name="boxes" file="/${context['plan'].epilogue.box_template}"/>
<%namespace name="loaded" file="/epilogue/loaded_boxes.mako"/>
<%namespace name="words" file="/${context['plan'].epilogue.words}"/>
<%namespace name="sums" file="/${context['plan'].epilogue.column_sums}"/>
<%namespace name="fused_ops" file="/${context['plan'].fused_ops.template}"/>
<%def name="setup()">
<% s = plan.epilogue.staging %>\
    // the staging buffer of this warpgroup, and the addresses to which this thread writes
    .reg .b32 %staging, %c_bar, %c_phase, ${s.written};
    .reg .pred %has_beta, %scaled;
    mad.lo.u32 %c_bar, %wg, ${plan.epilogue.barrier_bytes}, %bars;
${constants.add("%c_bar", "%c_bar", plan.pipeline.c)}\
    mov.u32 %c_phase, 0;
    mad.lo.u32 %staging, %wg, ${s.bytes}, %smem;
${constants.add("%staging", "%staging", plan.epilogue.staging_base)}\
${words.setup(s)}\
${fused_ops.setup()}\
% if plan.epilogue.prefetched:
    .reg .b32 %${plan.epilogue.prefetched}_phase;
    mov.u32 %${plan.epilogue.prefetched}_phase, 0;
% endif
</%def>

<%def name="early()">${boxes.early()}</%def>

<%def name="store_tiles(store_c, math, store_op)">
<% s, operands, prefetched = plan.epilogue.staging, plan.problem.sink.elementwise, plan.epilogue.prefetched %>\
    {
    .reg .b32 %c_x, %c_y, %box_smem, %box_x, %box_y, %word<4>;
    .reg .b16 %half<2>;
    .reg .f32 %c_val<${plan.epilogue.c_val_count}>;
${constants.mad("%c_x", "%wg", plan.mainloop.wg_rows, "%x0")}\
    mov.b32 %c_y, %y0;
    // whether C is read, and whether sums are scaled
    setp.neu.f32 %has_beta, %beta, 0f00000000;
    setp.neu.f32 %scaled, %alpha, 0f3F800000;
    or.pred %scaled, %scaled, %has_beta;
${fused_ops.registers()}\
${sums.begin()}\
% if plan.epilogue.waits_for_stages:
    // ---- wait: the staging buffers are in the stages, which all warps must have multiplied
    bar.sync 1, ${plan.epilogue.math_threads};
% endif
% if prefetched and not plan.epilogue.prefetches_early:
${boxes.prefetch_buffers()}\
% endif
% for c in s.subtiles:
    // ---- epilogue: columns ${c.first_column} to ${c.last_column}
<% loading = prefetched and c.index < s.buffers %>\
  % if c.first.reuses_buffer and not loading:
${boxes.acquire(s)}\
  % endif
  % if prefetched and not loading:
${boxes.prefetch(s, c)}\
  % endif
    @!%scaled bra.uni ${plan.epilogue.unscaled_label}${c.index};
  % for r in c.sums:
    mul.rn.f32 ${r}, ${r}, %alpha;
  % endfor
  % if plan.epilogue.scales or operands:
SCALED${c.index}:
${fused_ops.scale_subtile(c)}\
  % endif
  % if prefetched:
    // ---- wait: TMA has loaded ${"the " * (prefetched == "residual")}${prefetched}
${sync.wait(s.prefetch_barriers[c.index], f"%{prefetched}_phase")}\
    % if c.index % s.buffers == s.buffers - 1:
    xor.b32 %${prefetched}_phase, %${prefetched}_phase, 1;
    % endif
  % endif
  % if "residual" in operands:
    % if not plan.epilogue.tma:
${boxes.load_residual(s, c)}\
    % endif
${loaded.add(s, c, plan.fused_ops.residual)}\
  % endif
  % if plan.epilogue.reads_c:
    @!%has_beta bra.uni PACK${c.index};
    % if "residual" in operands:
    // ---- wait: the warpgroup has read the residual
${sync.warpgroup()}\
    % endif
${boxes.load_c(s, c.first)}\
    % if prefetched == "aux":
    // C has overwritten aux
${boxes.load_aux(s, c)}\
    % endif
  % endif
PACK${c.index}:
  % if "aux" in operands and prefetched != "aux":
${boxes.load_aux(s, c)}\
  % endif
${fused_ops.finish_subtile(c)}\
  % if c.stored_sums:
    // the sums, before the activation
${words.write_sums(s, c.stored_sums)}\
${boxes.store(s, c.stored_sums, "sums")}\
    % if c.reuses_buffer:
${boxes.acquire(s)}\
    % endif
  % endif
${sums.begin_columns()}\
${words.write(s, c)}\
${sums.end_columns(c.index)}\
${boxes.store(s, c)}\
% endfor
${sums.end()}\
    }
</%def>

<%def name="finish()">${boxes.finish()}</%def>
