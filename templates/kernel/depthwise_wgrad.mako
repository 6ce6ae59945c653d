## Schedule of depthwise filter gradients: a thread loops over strips of results and accumulates all taps of a filter; blocks
## store their sums in the workspace [slice][filter][tap].
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="pixels" file="/math/load_pixels.mako"/>\
<%namespace name="pdl" file="/ptx/pdl.mako"/>\
<%namespace name="aux_kernels" file="/epilogue/depthwise_wgrad_sums.mako"/>\
<% s, n, threads = plan.mainloop.strip, plan.mainloop.vec, plan.threads %>\
    .reg .b64 %A, %B, %W, %t64, %table, %taps;
    .reg .b32 %t0, %t1, %t2, %thread, %lane, %lane_thread, %smem, %strip_start, %guard, %high, %tile, %slice, %strip_index, %strip_step, %row, %strip;
    .reg .b32 %x, %word, %y, %w, %group_x, %group_y, %at_x, %at_word, %unused;
    .reg .pred %in_bounds, %p, %skip, %in_range;
    .reg .b16 %elem16;
    .reg .${plan.arithmetic.type} %alpha, %v;
    ${plan.mainloop.pixels.declaration} ${plan.mainloop.words.declaration} ${plan.mainloop.halves.declaration}
    ${plan.mainloop.result_grads.declaration} ${plan.mainloop.tap_offsets.declaration}
% for name in (*plan.parameters.COUNTS, *plan.parameters.STRIDES):
    .reg .b32 %n_${name};
    ld.param.u32 %n_${name}, [${name}];
% endfor
    ld.param.u64 %A, [A];  ld.param.u64 %B, [B];  ld.param.u64 %W, [W];
    cvta.to.global.u64 %A, %A;  cvta.to.global.u64 %B, %B;  cvta.to.global.u64 %W, %W;
    ld.param.u32 %guard, [guard];  ld.param.u32 %high, [high];
    ld.param.${plan.arithmetic.type} %alpha, [alpha];
    ld.param.u64 %table, [result_table];  ld.param.u64 %taps, [tap_table];
    cvta.to.global.u64 %table, %table;  cvta.to.global.u64 %taps, %taps;
${pdl.early_trigger()}\
    mov.u32 %thread, %tid.x;
    mov.u32 %smem, smem;
    // grid.x: blocks of lanes, or filters; grid.y: slices of the strips
    mov.u32 %tile, %ctaid.x;
    mov.u32 %slice, %ctaid.y;
    and.b32 %lane_thread, %thread, ${plan.config.block_lanes - 1};
    shr.u32 %t1, %thread, ${plan.mainloop.log2_lanes};
    mad.lo.u32 %strip_index, %slice, ${plan.config.block_rows}, %t1;
    mov.u32 %strip_step, %nctaid.y;
    mul.lo.u32 %strip_step, %strip_step, ${plan.config.block_rows};
% if s.grouped:
    mad.lo.u32 %lane, %tile, ${plan.config.block_lanes}, %lane_thread;
    mul.lo.u32 %lane, %lane, ${n};
    setp.lt.u32 %in_bounds, %lane, %n_lanes;
    sub.u32 %t0, %n_lanes, ${n};
    min.u32 %lane, %lane, %t0;
    mov.u32 %group_x, 0;
    mov.u32 %group_y, 0;
% else:
    mul.lo.u32 %group_x, %tile, %n_group_x;
    mul.lo.u32 %group_y, %tile, %n_group_y;
% endif
% for k in range(s.outer_taps):
    ld.global.nc.v4.b32 {${plan.mainloop.tap_offsets[k, 0]}, ${plan.mainloop.tap_offsets[k, 1]}, %unused, %w}, [%taps+${16 * k}];
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
    mov.u32 %t2, %strip_index;
% else:
    div.u32 %t2, %strip_index, %n_chunks;
    mul.lo.u32 %t0, %t2, %n_chunks;
    sub.u32 %lane, %strip_index, %t0;
    mad.lo.u32 %lane, %lane, ${plan.config.block_lanes}, %lane_thread;
    setp.lt.u32 %in_bounds, %lane, %n_lanes;
    sub.u32 %t0, %n_lanes, 1;
    min.u32 %lane, %lane, %t0;
% endif
    div.u32 %strip, %t2, %n_rows;
    mul.lo.u32 %t0, %strip, %n_rows;
    sub.u32 %row, %t2, %t0;
    mul.lo.u32 %strip_start, %strip, ${plan.config.strip_results};
    // %x: offset in the images, %word: packed coordinates, %y: offset in the result gradients
    mad.wide.u32 %t64, %row, 16, %table;
    ld.global.nc.v4.b32 {%x, %word, %y, %w}, [%t64];
    add.u32 %x, %x, %group_x;
    add.u32 %y, %y, %group_y;
% for name in ("x", "word", "y"):
    mad.lo.u32 %${name}, %lane, %n_lane_${name}, %${name};
% endfor
    mul.lo.u32 %t0, %strip_start, ${s.stride};
    mad.lo.u32 %x, %t0, %n_row_x, %x;
    mad.lo.u32 %word, %t0, %n_row_word, %word;
    mad.lo.u32 %y, %strip_start, %n_row_y, %y;
    // result gradients of the strip
% for i in range(plan.config.strip_results):
    add.u32 %t0, %strip_start, ${i};
    setp.lt.and.u32 %p, %t0, %n_results, %in_bounds;
    mad.wide.s32 %t64, %y, ${plan.mainloop.size}, ${plan.mainloop.results};
${pixels.load("%t64", "@%p ")}\
% for v in range(n):
    mov.${plan.arithmetic.type} ${plan.mainloop.result_grads[i, v]}, ${plan.mainloop.pixels[v]};
% endfor
    add.u32 %y, %y, %n_row_y;
% endfor
% for k, numbers in enumerate(s.tap_numbers):
    // pixels of tap ${k} of the other axes
    add.u32 %at_x, %x, ${plan.mainloop.tap_offsets[k, 0]};
    add.u32 %at_word, %word, ${plan.mainloop.tap_offsets[k, 1]};
% for row, previous, products in plan.mainloop.window_pixels:
% if row > previous:
    mad.lo.u32 %at_x, %n_row_x, ${row - previous}, %at_x;
    mad.lo.u32 %at_word, %n_row_word, ${row - previous}, %at_word;
% endif
${pixels.locate()}\
${pixels.load("%t64", "@!%skip ")}\
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
