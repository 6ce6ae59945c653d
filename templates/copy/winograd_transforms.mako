## Winograd's transforms of filters (or result gradients) and of images. Each makes matrices in the workspace, one for each
## point of a transformed patch. Elements that pad the matrices are zero.
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%namespace name="tiles" file="/addr/winograd_tiles.mako"/>
<%namespace name="minimal" file="/${context['plan'].packing.minimal_filtering}"/>
<%namespace name="patches" file="/${context['plan'].packing.patch_points}"/>
<%def name="operand_addresses()">
    // A, B and C are ${plan.packing.product.points} matrices each in the workspace: transformed ${plan.packing.tensors}, and their products
% for x in "ABC":
    ld.param.u32 %tmp0, [offset128_${x.lower()}];
    mad.wide.u32 %${x}, %tmp0, ${plan.packing.ROW}, %workspace;
% endfor
    mov.f32 %beta, 0f00000000;
</%def>

<%def name="entries()">
% for operand in plan.packing.filters:
${filters(operand)}\
% endfor
% for t in plan.packing.gradients:
${pixels(t, minimal.operand_points)}\
% endfor
${pixels(plan.packing.images, patches.image_points)}\
</%def>

<%def name="filters(operand)">
<% x = plan.packing %>\

// C = A B of ${x.product.points} matrices of transformed filters: each thread transforms the filter of a channel
.visible .entry ${plan.entry}_transform_filters(
${parameters("transform_filters")}\
)
.maxntid ${x.THREADS}, 1, 1
{
${registers(x.FILTER_NUMBERS, operand)}\
    .reg .b32 %filter, %channel, %thread;
    ${x.taps.declaration}
${pdl.trigger_and_wait()}\
    // lanes of a warp are along ${x.LANES_FILTERS} filters and ${x.LANES_CHANNELS} channels, warps along filters
    mov.u32 %thread, %tid.x;
    bfe.u32 %channel, %thread, ${x.LOG2_LANES_FILTERS}, ${x.LOG2_LANES_CHANNELS};
    mov.u32 %tmp0, %ctaid.y;
    mad.lo.u32 %channel, %tmp0, ${x.LANES_CHANNELS}, %channel;
    bfe.u32 %filter, %thread, 0, ${x.LOG2_LANES_FILTERS};
    shr.u32 %tmp0, %thread, ${x.LOG2_WARP};
    mad.lo.u32 %filter, %tmp0, ${x.LANES_FILTERS}, %filter;
    mov.u32 %tmp0, %ctaid.x;
    mad.lo.u32 %filter, %tmp0, ${x.BLOCK_FILTERS}, %filter;
    setp.ge.u32 %p, %filter, %matrix_filters;
    @%p bra DONE;
    setp.ge.u32 %p, %channel, %matrix_channels;
    @%p bra DONE;
    setp.lt.u32 %p, %filter, %filters;
    setp.lt.and.u32 %p, %channel, %channels, %p;
    mad.lo.s32 %tmp0, %filter, %filter_step, %first_tap;
    mad.lo.s32 %tmp0, %channel, %channel_step, %tmp0;
    mad.wide.s32 %row_addr, %tmp0, 4, %tensor;
    mul.wide.s32 %row_bytes, %row_step, 4;
    mul.wide.s32 %column_bytes, %column_step, 4;
% for i in range(3):
    mov.b64 %global_addr, %row_addr;
  % for j in range(3):
    mov.f32 ${x.taps[i, j]}, 0f00000000;
    @%p ld.global.nc.f32 ${x.taps[i, j]}, [%global_addr];
    % if j < 2:
    add.s64 %global_addr, %global_addr, %column_bytes;
    % endif
  % endfor
  % if i < 2:
    add.s64 %row_addr, %row_addr, %row_bytes;
  % endif
% endfor
    // G g, then (G g) G^T
% for taps, transformed in zip(x.taps.columns, x.rows.columns):
${minimal.operand_points(taps, transformed)}\
% endfor
% for transformed, elements in zip(x.rows.rows, x.patch.rows):
${minimal.operand_points(transformed, elements)}\
% endfor
    mad.lo.u32 %tmp0, %channel, %matrix_filters, %filter;
${store_points()}\
DONE:
    ret;
}
</%def>

## ``points``: the def that computes the points of a row or column.
<%def name="pixels(t, points)">
<% x = plan.packing %>\

