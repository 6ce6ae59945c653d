## Depthwise schedule: a thread computes a strip of consecutive results and loads each pixel of their windows once, without
## shared memory. Lanes are along the contiguous axis; tables have the other axes of results and taps.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="convert" file="/ptx/convert.mako"/>\
<%namespace name="pixels" file="/math/load_pixels.mako"/>\
<%namespace name="pdl" file="/ptx/pdl.mako"/>\
<%namespace name="store_op" file="/${context['plan'].epilogue.store_op}"/>\
<%namespace name="store_c" file="/${context['plan'].epilogue.template}"/>\
    .reg .b64 %A, %B, %C, %W, %t64, %table, %taps;
    .reg .b32 %ldc, %t0, %t1, %t2, %thread, %lane, %strip_row, %strip_start, %tap, %guard, %high, %channel;
    .reg .b32 %x, %word, %y, %w, %tap_x, %tap_word, %tap_w, %unused, %at_x, %at_word;
    .reg .pred %in_bounds, %p, %skip;
    .reg .b16 %elem16;
    .reg .${plan.arithmetic.type} %alpha, %beta;
    ${plan.mainloop.pixels.declaration} ${plan.mainloop.words.declaration} ${plan.mainloop.halves.declaration}
% for name in ("lanes", "results", "steps", *plan.parameters.STRIDES):
    .reg .b32 %n_${name};
    ld.param.u32 %n_${name}, [${name}];
% endfor
    ld.param.u64 %A, [A];  ld.param.u64 %B, [B];  ld.param.u64 %C, [C];
    cvta.to.global.u64 %A, %A;  cvta.to.global.u64 %B, %B;  cvta.to.global.u64 %C, %C;
    ld.param.u32 %guard, [guard];  ld.param.u32 %high, [high];
    ld.param.${plan.arithmetic.type} %alpha, [alpha];  ld.param.${plan.arithmetic.type} %beta, [beta];
    mov.b32 %ldc, 0;
${pdl.early_trigger()}\
${ptx.banner("block to results: adjacent lanes, a strip of results each")}\
    mov.u32 %thread, %tid.x;
    // grid.x: blocks of lanes, then rows of the results; grid.y: strips
    mov.u32 %t0, %ctaid.x;
    add.u32 %t1, %n_lanes, ${plan.mainloop.lanes - 1};
    shr.u32 %t1, %t1, ${plan.mainloop.log2_block};
    div.u32 %strip_row, %t0, %t1;
    mul.lo.u32 %t1, %strip_row, %t1;
    sub.u32 %lane, %t0, %t1;
    and.b32 %t0, %thread, ${plan.config.block_lanes - 1};
    mad.lo.u32 %lane, %lane, ${plan.config.block_lanes}, %t0;
    mul.lo.u32 %lane, %lane, ${plan.mainloop.vec};
    shr.u32 %t0, %thread, ${plan.mainloop.log2_lanes};
    mad.lo.u32 %strip_row, %strip_row, ${plan.config.block_rows}, %t0;
    mov.u32 %strip_start, %ctaid.y;
    mul.lo.u32 %strip_start, %strip_start, ${plan.config.strip_results};
    // lanes and rows past the end repeat the last one, and store nothing
    ld.param.u32 %t0, [rows];
    setp.lt.u32 %in_bounds, %lane, %n_lanes;
    setp.lt.and.u32 %in_bounds, %strip_row, %t0, %in_bounds;
    sub.u32 %t0, %t0, 1;
    min.u32 %strip_row, %strip_row, %t0;
    sub.u32 %t0, %n_lanes, ${plan.mainloop.vec};
    min.u32 %lane, %lane, %t0;
    // this thread's first result: %x its offset in the images, %word its packed coordinates, %y its offset in C, %w in the filters
    ld.param.u64 %table, [result_table];
    cvta.to.global.u64 %table, %table;
    mad.wide.u32 %table, %strip_row, 16, %table;
    ld.global.nc.v4.b32 {%x, %word, %y, %w}, [%table];
% for name in ("x", "word", "y", "w"):
    mad.lo.u32 %${name}, %lane, %n_lane_${name}, %${name};
% endfor
% if plan.mainloop.strip.ratio > 1:
    div.u32 %t0, %strip_start, ${plan.mainloop.strip.ratio};
% else:
    mul.lo.u32 %t0, %strip_start, ${plan.mainloop.strip.stride};
% endif
    mad.lo.u32 %x, %t0, %n_row_x, %x;
    mad.lo.u32 %word, %t0, %n_row_word, %word;
    mad.lo.u32 %y, %strip_start, %n_row_y, %y;
    // the index of the filter, for a bias
    div.u32 %channel, %w, %n_filter;
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
    ld.global.nc.v4.b32 {%tap_x, %tap_word, %tap_w, %unused}, [%taps];
    add.u64 %taps, %taps, 16;
    add.u32 %at_x, %x, %tap_x;
    add.u32 %at_word, %word, %tap_word;
    add.u32 %tap_w, %tap_w, %w;
% for r in range(plan.mainloop.strip.taps):
% for v in range(plan.mainloop.vec):
    mad.lo.u32 %t0, %n_lane_w, ${v}, %tap_w;
    mad.wide.s32 %t64, %t0, ${plan.mainloop.size}, ${plan.mainloop.filters};
${weight(plan.mainloop.weights[r, v])}\
% endfor
    add.u32 %tap_w, %tap_w, %n_row_w;
% endfor
% for row, previous, products in plan.mainloop.window_pixels:
    // pixel ${row} of the strip
% if row > previous:
    mad.lo.u32 %at_x, %n_row_x, ${row - previous}, %at_x;
    mad.lo.u32 %at_word, %n_row_word, ${row - previous}, %at_word;
% endif
${pixels.locate()}\
${pixels.load("%t64", "@!%skip ")}\
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
    ld.global.nc.b16 %elem16, [%t64];
${convert.widen(plan.problem.dtype, into, "%elem16")}\
% else:
    ld.global.nc.${plan.arithmetic.type} ${into}, [%t64];
% endif
</%def>
