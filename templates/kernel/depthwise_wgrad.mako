## Schedule of depthwise weight gradients: a thread loops over strips of results and accumulates all taps of a filter; blocks
## store their sums in the workspace [slice][filter][tap].
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="pixels" file="/math/load_pixels.mako"/>\
<%namespace name="pdl" file="/ptx/pdl.mako"/>\
<%namespace name="aux_kernels" file="/epilogue/depthwise_wgrad_sums.mako"/>\
<% s, n, threads = plan.mainloop.strip, plan.mainloop.vec, plan.threads %>\
    .reg .b64 %A, %B, %workspace, %tmp64, %tmp64b, %table, %taps;
    .reg .b32 %tmp0, %tmp1, %tmp2, %thread, %lane, %lane_thread, %smem, %strip_start, %guard_bits, %max_coords, %tile, %slice, %strip_index, %strip_step, %row, %strip;
    .reg .b32 %image_offset, %coords, %result_offset, %filter_offset, %group_image_offset, %group_result_offset, %pixel_offset, %pixel_coords, %unused;
    .reg .pred %in_bounds, %p, %skip, %in_filters;
    .reg .b16 %elem16;
    .reg .${plan.arithmetic.type} %alpha, %sum, %partial;
    ${plan.mainloop.pixels.declaration} ${plan.mainloop.words.declaration} ${plan.mainloop.halves.declaration}
    ${plan.mainloop.result_grads.declaration} ${plan.mainloop.tap_offsets.declaration}
% for name in plan.parameters.COUNTS:
    .reg .b32 %n_${name};
    ld.param.u32 %n_${name}, [${name}];
% endfor
% for name in plan.parameters.STRIDES:
    .reg .b32 %${name};
    ld.param.u32 %${name}, [${name}];
% endfor
    ld.param.u64 %A, [A];  ld.param.u64 %B, [B];  ld.param.u64 %workspace, [W];
    cvta.to.global.u64 %A, %A;  cvta.to.global.u64 %B, %B;  cvta.to.global.u64 %workspace, %workspace;
    ld.param.u32 %guard_bits, [guard];  ld.param.u32 %max_coords, [high];
    ld.param.u64 %table, [result_table];  ld.param.u64 %taps, [tap_table];
    cvta.to.global.u64 %table, %table;  cvta.to.global.u64 %taps, %taps;
${pdl.early_trigger()}\
    mov.u32 %thread, %tid.x;
    mov.u32 %smem, smem;
    // grid.x: blocks of lanes, or filters; grid.y: slices of the strips
    mov.u32 %tile, %ctaid.x;
    mov.u32 %slice, %ctaid.y;
    and.b32 %lane_thread, %thread, ${plan.mainloop.last_block_lane};
    shr.u32 %tmp1, %thread, ${plan.mainloop.log2_lanes};
    mad.lo.u32 %strip_index, %slice, ${plan.config.block_rows}, %tmp1;
    mov.u32 %strip_step, %nctaid.y;
    mul.lo.u32 %strip_step, %strip_step, ${plan.config.block_rows};
% if s.grouped:
    mad.lo.u32 %lane, %tile, ${plan.config.block_lanes}, %lane_thread;
    mul.lo.u32 %lane, %lane, ${n};
    setp.lt.u32 %in_bounds, %lane, %n_lanes;
    sub.u32 %tmp0, %n_lanes, ${n};
    min.u32 %lane, %lane, %tmp0;
    mov.u32 %group_image_offset, 0;
    mov.u32 %group_result_offset, 0;
% else:
    mul.lo.u32 %group_image_offset, %tile, %group_image_stride;
    mul.lo.u32 %group_result_offset, %tile, %group_result_stride;
% endif
% for offset, coords, at in plan.mainloop.tap_loads:
    ld.global.nc.v4.b32 {${offset}, ${coords}, %unused, %filter_offset}, [%taps+${at}];
% endfor
% for r in plan.mainloop.acc.all:
    mov.${plan.arithmetic.type} ${r}, ${plan.arithmetic.zero};
