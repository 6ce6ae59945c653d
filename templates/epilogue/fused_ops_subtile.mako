## What follows the product, on sums that leave by TMA: an element of an array is read once for all sums that it meets. The
## residual comes as C does.
<%namespace name="fused" file="/epilogue/fused_ops.mako"/>
<%namespace name="convert" file="/ptx/convert.mako"/>
<%def name="setup()"></%def>

<%def name="registers()">
    // this thread's first sum, and how much of C is left from there
    .reg .b64 %near;
    .reg .b32 %x_first, %y_first, %left_x, %left_y, %left;
    .reg .b16 %one;
    .reg .f32 %v;
    .reg .pred %low, %in;
    shr.u32 %x_first, %lane, 2;
    mad.lo.u32 %x_first, %quarter, 16, %x_first;
    add.u32 %x_first, %x_first, %x;
    and.b32 %y_first, %lane, 3;
    mad.lo.u32 %y_first, %y_first, 2, %y;
    sub.s32 %left_x, ${plan.x_extent}, %x_first;
    sub.s32 %left_y, ${plan.y_extent}, %y_first;
    sub.s32 %left, ${plan.y_extent}, %y;
</%def>

<%def name="scale_subtile(chunk)">
% for stage in plan.problem.stages:
% if stage == "scale":
% for name in ("scale_a", "scale_b"):
${pointer(name)}\
${fused.load("f32", "%near", "")}\
% for _, registers in chunk.along_x:
${fused.apply(plan.mul, registers)}\
% endfor
% endfor
% elif stage == "scale_rows":
${each("scale_a", plan.mul, chunk, not plan.swapped)}\
${each("scale_b", plan.mul, chunk, plan.swapped)}\
% endif
% endfor
</%def>

<%def name="finish_subtile(chunk)">
% for stage in plan.problem.stages:
% if stage.startswith("bias"):
${each("bias", plan.add, chunk, (stage == "bias_row") != plan.swapped)}\
% endif
% endfor
</%def>

## Activations, of one put at a time. What lies past the end has no long one: without a branch between many of these,
## ptxas would have all under way at once.
<%def name="activate(put, label)">
<%
    curves = dict(relu=fused.relu, gelu=fused.gelu, silu=fused.silu)
    to = sum(plan.results(put), ())
%>\
% for stage in plan.problem.stages:
% if stage in curves:
% for r, out in zip(sum(put.registers, ()), to):
    mov.f32 ${out}, ${r};
% endfor
% if stage != "relu":
    setp.le.s32 %low, %left, ${put.column};
    @%low bra.uni ${label};
% endif
${curves[stage](to, "", 0, "", None, None)}\
% if stage != "relu":
${label}:
% endif
% endif
% endfor
</%def>

## Each element of a vector that lies along X, or else Y, to the sums that share its place; none past the end is read.
<%def name="each(name, operation, chunk, along_x)">
<%
    side, shared = ("x", chunk.along_x) if along_x else ("y", chunk.along_y)
    kind, size = plan.arrays[name]
%>\
${pointer(name)}\
    mad.wide.u32 %near, %${side}_first, ${size}, %near;
% for place, registers in shared:
    setp.gt.s32 %in, %left_${side}, ${place};
% if kind == "b16":
    mov.b16 %one, 0;
    @%in ld.global.nc.b16 %one, [%near+${place * size}];
${convert.widen(plan.problem.out, "%v", "%one")}\
% else:
    mov.f32 %v, 0f00000000;
    @%in ld.global.nc.${kind} %v, [%near+${place * size}];
% endif
${fused.apply(operation, registers)}\
% endfor
</%def>

## Not kept in registers while the tile is multiplied.
<%def name="pointer(name)">
    ld.param.u64 %near, [${name}];
    cvta.to.global.u64 %near, %near;
</%def>
