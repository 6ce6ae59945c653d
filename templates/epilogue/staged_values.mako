## C = the value of an expression, through shared memory: values are computed in registers, packed, written by stmatrix to
## swizzled boxes, and the boxes are stored to C.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="boxes" file="/${context['plan'].epilogue.box_template}"/>
<%namespace name="staging" file="/epilogue/stmatrix_subtiles.mako"/>
<%namespace name="fragments" file="/epilogue/fragment_values.mako"/>
<%def name="setup()">${staging.setup()}</%def>
<%def name="early()"></%def>
<%def name="finish()">${boxes.finish()}</%def>

<%def name="store_tiles(store_c, math, store_op)">
<% s, v = plan.epilogue.staging, plan.values %>\
    {
    .reg .b32 %c_x, %c_y, %box_smem, %box_x, %box_y, %word<4>;
${constants.mad("%c_x", "%wg", plan.mainloop.wg_rows, "%x0")}\
    mov.b32 %c_y, %y0;
${fragments.setup()}\
% if plan.epilogue.waits_for_stages:
    // ---- wait: the staging buffers are in the stages, which all warpgroups must have multiplied
    bar.sync 1, ${plan.epilogue.math_threads};
% endif
% for c in s.subtiles:
    // ---- epilogue: columns ${c.first_column} to ${c.last_column}
  % if c.reuses_buffer:
${boxes.acquire(s)}\
  % endif
  % for groups in v.batches(s.groups(c)):
    {
${fragments.begin_batch(groups)}\
    % for stmatrix in s.of_groups(c, groups):
    {
    .reg .f32 %staged<${stmatrix.accumulators}>;
${values(stmatrix, groups)}\
      % for n, (low, high) in enumerate(stmatrix.staged_pairs):
    cvt.rn.${plan.problem.out}x2.f32 %word${n}, ${high}, ${low};
      % endfor
    stmatrix.sync.aligned.m8n8.x${len(stmatrix.registers)}${s.trans}.shared.b16 [%stmatrix_row${stmatrix.variant}+${stmatrix.offset}], ${stmatrix.words};
    }
    % endfor
    }
  % endfor
${boxes.store(s, c)}\
% endfor
    }
</%def>

## The values of the sums of one stmatrix. Those that take many instructions are skipped past the end of C: without a branch
## between them, ptxas would interleave all of them.
<%def name="values(stmatrix, groups)">
<% v = plan.values %>\
% if v.long:
    .reg .pred %past_end;
  % for n in range(stmatrix.accumulators):
    mov.f32 %staged${n}, 0f00000000;
  % endfor
    sub.s32 %tmp0, ${plan.scheduler.y_extent}, %c_y;
    setp.le.s32 %past_end, %tmp0, ${stmatrix.column};
    @%past_end bra.uni STAGED;
% endif
% for m, j, sums, staged in stmatrix.fragments:
    {
${fragments.declare()}\
${fragments.compute(m, j, groups.index(j), sums)}\
  % for to, r in zip(staged, v.tiles[0].all):
    mov.f32 ${to}, ${r};
  % endfor
    }
% endfor
% if v.long:
STAGED:
% endif
</%def>
