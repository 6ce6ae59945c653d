## Depthwise schedule for patches: a thread computes several adjacent strips of adjacent lanes. All taps are unrolled: filters stay
## in registers, and each pixel of the patch is loaded once, without shared memory.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="convert" file="/ptx/convert.mako"/>\
<%namespace name="pixels" file="/math/load_pixels.mako"/>\
<%namespace name="pdl" file="/ptx/pdl.mako"/>\
<%namespace name="store_op" file="/${context['plan'].epilogue.store_op}"/>\
<%namespace name="store_c" file="/epilogue/depthwise_patch.mako"/>\
<% patch, vec = plan.mainloop, plan.mainloop.vec %>\
    .reg .b64 %A, %B, %C, %workspace, %tmp64, %table;
    .reg .b32 %ldc, %tmp0, %tmp1, %tmp2, %thread, %lane, %strip_row, %strip_start, %column, %guard_bits, %max_coords, %channel;
    .reg .b32 %image_offset, %coords, %result_offset, %filter_offset, %pixel_offset, %pixel_coords;
    .reg .pred %in_bounds, %p, %skip;
    .reg .${plan.arithmetic.type} %alpha, %beta;
    ${patch.pixels.declaration} ${patch.words.declaration} ${patch.halves.declaration}
    ${patch.weights.declaration}
% for name in ("lanes", "results", *plan.parameters.CROSS_COUNTS):
    .reg .b32 %n_${name};
    ld.param.u32 %n_${name}, [${name}];
% endfor
% for name in (*plan.parameters.STRIDES, *plan.parameters.CROSS_STRIDES):
    .reg .b32 %${name};
    ld.param.u32 %${name}, [${name}];
% endfor
    ld.param.u64 %A, [A];  ld.param.u64 %B, [B];  ld.param.u64 %C, [C];
    cvta.to.global.u64 %A, %A;  cvta.to.global.u64 %B, %B;  cvta.to.global.u64 %C, %C;
    ld.param.u32 %guard_bits, [guard];  ld.param.u32 %max_coords, [high];
    ld.param.${plan.arithmetic.type} %alpha, [alpha];  ld.param.${plan.arithmetic.type} %beta, [beta];
    mov.b32 %ldc, 0;
${pdl.early_trigger()}\
${ptx.banner("thread to results: adjacent threads have adjacent lanes, then the next patch")}\
    mov.u32 %thread, %tid.x;
    mov.u32 %tmp0, %ctaid.x;
    mad.lo.u32 %thread, %tmp0, ${plan.config.block_lanes}, %thread;
    div.u32 %strip_row, %thread, %n_lane_threads;
    mul.lo.u32 %tmp0, %strip_row, %n_lane_threads;
    sub.u32 %lane, %thread, %tmp0;
    mul.lo.u32 %lane, %lane, ${vec};
    mov.u32 %strip_start, %ctaid.y;
    mul.lo.u32 %strip_start, %strip_start, ${plan.config.strip_results};
    // threads past the last row repeat it, and store nothing
    ld.param.u32 %tmp0, [rows];
    setp.lt.u32 %in_bounds, %strip_row, %tmp0;
    sub.u32 %tmp0, %tmp0, 1;
    min.u32 %strip_row, %strip_row, %tmp0;
    rem.u32 %column, %strip_row, %n_column_blocks;
    mul.lo.u32 %column, %column, ${plan.config.strip_columns};
    // this thread's first result: %image_offset its offset in the images, %coords its packed coordinates, %result_offset its offset in C, %filter_offset in the filters
    ld.param.u64 %table, [result_table];
    cvta.to.global.u64 %table, %table;
    mad.wide.u32 %table, %strip_row, 16, %table;
    ld.global.nc.v4.b32 {%image_offset, %coords, %result_offset, %filter_offset}, [%table];
% for to, place in (("%image_offset", "image"), ("%coords", "coords"), ("%result_offset", "result"), ("%filter_offset", "filter")):
    mad.lo.u32 ${to}, %lane, %lane_${place}_stride, ${to};
% endfor
    mul.lo.u32 %tmp0, %strip_start, ${patch.strip.stride};
    mad.lo.u32 %image_offset, %tmp0, %row_image_stride, %image_offset;
    mad.lo.u32 %coords, %tmp0, %row_coords_stride, %coords;
    mad.lo.u32 %result_offset, %strip_start, %row_result_stride, %result_offset;
    // the index of the filter, for a bias
    div.u32 %channel, %filter_offset, %filter_stride;
% for r in patch.acc.all:
    mov.${plan.arithmetic.type} ${r}, ${plan.arithmetic.zero};
% endfor
${pdl.wait()}\
${ptx.banner(f"filters: {patch.tap_count} taps of {vec} lanes")}\
    {
% if patch.size == 2:
    ${patch.filter_words.declaration}
% endif
    mad.wide.s32 %tmp64, %filter_offset, ${patch.size}, ${patch.filters};
% for f in patch.filter_loads:
    ld.global.nc.${patch.filter_type} ${f.registers}, [%tmp64+${f.offset}];
% endfor
% if patch.size == 2 and vec > 1:
  % for word, low, high in patch.filter_pairs:
${convert.widen_pair(plan.problem.dtype, low, high, word, patch.halves)}\
  % endfor
% elif patch.size == 2:
  % for half, wide in patch.filter_singles:
${convert.widen(plan.problem.dtype, wide, half)}\
  % endfor
% endif
    }
% for n, (columns, rows) in enumerate(patch.patch_pixels):
${ptx.banner(f"pixels of column {n} of the patch, and their products")}\
  % if columns:
    mad.lo.u32 %image_offset, %column_image_stride, ${columns}, %image_offset;
    mad.lo.u32 %coords, %column_coords_stride, ${columns}, %coords;
  % endif
    mov.b32 %pixel_offset, %image_offset;
    mov.b32 %pixel_coords, %coords;
  % for _, step, products in rows:
    % if step > 0:
    mad.lo.u32 %pixel_offset, %row_image_stride, ${step}, %pixel_offset;
    mad.lo.u32 %pixel_coords, %row_coords_stride, ${step}, %pixel_coords;
    % endif
${pixels.locate()}\
${pixels.load("%tmp64", "@!%skip ")}\
    % for acc, tap in products:
      % for v in range(vec):
    fma.rn.${plan.arithmetic.type} ${patch.acc[acc, v]}, ${patch.pixels[v]}, ${patch.weights[tap, v]}, ${patch.acc[acc, v]};
      % endfor
    % endfor
  % endfor
% endfor
${ptx.banner(f"epilogue: {plan.epilogue.summary}")}\
${store_op.store_tiles(store_c, None, store_op)}\
<%def name="after_entry()"></%def>\
