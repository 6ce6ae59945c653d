## Sums of a block's threads, tap by tap, to the workspace [slice][filter][tap]; a pass adds those of all slices to beta C,
## always in the same order.
<%namespace name="ptx" file="/epilogue/c_elements.mako"/>
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%def name="store_partials()">
<% s, n, threads, size = plan.strip, plan.wide, plan.threads, plan.epilogue_bytes %>\
    // each tap's sums lie side by side
    mad.lo.u32 %t0, %thread, ${size}, %smem;
% for i, r in enumerate(plan.acc.all):
    st.shared.${plan.epilogue_type} [%t0+${i * threads * size}], ${r};
% endfor
    bar.sync 0;
    .reg .b32 %sum, %filter, %place, %every;
% if s.grouped:
    // of sum %sum those of this thread's lane, of all rows
    shr.u32 %sum, %thread, ${plan.log2_lanes};
    mov.u32 %every, ${s.tapped * n};
% else:
    // ${plan.LANES} threads a tap; then one
    shr.u32 %sum, %thread, 5;
    and.b32 %l, %thread, ${plan.LANES - 1};
    mov.u32 %every, ${s.tapped};
% endif
ADD:
    setp.ge.u32 %p, %sum, %every;
    @%p bra ADDED;
    mad.lo.u32 %t0, %sum, ${threads}, %l;
    mad.lo.u32 %t0, %t0, ${size}, %smem;
    mov.${plan.epilogue_type} %alpha, ${plan.zero};
<% step = plan.config.nl if s.grouped else plan.LANES %>\
% for m in range(threads // step):
    ld.shared.${plan.epilogue_type} %v, [%t0+${m * step * size}];
    add.rn.${plan.epilogue_type} %alpha, %alpha, %v;
% endfor
% if s.grouped:
    // sum = tap * ${n} + which of ${n} filters side by side
    div.u32 %place, %sum, ${n};
    mul.lo.u32 %t0, %place, ${n};
    sub.u32 %filter, %sum, %t0;
    mad.lo.u32 %t0, %tile, ${plan.config.nl}, %l;
    mad.lo.u32 %filter, %t0, ${n}, %filter;
    setp.lt.u32 %here, %filter, %n_lanes;
    mov.u32 %t1, %n_lanes;
${store("@%here ")}\
% else:
    st.shared.${plan.epilogue_type} [%t0], %alpha;
% endif
    add.u32 %sum, %sum, ${threads // step};
    bra ADD;
ADDED:
% if not s.grouped:
    bar.sync 0;
    mov.u32 %place, %thread;
SUM:
    setp.ge.u32 %p, %place, ${s.tapped};
    @%p bra DONE;
    mad.lo.u32 %t0, %place, ${threads * size}, %smem;
    mov.${plan.epilogue_type} %alpha, ${plan.zero};
% for m in range(plan.LANES):
    ld.shared.${plan.epilogue_type} %v, [%t0+${m * size}];
    add.rn.${plan.epilogue_type} %alpha, %alpha, %v;
% endfor
    mov.u32 %filter, %tile;
    mov.u32 %t1, %nctaid.x;
${store("")}\
    add.u32 %place, %place, ${threads};
    bra SUM;
DONE:
% endif
</%def>

## %alpha, a sum, times alpha to tap %place of %filter; %t1: filters.
<%def name="store(guard)">
    ld.param.${plan.epilogue_type} %v, [alpha];
    mul.rn.${plan.epilogue_type} %alpha, %alpha, %v;
    mad.lo.u32 %t1, %t1, %slice, %filter;
    mul.wide.u32 %t64, %t1, ${plan.strip.tapped};
    cvt.u64.u32 %table, %place;
    add.u64 %t64, %t64, %table;
    mad.lo.u64 %t64, %t64, ${plan.epilogue_bytes}, %W;
    ${guard}st.global.${plan.epilogue_type} [%t64], %alpha;
</%def>

<%def name="entries()">
<% size = plan.epilogue_bytes %>\

// C = beta C + the sums of all slices: ${plan.PARTS} threads add those of a tap, and one theirs
.visible .entry ${plan.entry}_add(
    .param .u64 C, .param .u64 W,
    .param .u32 every, .param .u32 tapped, .param .u32 slices, .param .u32 far, .param .u32 near, .param .${plan.epilogue_type} beta
)
.maxntid ${plan.ACROSS * plan.PARTS}, 1, 1
{
    .reg .b64 %C, %W, %at, %t64, %hop;
    .reg .b32 %every, %tapped, %slices, %far, %near, %thread, %smem, %n, %part, %t0, %t1;
    .reg .pred %p, %in, %old;
    .reg .${plan.epilogue_type} %beta, %sum, %v;
    ${plan.c_declaration}
    ld.param.u64 %C, [C];  ld.param.u64 %W, [W];
    cvta.to.global.u64 %C, %C;  cvta.to.global.u64 %W, %W;
    ld.param.u32 %every, [every];  ld.param.u32 %tapped, [tapped];  ld.param.u32 %slices, [slices];
    ld.param.u32 %far, [far];  ld.param.u32 %near, [near];  ld.param.${plan.epilogue_type} %beta, [beta];
${pdl.trigger_and_wait()}\
    mov.u32 %thread, %tid.x;
    mov.u32 %smem, smem;
    mov.u32 %t0, %ctaid.x;
    and.b32 %n, %thread, ${plan.ACROSS - 1};
    mad.lo.u32 %n, %t0, ${plan.ACROSS}, %n;
    div.u32 %part, %thread, ${plan.ACROSS};
    setp.lt.u32 %in, %n, %every;
    mad.lo.u32 %t0, %part, %every, %n;
    mad.wide.u32 %at, %t0, ${size}, %W;
    mul.wide.u32 %hop, %every, ${size * plan.PARTS};
    mov.${plan.epilogue_type} %sum, ${plan.zero};
SLICE:
    setp.lt.and.u32 %p, %part, %slices, %in;
    @!%p bra TAKEN;
    ld.global.${plan.epilogue_type} %v, [%at];
    add.rn.${plan.epilogue_type} %sum, %sum, %v;
    add.u64 %at, %at, %hop;
    add.u32 %part, %part, ${plan.PARTS};
    bra SLICE;
TAKEN:
    mad.lo.u32 %t0, %thread, ${size}, %smem;
    st.shared.${plan.epilogue_type} [%t0], %sum;
    bar.sync 0;
    setp.lt.and.u32 %in, %thread, ${plan.ACROSS}, %in;
    @!%in bra DONE;
    mov.${plan.epilogue_type} %sum, ${plan.zero};
% for m in range(plan.PARTS):
    ld.shared.${plan.epilogue_type} %v, [%t0+${m * plan.ACROSS * size}];
    add.rn.${plan.epilogue_type} %sum, %sum, %v;
% endfor
    // filter %t0, its tap %n
    div.u32 %t0, %n, %tapped;
    mul.lo.u32 %t1, %t0, %tapped;
    sub.u32 %n, %n, %t1;
    mul.lo.u32 %t0, %t0, %far;
    mad.lo.u32 %t0, %n, %near, %t0;
    mad.wide.u32 %at, %t0, ${plan.c_bytes}, %C;
    ${plan.setp_ne} %old, %beta, ${plan.zero};
${ptx.load("%at", 0, "@%old ")}\
    @%old fma.rn.${plan.epilogue_type} %sum, ${plan.c_values[0]}, %beta, %sum;
${ptx.store(["%sum"], "%at", 0, "")}\
DONE:
    ret;
}
</%def>
