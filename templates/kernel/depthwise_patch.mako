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
    .reg .b64 %A, %B, %C, %W, %t64, %table;
    .reg .b32 %ldc, %t0, %t1, %t2, %thread, %lane, %strip_row, %strip_start, %column, %guard, %high, %channel;
    .reg .b32 %x, %word, %y, %w, %at_x, %at_word;
    .reg .pred %in_bounds, %p, %skip;
    .reg .${plan.arithmetic.type} %alpha, %beta;
    ${patch.pixels.declaration} ${patch.words.declaration} ${patch.halves.declaration}
    ${patch.weights.declaration}
% for name in ("lanes", "results", *plan.parameters.STRIDES, *plan.parameters.CROSS):
    .reg .b32 %n_${name};
    ld.param.u32 %n_${name}, [${name}];
% endfor
    ld.param.u64 %A, [A];  ld.param.u64 %B, [B];  ld.param.u64 %C, [C];
    cvta.to.global.u64 %A, %A;  cvta.to.global.u64 %B, %B;  cvta.to.global.u64 %C, %C;
    ld.param.u32 %guard, [guard];  ld.param.u32 %high, [high];
    ld.param.${plan.arithmetic.type} %alpha, [alpha];  ld.param.${plan.arithmetic.type} %beta, [beta];
    mov.b32 %ldc, 0;
${pdl.early_trigger()}\
${ptx.banner("thread to results: adjacent threads have adjacent lanes, then the next patch")}\
    mov.u32 %thread, %tid.x;
    mov.u32 %t0, %ctaid.x;
    mad.lo.u32 %thread, %t0, ${plan.config.block_lanes}, %thread;
    div.u32 %strip_row, %thread, %n_lane_threads;
    mul.lo.u32 %t0, %strip_row, %n_lane_threads;
    sub.u32 %lane, %thread, %t0;
    mul.lo.u32 %lane, %lane, ${vec};
    mov.u32 %strip_start, %ctaid.y;
    mul.lo.u32 %strip_start, %strip_start, ${plan.config.strip_results};
    // threads past the last row repeat it, and store nothing
    ld.param.u32 %t0, [rows];
    setp.lt.u32 %in_bounds, %strip_row, %t0;
    sub.u32 %t0, %t0, 1;
    min.u32 %strip_row, %strip_row, %t0;
    rem.u32 %column, %strip_row, %n_column_blocks;
    mul.lo.u32 %column, %column, ${plan.config.strip_columns};
    // this thread's first result: %x its offset in the images, %word its packed coordinates, %y its offset in C, %w in the filters
    ld.param.u64 %table, [result_table];
    cvta.to.global.u64 %table, %table;
    mad.wide.u32 %table, %strip_row, 16, %table;
    ld.global.nc.v4.b32 {%x, %word, %y, %w}, [%table];
% for name in ("x", "word", "y", "w"):
    mad.lo.u32 %${name}, %lane, %n_lane_${name}, %${name};
% endfor
    mul.lo.u32 %t0, %strip_start, ${patch.strip.stride};
    mad.lo.u32 %x, %t0, %n_row_x, %x;
    mad.lo.u32 %word, %t0, %n_row_word, %word;
    mad.lo.u32 %y, %strip_start, %n_row_y, %y;
    // the index of the filter, for a bias
    div.u32 %channel, %w, %n_filter;
% for r in patch.acc.all:
    mov.${plan.arithmetic.type} ${r}, ${plan.arithmetic.zero};
% endfor
${pdl.wait()}\
${ptx.banner(f"filters: {patch.tap_count} taps of {vec} lanes")}\
    {
% if patch.size == 2:
    ${patch.filter_words.declaration}
% endif
    mad.wide.s32 %t64, %w, ${patch.size}, ${patch.filters};
% for f in patch.filter_loads:
    ld.global.nc.${patch.filter_kind} ${f.registers}, [%t64+${f.offset}];
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
    mad.lo.u32 %x, %n_column_x, ${columns}, %x;
    mad.lo.u32 %word, %n_column_word, ${columns}, %word;
% endif
    mov.b32 %at_x, %x;
    mov.b32 %at_word, %word;
% for row, previous, products in rows:
% if row > previous:
    mad.lo.u32 %at_x, %n_row_x, ${row - previous}, %at_x;
    mad.lo.u32 %at_word, %n_row_word, ${row - previous}, %at_word;
% endif
${pixels.locate()}\
${pixels.load("%t64", "@!%skip ")}\
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
