## Depthwise schedule: a thread computes a strip of consecutive results and loads each pixel of their windows once, without
## shared memory. Lanes are along the contiguous axis. Tables hold the offsets along the other axes of results and taps.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="convert" file="/ptx/convert.mako"/>\
<%namespace name="pixels" file="/math/load_pixels.mako"/>\
<%namespace name="pdl" file="/ptx/pdl.mako"/>\
<%namespace name="store_op" file="/${context['plan'].epilogue.store_op}"/>\
<%namespace name="store_c" file="/${context['plan'].epilogue.template}"/>\
    .reg .b64 %A, %B, %C, %workspace, %tmp64, %table, %taps;
    .reg .b32 %ldc, %tmp0, %tmp1, %tmp2, %thread, %lane, %strip_row, %strip_start, %tap, %guard_bits, %max_coords, %channel;
    .reg .b32 %image_offset, %coords, %result_offset, %filter_offset, %tap_image_offset, %tap_coords, %tap_filter_offset, %unused, %pixel_offset, %pixel_coords;
    .reg .pred %in_bounds, %p, %skip;
    .reg .b16 %elem16;
    .reg .${plan.arithmetic.type} %alpha, %beta;
    ${plan.mainloop.pixels.declaration} ${plan.mainloop.words.declaration} ${plan.mainloop.halves.declaration}
% for name in ("lanes", "results", "steps"):
    .reg .b32 %n_${name};
    ld.param.u32 %n_${name}, [${name}];
% endfor
% for name in plan.parameters.STRIDES:
    .reg .b32 %${name};
    ld.param.u32 %${name}, [${name}];
% endfor
    ld.param.u64 %A, [A];  ld.param.u64 %B, [B];  ld.param.u64 %C, [C];
    cvta.to.global.u64 %A, %A;  cvta.to.global.u64 %B, %B;  cvta.to.global.u64 %C, %C;
    ld.param.u32 %guard_bits, [guard];  ld.param.u32 %max_coords, [high];
    ld.param.${plan.arithmetic.type} %alpha, [alpha];  ld.param.${plan.arithmetic.type} %beta, [beta];
    mov.b32 %ldc, 0;
${pdl.early_trigger()}\
${ptx.banner("block to results: adjacent lanes, a strip of results each")}\
    mov.u32 %thread, %tid.x;
    // grid.x: blocks of lanes, then rows of the results; grid.y: strips
    mov.u32 %tmp0, %ctaid.x;
    add.u32 %tmp1, %n_lanes, ${plan.mainloop.last_of_lanes};
    shr.u32 %tmp1, %tmp1, ${plan.mainloop.log2_block};
    div.u32 %strip_row, %tmp0, %tmp1;
    mul.lo.u32 %tmp1, %strip_row, %tmp1;
    sub.u32 %lane, %tmp0, %tmp1;
    and.b32 %tmp0, %thread, ${plan.mainloop.last_block_lane};
    mad.lo.u32 %lane, %lane, ${plan.config.block_lanes}, %tmp0;
    mul.lo.u32 %lane, %lane, ${plan.mainloop.vec};
    shr.u32 %tmp0, %thread, ${plan.mainloop.log2_lanes};
    mad.lo.u32 %strip_row, %strip_row, ${plan.config.block_rows}, %tmp0;
    mov.u32 %strip_start, %ctaid.y;
    mul.lo.u32 %strip_start, %strip_start, ${plan.config.strip_results};
    // lanes and rows past the end repeat the last one, and store nothing
    ld.param.u32 %tmp0, [rows];
    setp.lt.u32 %in_bounds, %lane, %n_lanes;
    setp.lt.and.u32 %in_bounds, %strip_row, %tmp0, %in_bounds;
    sub.u32 %tmp0, %tmp0, 1;
    min.u32 %strip_row, %strip_row, %tmp0;
    sub.u32 %tmp0, %n_lanes, ${plan.mainloop.vec};
    min.u32 %lane, %lane, %tmp0;
    // this thread's first result: %image_offset its offset in the images, %coords its packed coordinates, %result_offset its offset in C, %filter_offset in the filters
    ld.param.u64 %table, [result_table];
    cvta.to.global.u64 %table, %table;
    mad.wide.u32 %table, %strip_row, 16, %table;
    ld.global.nc.v4.b32 {%image_offset, %coords, %result_offset, %filter_offset}, [%table];
