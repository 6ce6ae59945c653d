## Fused operations on a subtile that is stored through shared memory. An element of an array is loaded once for all sums to
## which it applies. TMA loads elementwise operands.
<%namespace name="fused" file="/epilogue/fused_ops.mako"/>
<%namespace name="fused_step" file="/epilogue/fused_step.mako"/>
<%namespace name="convert" file="/ptx/convert.mako"/>
<%namespace name="loaded" file="/epilogue/loaded_boxes.mako"/>
<%def name="setup()"></%def>

<%def name="registers()">
    // this thread's first sum, and rows and columns of C from there on
    .reg .b64 %operand_ptr;
    .reg .b32 %x_first, %y_first, %x_rem, %y_rem, %subtile_rem;
    .reg .b16 %elem16;
    .reg .f32 %elem${plan.fused_ops.aux_registers};
    .reg .pred %is_negative, %past_end, %in_bounds;
% for line in plan.fused_ops.declarations:
    ${line}
% endfor
    shr.u32 %x_first, %lane, 2;
    mad.lo.u32 %x_first, %wg_warp, 16, %x_first;
    add.u32 %x_first, %x_first, %c_x;
    and.b32 %y_first, %lane, 3;
    mad.lo.u32 %y_first, %y_first, 2, %c_y;
    sub.s32 %x_rem, ${plan.scheduler.x_extent}, %x_first;
    sub.s32 %y_rem, ${plan.scheduler.y_extent}, %y_first;
    sub.s32 %subtile_rem, ${plan.scheduler.y_extent}, %c_y;
</%def>

<%def name="scale_subtile(chunk)">
% for op in plan.fused_ops.scales:
  % for step in op.steps:
    % if step.spans == "one":
${pointer(step.array)}\
${fused.load("f32", "%operand_ptr", "")}\
      % for _, registers in chunk.along_x:
${fused_step.on_all(step, registers)}\
      % endfor
    % else:
${apply_vector(step, chunk)}\
    % endif
  % endfor
% endfor
</%def>

<%def name="finish_subtile(chunk)">
% for step in plan.fused_ops.vectors:
${apply_vector(step, chunk)}\
% endfor
</%def>

## Activations of the sums of one stmatrix. Long ones are skipped past the end of C: without a branch between them, ptxas
## would interleave all of them, and spill.
<%def name="activate(stmatrix, label)">
<% results = plan.epilogue.activated[len(stmatrix.registers)] %>\
% for op in plan.fused_ops.activations:
  % for pair, outs in zip(stmatrix.registers, results):
    % for r, out in zip(pair, outs):
    mov.f32 ${out}, ${r};
    % endfor
  % endfor
  % if op.long:
    setp.le.s32 %past_end, %subtile_rem, ${stmatrix.column};
    @%past_end bra.uni ${label};
  % endif
  % for step in op.steps:
    % if step.array:
${loaded.combine(plan.epilogue.staging, stmatrix, step, results, ("%aux_val0", "%aux_val1"))}\
    % else:
${fused_step.on_all(step, sum(results, ()))}\
    % endif
  % endfor
  % if op.long:
${label}:
  % endif
% endfor
</%def>

## Applies each element of a vector along X (or Y) to the sums of its row (or column). Nothing past the end of C is loaded.
<%def name="apply_vector(step, chunk)">
<%
    name = step.array
    ptx_type, size = plan.fused_ops.operands[name]
    side, shared = chunk.sides[plan.epilogue.side_of[step.spans]]
%>\
${pointer(name)}\
    mad.wide.u32 %operand_ptr, %${side}_first, ${size}, %operand_ptr;
% for place, registers in shared:
    setp.gt.s32 %in_bounds, %${side}_rem, ${place};
  % if ptx_type == "b16":
    mov.b16 %elem16, 0;
    @%in_bounds ld.global.nc.b16 %elem16, [%operand_ptr+${plan.fused_ops.offsets[name][place]}];
${convert.widen(plan.fused_ops.out, "%elem", "%elem16")}\
  % else:
    mov.f32 %elem, 0f00000000;
    @%in_bounds ld.global.nc.${ptx_type} %elem, [%operand_ptr+${plan.fused_ops.offsets[name][place]}];
  % endif
${fused_step.on_all(step, registers)}\
% endfor
</%def>

## Where threads access an array of the shape of C: the address that is to it what plan.batch.c_base is to C. C needs none.
<%def name="locate(array)">
% if array != "C":
${pointer(array)}\
    sub.u64 %operand_ptr, %operand_ptr, %C;
    add.u64 %operand_ptr, %operand_ptr, ${plan.batch.c_base};
% endif
</%def>

## The address of an array: loaded here, so that no register holds it during the K loop.
<%def name="pointer(name)">
    ld.param.u64 %operand_ptr, [${name}];
    cvta.to.global.u64 %operand_ptr, %operand_ptr;
% if plan.fused_ops.grouped:
    ld.global.u64 %tmp64, [%descriptor+${plan.scheduler.table.offsets[name]}];
    add.u64 %operand_ptr, %operand_ptr, %tmp64;
% endif
% if name in plan.fused_ops.of_items:
${fused.bias_of_item("%operand_ptr")}\
% endif
</%def>