% endfor
${pdl.wait()}\
${ptx.banner("strip loop: result gradients times the pixels of their windows, all taps")}\
    .pragma "nounroll";
STRIP_LOOP:
    // strip %strip_index: its row of the result table, and its first result along the strip axis
    setp.ge.u32 %p, %strip_index, %n_units;
    @%p bra STRIPS_DONE;
% if s.grouped:
    mov.u32 %tmp2, %strip_index;
% else:
    div.u32 %tmp2, %strip_index, %n_chunks;
    mul.lo.u32 %tmp0, %tmp2, %n_chunks;
    sub.u32 %lane, %strip_index, %tmp0;
    mad.lo.u32 %lane, %lane, ${plan.config.block_lanes}, %lane_thread;
    setp.lt.u32 %in_bounds, %lane, %n_lanes;
    sub.u32 %tmp0, %n_lanes, 1;
    min.u32 %lane, %lane, %tmp0;
% endif
    div.u32 %strip, %tmp2, %n_rows;
    mul.lo.u32 %tmp0, %strip, %n_rows;
    sub.u32 %row, %tmp2, %tmp0;
    mul.lo.u32 %strip_start, %strip, ${plan.config.strip_results};
    // %image_offset: offset in the images, %coords: packed coordinates, %result_offset: offset in the result gradients
    mad.wide.u32 %tmp64, %row, 16, %table;
    ld.global.nc.v4.b32 {%image_offset, %coords, %result_offset, %filter_offset}, [%tmp64];
    add.u32 %image_offset, %image_offset, %group_image_offset;
    add.u32 %result_offset, %result_offset, %group_result_offset;
% for to, place in (("%image_offset", "image"), ("%coords", "coords"), ("%result_offset", "result")):
    mad.lo.u32 ${to}, %lane, %lane_${place}_stride, ${to};
% endfor
    mul.lo.u32 %tmp0, %strip_start, ${s.stride};
    mad.lo.u32 %image_offset, %tmp0, %row_image_stride, %image_offset;
    mad.lo.u32 %coords, %tmp0, %row_coords_stride, %coords;
    mad.lo.u32 %result_offset, %strip_start, %row_result_stride, %result_offset;
    // result gradients of the strip
% for i in range(plan.config.strip_results):
    add.u32 %tmp0, %strip_start, ${i};
    setp.lt.and.u32 %p, %tmp0, %n_results, %in_bounds;
    mad.wide.s32 %tmp64, %result_offset, ${plan.mainloop.size}, ${plan.mainloop.results};
${pixels.load("%tmp64", "@%p ")}\
  % for v in range(n):
    mov.${plan.arithmetic.type} ${plan.mainloop.result_grads[i, v]}, ${plan.mainloop.pixels[v]};
  % endfor
    add.u32 %result_offset, %result_offset, %row_result_stride;
% endfor
% for k, numbers in enumerate(s.tap_numbers):
    // pixels of tap ${k} of the other axes
    add.u32 %pixel_offset, %image_offset, ${plan.mainloop.tap_offsets[k, 0]};
    add.u32 %pixel_coords, %coords, ${plan.mainloop.tap_offsets[k, 1]};
  % for _, rows, products in plan.mainloop.window_pixels:
    % if rows > 0:
    mad.lo.u32 %pixel_offset, %row_image_stride, ${rows}, %pixel_offset;
    mad.lo.u32 %pixel_coords, %row_coords_stride, ${rows}, %pixel_coords;
    % endif
${pixels.locate()}\
${pixels.load("%tmp64", "@!%skip ")}\
    % for i, r in products:
      % for v in range(n):
    fma.rn.${plan.arithmetic.type} ${plan.mainloop.acc[numbers[r], v]}, ${plan.mainloop.pixels[v]}, ${plan.mainloop.result_grads[i, v]}, ${plan.mainloop.acc[numbers[r], v]};
      % endfor
    % endfor
  % endfor
% endfor
    add.u32 %strip_index, %strip_index, %strip_step;
    bra STRIP_LOOP;
STRIPS_DONE:
${aux_kernels.store_partials()}\
<%def name="after_entry()">${aux_kernels.entries()}</%def>\