% for to, place in (("%image_offset", "image"), ("%coords", "coords"), ("%result_offset", "result"), ("%filter_offset", "filter")):
    mad.lo.u32 ${to}, %lane, %lane_${place}_stride, ${to};
% endfor
% if plan.mainloop.strip.ratio > 1:
    div.u32 %tmp0, %strip_start, ${plan.mainloop.strip.ratio};
% else:
    mul.lo.u32 %tmp0, %strip_start, ${plan.mainloop.strip.stride};
% endif
    mad.lo.u32 %image_offset, %tmp0, %row_image_stride, %image_offset;
    mad.lo.u32 %coords, %tmp0, %row_coords_stride, %coords;
    mad.lo.u32 %result_offset, %strip_start, %row_result_stride, %result_offset;
    // the index of the filter, for a bias
    div.u32 %channel, %filter_offset, %filter_stride;
    ld.param.u64 %taps, [tap_table];
    cvta.to.global.u64 %taps, %taps;
% for r in plan.mainloop.acc.all:
    mov.${plan.arithmetic.type} ${r}, ${plan.arithmetic.zero};
% endfor
    ${plan.mainloop.weights.declaration}
${pdl.wait()}\
${ptx.banner(f"tap loop: over the taps of other axes; the {plan.mainloop.strip.taps} taps along the strip are unrolled")}\
    mov.u32 %tap, 0;
    .pragma "nounroll";
TAP_LOOP:
    // this tap of the other axes: its offset in the images, coordinates, offset in the filters
    ld.global.nc.v4.b32 {%tap_image_offset, %tap_coords, %tap_filter_offset, %unused}, [%taps];
    add.u64 %taps, %taps, 16;
    add.u32 %pixel_offset, %image_offset, %tap_image_offset;
    add.u32 %pixel_coords, %coords, %tap_coords;
    add.u32 %tap_filter_offset, %tap_filter_offset, %filter_offset;
% for r in range(plan.mainloop.strip.taps):
  % for v in range(plan.mainloop.vec):
    mad.lo.u32 %tmp0, %lane_filter_stride, ${v}, %tap_filter_offset;
    mad.wide.s32 %tmp64, %tmp0, ${plan.mainloop.size}, ${plan.mainloop.filters};
${weight(plan.mainloop.weights[r, v])}\
  % endfor
    add.u32 %tap_filter_offset, %tap_filter_offset, %row_filter_stride;
% endfor
% for row, rows, products in plan.mainloop.window_pixels:
    // pixel ${row} of the strip
  % if rows > 0:
    mad.lo.u32 %pixel_offset, %row_image_stride, ${rows}, %pixel_offset;
    mad.lo.u32 %pixel_coords, %row_coords_stride, ${rows}, %pixel_coords;
  % endif
${pixels.locate()}\
${pixels.load("%tmp64", "@!%skip ")}\
  % for i, r in products:
    % for v in range(plan.mainloop.vec):
    fma.rn.${plan.arithmetic.type} ${plan.mainloop.acc[i, v]}, ${plan.mainloop.pixels[v]}, ${plan.mainloop.weights[r, v]}, ${plan.mainloop.acc[i, v]};
    % endfor
  % endfor
% endfor
    add.u32 %tap, %tap, 1;
    setp.lt.u32 %p, %tap, %n_steps;
    @%p bra TAP_LOOP;
${ptx.banner(f"epilogue: {plan.epilogue.summary}")}\
${store_op.store_tiles(store_c, None, store_op)}\
<%def name="after_entry()"></%def>\
<%def name="weight(into)">
% if plan.mainloop.size == 2:
    ld.global.nc.b16 %elem16, [%tmp64];
${convert.widen(plan.problem.dtype, into, "%elem16")}\
% else:
    ld.global.nc.${plan.arithmetic.type} ${into}, [%tmp64];
% endif
</%def>
