## Winograd's transform of the products: results, or weight gradients, from the matrices of products in the workspace, with the
## epilogue of the convolution. A weight gradient is stored like an image of one tile; each row of C, a filter (or channel), is
## such an image.
<%namespace name="pdl" file="/ptx/pdl.mako"/>\
<%namespace name="tiles" file="/addr/winograd_tiles.mako"/>\
<%namespace name="c_elements" file="/epilogue/c_elements.mako"/>\
<%namespace name="fused_ops" file="/${context['plan'].fused_ops.template}"/>\
<%namespace name="minimal" file="/${context['plan'].minimal_filtering}"/>\
<% x = plan %>\

// C = A B + beta C, transformed to results: each thread computes ${x.extent} x ${x.extent} results of ${x.threads.channels} channels
.visible .entry ${plan.entry}_transform_results(
% for line in x.parameter_list().declarations:
    ${line}
% endfor
)
.maxntid ${x.THREADS}, 1, 1
% if x.min_ctas_per_sm:
.minnctapersm ${x.min_ctas_per_sm}
% endif
{
    .reg .b64 %C, %c_addr, %workspace, %matrix, %matrix_bytes, %row_bytes, %column_bytes, %tile_addr, %global_addr, %tmp64;
    .reg .b32 ${x.number_registers}, %tmp0, %row, %column;
    .reg .pred %p, %has_beta, %in_bounds, %add_c, %in_row<${x.extent}>, %in_column<${x.extent}>;
    .reg .f32 %beta;
${tiles.registers()}\
% if x.sums_slices:
    .reg .b64 %slice_bytes, %slice_addr;
    .reg .b32 %slice;
    ${x.addends.declaration}
% endif
    ${x.products.declaration}
    ${x.rows.declaration}
    ${x.results.declaration}
    ${x.c.declaration}
    ld.param.u64 %C, [C];
    ld.param.u64 %workspace, [W];
    cvta.to.global.u64 %C, %C;
    cvta.to.global.u64 %workspace, %workspace;
    ld.param.u64 %matrix_bytes, [matrix_bytes];
% for name in x.numbers:
    ld.param.u32 %${name}, [${name}];
% endfor
    ld.param.f32 %beta, [beta];
${fused_ops.setup()}\
    mad.wide.u32 %matrix, %matrix_offset128, ${x.ROW}, %workspace;
${pdl.trigger_and_wait()}\
${tiles.tile_and_channel(x.threads, "%tiles", "%channels")}\
    setp.neu.f32 %has_beta, %beta, 0f00000000;
    // the tile's first result; its last row and column may be outside
    shl.b32 %row, %tile_row, ${x.log2_tile};
    shl.b32 %column, %tile_column, ${x.log2_tile};
    mul.lo.u32 %tmp0, %image, %image_step;
    mad.lo.u32 %tmp0, %row, %row_step, %tmp0;
    mad.lo.u32 %tmp0, %column, %column_step, %tmp0;
    mad.lo.u32 %tmp0, %channel, %channel_step, %tmp0;
    mad.wide.u32 %tile_addr, %tmp0, 4, %C;
    mul.wide.u32 %row_bytes, %row_step, 4;
    mul.wide.u32 %column_bytes, %column_step, 4;
% for i in range(x.extent):
    add.u32 %tmp0, %row, ${i};
    setp.lt.u32 %in_row${i}, %tmp0, %height;
    add.u32 %tmp0, %column, ${i};
    setp.lt.u32 %in_column${i}, %tmp0, %width;
% endfor
% for n, channel in enumerate(x.threads.channel_offsets):
    // channel ${channel} from the first
  % if n:
    add.u32 %channel, %channel, ${x.threads.lanes};
    setp.ge.u32 %p, %channel, %channels;
    @%p bra DONE;
    mul.lo.u32 %tmp0, %channel_step, ${x.threads.lanes};
    mad.wide.u32 %tile_addr, %tmp0, 4, %tile_addr;
  % endif
    mul.lo.u32 %tmp0, %tile, %tile_step;
    mad.lo.u32 %tmp0, %channel, %depth_step, %tmp0;
    mad.wide.u32 %global_addr, %tmp0, 4, %matrix;
  % if x.sums_slices:
    mov.b64 %slice_addr, %global_addr;
${load_products(x.products)}\
    // the products of the other slices, in their order
    mul.lo.u64 %slice_bytes, %matrix_bytes, ${x.product.points};
    mov.u32 %slice, 1;
ADD_SLICE${n}:
    setp.ge.u32 %p, %slice, %slices;
    @%p bra ADDED${n};
    add.u64 %slice_addr, %slice_addr, %slice_bytes;
    mov.b64 %global_addr, %slice_addr;
${load_products(x.addends)}\
    % for element, addend in zip(x.products.all, x.addends.all):
    add.rn.f32 ${element}, ${element}, ${addend};
    % endfor
    add.u32 %slice, %slice, 1;
    bra ADD_SLICE${n};
ADDED${n}:
  % else:
${load_products(x.products)}\
  % endif
    // A^T m, then (A^T m) A
  % for products, transformed in zip(x.products.columns, x.rows.columns):
${minimal.result_points(products, transformed)}\
  % endfor
  % for transformed, results in zip(x.rows.rows, x.results.rows):
${minimal.result_points(transformed, results)}\
  % endfor
    mov.b64 %global_addr, %tile_addr;
  % for i in range(x.extent):
    mov.b64 %c_addr, %global_addr;
    % for j in range(x.extent):
    and.pred %in_bounds, %in_row${i}, %in_column${j};
    and.pred %add_c, %in_bounds, %has_beta;
${fused_ops.scale_product([x.results[i, j]], "%c_addr", 0, "@%in_bounds ", ("%channel", 0), ("%channel", 0))}\
${c_elements.load("%c_addr", 0, "@%add_c ")}\
    @%add_c fma.rn.f32 ${x.results[i, j]}, %beta, ${x.c.values[0]}, ${x.results[i, j]};
${fused_ops.finish([x.results[i, j]], "%c_addr", 0, "@%in_bounds ", ("%channel", 0), ("%channel", 0))}\
${c_elements.store([x.results[i, j]], "%c_addr", 0, "@%in_bounds ")}\
      % if j < x.extent - 1:
    add.s64 %c_addr, %c_addr, %column_bytes;
      % endif
    % endfor
    % if i < x.extent - 1:
    add.s64 %global_addr, %global_addr, %row_bytes;
    % endif
  % endfor
% endfor
DONE:
    ret;
}

## Loads one product of each matrix.
<%def name="load_products(elements)">
% for n, element in enumerate(elements.all):
    ld.global.f32 ${element}, [%global_addr];
  % if n < plan.product.points - 1:
    add.s64 %global_addr, %global_addr, %matrix_bytes;
  % endif
% endfor
</%def>
