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
% if plan.config.epilogue_aliases_ab and plan.config.math_warpgroups > 1:
    // ---- wait: the staging buffers are in the stages, which all warpgroups must have multiplied
    bar.sync 1, ${128 * plan.config.math_warpgroups};
% endif
% for c in s.subtiles:
    // ---- epilogue: columns ${c.index * s.columns} to ${(c.index + 1) * s.columns - 1}
  % if c.reuses_buffer:
${boxes.acquire(s)}\
  % endif
  % for groups in v.batches(s.groups(c)):
    {
${fragments.begin_batch(groups)}\
    % for stmatrix in s.of_groups(c, groups):
    {
    .reg .f32 %staged<${2 * len(stmatrix.registers)}>;
${values(stmatrix, groups)}\
      % for n in range(len(stmatrix.registers)):
    cvt.rn.${plan.problem.out}x2.f32 %word${n}, %staged${2 * n + 1}, %staged${2 * n};
      % endfor
    stmatrix.sync.aligned.m8n8.x${len(stmatrix.registers)}${s.trans}.shared.b16 [%stmatrix_row${stmatrix.variant}+${stmatrix.offset}], ${s.words(stmatrix)};
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
  % for n in range(2 * len(stmatrix.registers)):
    mov.f32 %staged${n}, 0f00000000;
  % endfor
    sub.s32 %tmp0, ${plan.scheduler.y_extent}, %c_y;
    setp.le.s32 %past_end, %tmp0, ${stmatrix.column};
    @%past_end bra.uni STAGED;
% endif
% for n, sums in enumerate(stmatrix.fragments):
    {
${fragments.declare()}\
${fragments.compute(stmatrix.row // 64, stmatrix.column // 8 + n, groups.index(stmatrix.column // 8 + n), sums)}\
  % for q, r in enumerate(v.of(0)):
    mov.f32 %staged${4 * n + q}, ${r};
  % endfor
    }
% endfor
% if v.long:
STAGED:
% endif
</%def>