// C = A B of ${x.product.points} matrices of transformed ${t.tensor}: each thread transforms ${t.pixels} of ${x.threads.channels} channels
.visible .entry ${plan.entry}_${t.name}(
${parameters(t.name)}\
)
.maxntid ${x.THREADS}, 1, 1
{
${registers(x.tile_numbers, t.operand)}\
${tiles.registers()}\
    .reg .b32 %row, %column, %channel_offset;
    .reg .pred %in_channels, %in_row<${t.extent}>;
${pdl.trigger_and_wait()}\
${tiles.tile_and_channel(x.threads, "%matrix_tiles", "%matrix_channels")}\
    // the patch's first pixel; a tile that pads the matrices has a row outside the image
    shl.b32 %row, %tile_row, ${x.log2_tile};
    add.s32 %row, %row, %first_row;
    shl.b32 %column, %tile_column, ${x.log2_tile};
    add.s32 %column, %column, %first_column;
    mul.lo.s32 %tmp0, %image, %image_step;
    mad.lo.s32 %tmp0, %row, %row_step, %tmp0;
    mad.lo.s32 %tmp0, %column, %column_step, %tmp0;
    mad.lo.s32 %tmp0, %channel, %channel_step, %tmp0;
    mad.wide.s32 %tensor, %tmp0, 4, %tensor;
    mul.wide.s32 %row_bytes, %row_step, 4;
    mul.wide.s32 %column_bytes, %column_step, 4;
    setp.lt.u32 %p, %tile, %tiles;
    selp.b32 %row, %row, 0x40000000, %p;
% for n in x.threads.channel_offsets:
    // channel ${n} from the first
  % if n:
    add.u32 %channel, %channel, ${x.threads.lanes};
    setp.ge.u32 %p, %channel, %matrix_channels;
    @%p bra DONE;
    mul.lo.s32 %tmp0, %channel_step, ${x.threads.lanes};
    mad.wide.s32 %tensor, %tmp0, 4, %tensor;
  % endif
    setp.lt.u32 %in_channels, %channel, %channels;
    mov.b64 %row_addr, %tensor;
  % for i in range(t.extent):
    add.s32 %tmp0, %row, ${i};
    setp.lt.and.u32 %in_row${i}, %tmp0, %height, %in_channels;
    mov.b64 %global_addr, %row_addr;
    % for j in range(t.extent):
    add.s32 %tmp0, %column, ${j};
    setp.lt.and.u32 %p, %tmp0, %width, %in_row${i};
    mov.f32 ${x.patch[i, j]}, 0f00000000;
    @%p ld.global.nc.f32 ${x.patch[i, j]}, [%global_addr];
      % if j < t.extent - 1:
    add.s64 %global_addr, %global_addr, %column_bytes;
      % endif
    % endfor
    % if i < t.extent - 1:
    add.s64 %row_addr, %row_addr, %row_bytes;
    % endif
  % endfor
    // ${t.formula}
  % for column, transformed in zip(x.patch.columns[:t.extent], x.rows.columns):
${points(column, transformed)}\
  % endfor
  % for transformed, elements in zip(x.rows.rows, x.patch.rows):
${points(transformed, elements)}\
  % endfor
    mul.lo.u32 %tmp0, %tile, %tile_step;
    mad.lo.u32 %tmp0, %channel, %depth_step, %tmp0;
${store_points()}\
% endfor
DONE:
    ret;
}
</%def>

<%def name="parameters(kernel)">
% for line in plan.packing.kernels[kernel].declarations:
    ${line}
% endfor
</%def>

<%def name="registers(names, operand)">
    .reg .b64 %tensor, %workspace, %matrix, %matrix_bytes, %row_bytes, %column_bytes, %row_addr, %global_addr;
    .reg .b32 ${", ".join(f"%{name}" for name in names)}, %tmp0;
    .reg .pred %p;
    ${plan.packing.patch.declaration}
    ${plan.packing.rows.declaration}
    ld.param.u64 %tensor, [${operand}];
    ld.param.u64 %workspace, [W];
    cvta.to.global.u64 %tensor, %tensor;
    cvta.to.global.u64 %workspace, %workspace;
    ld.param.u64 %matrix_bytes, [matrix_bytes];
% for name in names:
    ld.param.u32 %${name}, [${name}];
% endfor
    mad.wide.u32 %matrix, %matrix_offset128, ${plan.packing.ROW}, %workspace;
</%def>

## Stores the points to element %tmp0 of the matrices.
<%def name="store_points()">
    mad.wide.u32 %global_addr, %tmp0, 4, %matrix;
% for n, element in enumerate(plan.packing.patch.all):
    st.global.f32 [%global_addr], ${element};
  % if n < plan.packing.product.points - 1:
    add.s64 %global_addr, %global_addr, %matrix_bytes;
  % endif
% endfor
</%def>
