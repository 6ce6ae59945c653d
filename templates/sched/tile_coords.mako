## From the number of a block or a tile to its place in C: %x0, %y0 along X and Y, %k0 and %passes along K.
<%def name="of_block()">
    mov.u32 %x0, %ctaid.x;
    mov.u32 %y0, %ctaid.y;
% if plan.kc > 1:
    div.u32 %x0, %x0, ${plan.kc};
% endif
${scaled()}\
</%def>

## Tiles (clusters of them) along X and Y.
<%def name="counts()">
    add.u32 %across, ${plan.x_extent}, ${plan.x_tile * plan.cluster - 1};
    div.u32 %across, %across, ${plan.x_tile * plan.cluster};
    add.u32 %down, ${plan.y_extent}, ${plan.y_tile * plan.yc - 1};
    div.u32 %down, %down, ${plan.y_tile * plan.yc};
</%def>

<%def name="of_number()">
    {
    .reg .b32 %id, %r, %group, %span, %high;
% if plan.sharing > 1:
    div.u32 %id, ${plan.tile_number}, ${plan.sharing};
% else:
    mov.u32 %id, ${plan.tile_number};
% endif
% if plan.raster_group == 1:
    div.u32 %y0, %id, %across;
    mul.lo.u32 %r, %y0, %across;
    sub.u32 %x0, %id, %r;
% else:
    // groups of ${plan.raster_group} along X are walked together, so that neighbours share Y
    mul.lo.u32 %span, %down, ${plan.raster_group};
    div.u32 %group, %id, %span;
    mul.lo.u32 %r, %group, %span;
    sub.u32 %id, %id, %r;
    mul.lo.u32 %group, %group, ${plan.raster_group};
    sub.u32 %high, %across, %group;
    min.u32 %high, %high, ${plan.raster_group};
    div.u32 %y0, %id, %high;
    mul.lo.u32 %r, %y0, %high;
    sub.u32 %x0, %id, %r;
    add.u32 %x0, %x0, %group;
% endif
% if plan.cluster > 1:
    mad.lo.u32 %x0, %x0, ${plan.cluster}, ${plan.y.shared.mine};
% endif
% if plan.yc > 1:
    mad.lo.u32 %y0, %y0, ${plan.yc}, ${plan.x.shared.mine};
% endif
    }
${scaled()}\
</%def>

<%def name="scaled()">
    mul.lo.u32 %x0, %x0, ${plan.x_tile};
    mul.lo.u32 %y0, %y0, ${plan.y_tile};
</%def>

## Slice s takes %chunk passes over K, the first %more slices one more.
<%def name="slice()">
% if plan.slices_k:
% if not plan.batched:
    mov.u32 %z, %ctaid.z;
% endif
    mov.u32 %t0, %z;
% if plan.kc > 1:
    mad.lo.u32 %t0, %z, ${plan.kc}, %rank;
% endif
    min.u32 %t1, %t0, %more;
    mad.lo.u32 %k0, %t0, %chunk, %t1;
    mul.lo.u32 %k0, %k0, ${plan.config.u};
    setp.lt.u32 %p, %t0, %more;
    selp.b32 %passes, 1, 0, %p;
    add.u32 %passes, %passes, %chunk;
% else:
    mov.u32 %k0, 0;
    mov.u32 %passes, %chunk;
% endif
</%def>
