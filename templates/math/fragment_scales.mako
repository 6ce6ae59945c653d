## Scales and zero points of a thread's rows of weights. The scales multiply the dequantized weights of their group; those of the
## next group are loaded meanwhile.
<%namespace name="groups" file="/math/group_scales.mako"/>
<%def name="setup()">
${groups.setup()}\
</%def>

<%def name="begin()">
${groups.begin()}\
</%def>

## The zero points and the scales of the group that begins.
<%def name="begin_zero_points()">
${groups.begin_zero_points()}\
% for scale, loaded in plan.scales.loaded:
    mov.b32 ${scale}, {${loaded}, ${loaded}};
% endfor
% if plan.scales.ends_within_stage:
    // past the end of K activations are zero, and so are scales
    setp.gt.u32 %p, %group, %last_group;
  % for r in plan.scales.scale.all:
    selp.b32 ${r}, 0, ${r}, %p;
  % endfor
% endif
</%def>

## Loads the scales of the next group.
<%def name="begin_scales()">
    add.u32 %group, %group, 1;
${groups.load()}\
</%def>

## The fragment register x of a row times the scale of the row.
<%def name="scale_weights(x)">
    mul.rn.${plan.mainloop.fragments.dtype}x2 ${x.to[0]}, ${x.to[0]}, ${plan.scales.scale[x.row]};
</%def>

<%def name="scale_rows()"></%def>
