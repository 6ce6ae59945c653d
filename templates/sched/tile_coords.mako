## The coordinates of a tile: %x0, %y0: along X and Y; %k0: its first element of K; %k_iters: its K iterations.
<%def name="from_grid()">
    mov.u32 %x0, %ctaid.x;
    mov.u32 %y0, %ctaid.y;
% if plan.config.cluster_k > 1:
    div.u32 %x0, %x0, ${plan.config.cluster_k};
% endif
${to_elements()}\
</%def>

## Tiles (clusters of them) along X and Y.
<%def name="tile_counts()">
    add.u32 %tiles_x, ${plan.scheduler.x_extent}, ${plan.scheduler.last_cluster_row};
    div.u32 %tiles_x, %tiles_x, ${plan.scheduler.cluster_rows};
    add.u32 %tiles_y, ${plan.scheduler.y_extent}, ${plan.scheduler.last_cluster_column};
    div.u32 %tiles_y, %tiles_y, ${plan.scheduler.cluster_columns};
</%def>

<%def name="from_number()">
    {
    .reg .b32 %tile_index, %tile_base, %group, %group_tiles, %group_width;
% if plan.pipeline.multicast_ctas > 1:
    div.u32 %tile_index, ${plan.scheduler.tile_register}, ${plan.pipeline.multicast_ctas};
% else:
    mov.u32 %tile_index, ${plan.scheduler.tile_register};
% endif
% if plan.scheduler.raster_group == 1:
    div.u32 %y0, %tile_index, %tiles_x;
    mul.lo.u32 %tile_base, %y0, %tiles_x;
    sub.u32 %x0, %tile_index, %tile_base;
% else:
    // raster: groups of ${plan.scheduler.raster_group} tiles along X, so that neighbouring blocks read the same Y from L2
    mul.lo.u32 %group_tiles, %tiles_y, ${plan.scheduler.raster_group};
    div.u32 %group, %tile_index, %group_tiles;
    mul.lo.u32 %tile_base, %group, %group_tiles;
    sub.u32 %tile_index, %tile_index, %tile_base;
    mul.lo.u32 %group, %group, ${plan.scheduler.raster_group};
    sub.u32 %group_width, %tiles_x, %group;
    min.u32 %group_width, %group_width, ${plan.scheduler.raster_group};
    div.u32 %y0, %tile_index, %group_width;
    mul.lo.u32 %tile_base, %y0, %group_width;
    sub.u32 %x0, %tile_index, %tile_base;
    add.u32 %x0, %x0, %group;
% endif
${in_cluster()}\
    }
${to_elements()}\
</%def>

## From the tile of a cluster to that of the block.
<%def name="in_cluster()">
% if plan.config.cluster_x > 1:
    mad.lo.u32 %x0, %x0, ${plan.config.cluster_x}, ${plan.y.multicast.rank};
% endif
% if plan.config.cluster_y > 1:
    mad.lo.u32 %y0, %y0, ${plan.config.cluster_y}, ${plan.x.multicast.rank};
% endif
</%def>

<%def name="to_elements()">
    mul.lo.u32 %x0, %x0, ${plan.scheduler.x_tile};
    mul.lo.u32 %y0, %y0, ${plan.scheduler.y_tile};
</%def>

## A slice of K has %min_iters iterations, the first %extra_iters slices have one more.
<%def name="k_slice()">
% if plan.scheduler.splits_k:
  % if not plan.batch.active:
    mov.u32 %slice, %ctaid.z;
  % endif
    mov.u32 %tmp0, %slice;
  % if plan.config.cluster_k > 1:
    mad.lo.u32 %tmp0, %slice, ${plan.config.cluster_k}, %rank;
  % endif
    min.u32 %tmp1, %tmp0, %extra_iters;
    mad.lo.u32 %k0, %tmp0, %min_iters, %tmp1;
    mul.lo.u32 %k0, %k0, ${plan.config.u};
    setp.lt.u32 %p, %tmp0, %extra_iters;
    selp.b32 %k_iters, 1, 0, %p;
    add.u32 %k_iters, %k_iters, %min_iters;
% else:
    mov.u32 %k0, 0;
    mov.u32 %k_iters, %min_iters;
% endif
</%def>
