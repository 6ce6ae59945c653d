## The tile of C and the slice of K that a block computes.
## more: an instruction that loads a further parameter.
<%def name="parameters(more='')">
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];  ld.param.u32 %K, [K];  ld.param.u32 %k_slice, [k_slice];
    ld.param.u32 %lda, [lda];  ld.param.u32 %ldb, [ldb];  ld.param.u32 %ldc, [ldc];${more}
% for group in plan.scalars:
    ${group.load}
% endfor
</%def>

## Before and after the work of a block on a tile.
<%def name="open()"></%def>
<%def name="close()"></%def>

<%def name="tile()">
% if plan.scheduler.raster_group == 1:
    mov.u32 %m0, %ctaid.x;
    mov.u32 %n0, %ctaid.y;
% else:
    { // raster: groups of ${plan.scheduler.raster_group} tiles along M, so that neighbouring blocks read the same B from L2
    .reg .b32 %tiles_m, %tiles_n, %tile_index, %group, %group_tiles, %group_width;
    add.u32 %tiles_m, %M, ${plan.scheduler.last_row};
    div.u32 %tiles_m, %tiles_m, ${plan.config.ml};
    add.u32 %tiles_n, %N, ${plan.scheduler.last_column};
    div.u32 %tiles_n, %tiles_n, ${plan.config.nl};
    mov.u32 %tile_index, %ctaid.x;
${raster_order()}\
    }
% endif
${to_elements()}\
</%def>

## The tile from its number %tile_index, where there are %tiles_m tiles along M and %tiles_n along N.
<%def name="raster_order()">
    mul.lo.u32 %group_tiles, %tiles_n, ${plan.scheduler.raster_group};
    div.u32 %group, %tile_index, %group_tiles;
    mul.lo.u32 %tmp0, %group, %group_tiles;
    sub.u32 %tile_index, %tile_index, %tmp0;
    mul.lo.u32 %group, %group, ${plan.scheduler.raster_group};
    sub.u32 %group_width, %tiles_m, %group;
    min.u32 %group_width, %group_width, ${plan.scheduler.raster_group};
    div.u32 %n0, %tile_index, %group_width;
    mul.lo.u32 %tmp0, %n0, %group_width;
    sub.u32 %m0, %tile_index, %tmp0;
    add.u32 %m0, %m0, %group;
</%def>

<%def name="to_elements()">
    mul.lo.u32 %m0, %m0, ${plan.config.ml};
    mul.lo.u32 %n0, %n0, ${plan.config.nl};
</%def>

## %k0: the first k of the slice; %k_len: its length. ``known``: whether %slice is set.
<%def name="k_slice(known=False)">
% if plan.reduction.active:
  % if not known and not plan.batch.active:
    mov.u32 %slice, %ctaid.z;
  % endif
    mul.lo.u32 %k0, %slice, %k_slice;
    sub.u32 %k_len, %K, %k0;
    min.u32 %k_len, %k_len, %k_slice;
% else:
    mov.u32 %k0, 0;
    mov.u32 %k_len, %K;
% endif
</%def>

<%def name="k_iterations(known=False)">
${k_slice(known)}\
${iterations()}\
</%def>

## %k_iters, and %k_rem, the length of the first iteration, of %k_len.
<%def name="iterations()">
    // K iterations of ${plan.config.u}; the first one holds the remainder, 1 to ${plan.config.u}
    add.u32 %k_iters, %k_len, ${plan.scheduler.last_k};
    div.u32 %k_iters, %k_iters, ${plan.config.u};
    sub.u32 %k_rem, %k_iters, 1;
    mul.lo.u32 %k_rem, %k_rem, ${plan.config.u};
    sub.u32 %k_rem, %k_len, %k_rem;
</%def>

## Every warp multiplies: a block computes one tile, so warps without an element of C have no other work.
<%def name="finish_sums()"></%def>
<%def name="choose_loop(copy_loop)"></%def>
<%def name="other_loops(copy_loop, k_loop, copies)"></%def>
