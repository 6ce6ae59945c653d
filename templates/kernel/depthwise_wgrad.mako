## The schedule of gradients of filters of one channel: a thread goes from strip to strip of results, and keeps the sums of
## all taps; blocks leave theirs in the workspace [slice][filter][tap].
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="seen" file="/math/load_pixels.mako"/>\
<%namespace name="pdl" file="/ptx/pdl.mako"/>\
<%namespace name="aux_kernels" file="/epilogue/depthwise_wgrad_sums.mako"/>\
<% s, n, threads = plan.strip, plan.wide, plan.threads %>\
    .reg .b64 %A, %B, %W, %t64, %table, %taps;
    .reg .b32 %t0, %t1, %t2, %thread, %lane, %l, %smem, %first, %guard, %high, %tile, %slice, %unit, %hop, %row, %strip;
    .reg .b32 %x, %word, %y, %w, %own_x, %own_word, %own_y, %at_x, %at_word, %none;
    .reg .pred %in, %p, %skip, %here;
    .reg .b16 %one;
    .reg .${plan.epilogue_type} %alpha, %v;
    ${plan.pixels.declaration} ${plan.words.declaration} ${plan.halves.declaration}
    ${plan.given.declaration} ${plan.places.declaration}
% for name in (*plan.COUNTS, *plan.NUMBERS):
    .reg .b32 %n_${name};
    ld.param.u32 %n_${name}, [${name}];
% endfor
    ld.param.u64 %A, [A];  ld.param.u64 %B, [B];  ld.param.u64 %W, [W];
    cvta.to.global.u64 %A, %A;  cvta.to.global.u64 %B, %B;  cvta.to.global.u64 %W, %W;
    ld.param.u32 %guard, [guard];  ld.param.u32 %high, [high];
    ld.param.${plan.epilogue_type} %alpha, [alpha];
    ld.param.u64 %table, [of_results];  ld.param.u64 %taps, [of_taps];
    cvta.to.global.u64 %table, %table;  cvta.to.global.u64 %taps, %taps;
${pdl.early_trigger()}\
    mov.u32 %thread, %tid.x;
    mov.u32 %smem, smem;
    mov.u32 %tile, %ctaid.x;
    mov.u32 %slice, %ctaid.y;
    and.b32 %l, %thread, ${plan.config.nl - 1};
    shr.u32 %t1, %thread, ${plan.log2_lanes};
    mad.lo.u32 %unit, %slice, ${plan.config.ml}, %t1;
    mov.u32 %hop, %nctaid.y;
    mul.lo.u32 %hop, %hop, ${plan.config.ml};
% if s.grouped:
    mad.lo.u32 %lane, %tile, ${plan.config.nl}, %l;
    mul.lo.u32 %lane, %lane, ${n};
    setp.lt.u32 %in, %lane, %n_lanes;
    sub.u32 %t0, %n_lanes, ${n};
    min.u32 %lane, %lane, %t0;
    mov.u32 %own_x, 0;
    mov.u32 %own_y, 0;
% else:
    mul.lo.u32 %own_x, %tile, %n_group_x;
    mul.lo.u32 %own_y, %tile, %n_group_y;
% endif
% for k in range(s.steps):
    ld.global.nc.v4.b32 {${plan.places[k, 0]}, ${plan.places[k, 1]}, %none, %w}, [%taps+${16 * k}];
% endfor
% for r in plan.acc.all:
    mov.${plan.epilogue_type} ${r}, ${plan.zero};
% endfor
${pdl.wait()}\
${ptx.banner("strip by strip: results, and what they see by all taps")}\
    .pragma "nounroll";
UNIT:
    setp.ge.u32 %p, %unit, %n_units;
    @%p bra SUMMED;
% if s.grouped:
    mov.u32 %t2, %unit;
% else:
    div.u32 %t2, %unit, %n_chunks;
    mul.lo.u32 %t0, %t2, %n_chunks;
    sub.u32 %lane, %unit, %t0;
    mad.lo.u32 %lane, %lane, ${plan.config.nl}, %l;
    setp.lt.u32 %in, %lane, %n_lanes;
    sub.u32 %t0, %n_lanes, 1;
    min.u32 %lane, %lane, %t0;
% endif
    div.u32 %strip, %t2, %n_rows;
    mul.lo.u32 %t0, %strip, %n_rows;
    sub.u32 %row, %t2, %t0;
    mul.lo.u32 %first, %strip, ${plan.config.ns};
    mad.wide.u32 %t64, %row, 16, %table;
    ld.global.nc.v4.b32 {%x, %word, %y, %w}, [%t64];
    add.u32 %x, %x, %own_x;
    add.u32 %y, %y, %own_y;
% for name in ("x", "word", "y"):
    mad.lo.u32 %${name}, %lane, %n_lane_${name}, %${name};
% endfor
    mul.lo.u32 %t0, %first, ${s.step};
    mad.lo.u32 %x, %t0, %n_row_x, %x;
    mad.lo.u32 %word, %t0, %n_row_word, %word;
    mad.lo.u32 %y, %first, %n_row_y, %y;
% for i in range(plan.config.ns):
    add.u32 %t0, %first, ${i};
    setp.lt.and.u32 %p, %t0, %n_results, %in;
    mad.wide.s32 %t64, %y, ${plan.size}, ${plan.results};
${seen.pixels("%t64", "@%p ")}\
% for v in range(n):
    mov.${plan.epilogue_type} ${plan.given[i, v]}, ${plan.pixels[v]};
% endfor
    add.u32 %y, %y, %n_row_y;
% endfor
% for k, numbers in enumerate(s.numbers):
    add.u32 %at_x, %x, ${plan.places[k, 0]};
    add.u32 %at_word, %word, ${plan.places[k, 1]};
% for row, before, pairs in plan.seen:
% if row > before:
    mad.lo.u32 %at_x, %n_row_x, ${row - before}, %at_x;
    mad.lo.u32 %at_word, %n_row_word, ${row - before}, %at_word;
% endif
${seen.inside()}\
${seen.pixels("%t64", "@!%skip ")}\
% for i, r in pairs:
% for v in range(n):
    fma.rn.${plan.epilogue_type} ${plan.acc[numbers[r], v]}, ${plan.pixels[v]}, ${plan.given[i, v]}, ${plan.acc[numbers[r], v]};
% endfor
% endfor
% endfor
% endfor
    add.u32 %unit, %unit, %hop;
    bra UNIT;
SUMMED:
${aux_kernels.store_partials()}\
<%def name="after_entry()">${aux_kernels.entries()}</%def>\
