## A block adds its threads' sums in shared memory and stores them in the workspace [slice][filter][tap]. An auxiliary kernel
## adds the sums of all slices in a fixed order.
<%namespace name="c_elements" file="/epilogue/c_elements.mako"/>
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%def name="store_partials()">
<% s, sums, threads, size = plan.mainloop.strip, plan.block_sums, plan.threads, plan.arithmetic.bytes %>\
    // ---- reduction in the block: sums in shared memory [tap][thread]
    mad.lo.u32 %tmp0, %thread, ${size}, %smem;
% for r, offset in zip(plan.mainloop.acc.all, sums.offsets):
    st.shared.${plan.arithmetic.type} [%tmp0+${offset}], ${r};
% endfor
    // ---- wait: all sums are in shared memory
    bar.sync 0;
    .reg .b32 %sum_index, %filter, %tap, %n_sums;
% if s.grouped:
    // thread l of sum number %sum_index adds the sums of lane l over all rows
    shr.u32 %sum_index, %thread, ${plan.mainloop.log2_lanes};
% else:
    // ${plan.tap_sums.TAP_THREADS} threads add a tap's sums; then one thread adds theirs
    shr.u32 %sum_index, %thread, 5;
    and.b32 %lane_thread, %thread, ${plan.tap_sums.tap_thread_mask};
% endif
    mov.u32 %n_sums, ${sums.count};
REDUCE:
    setp.ge.u32 %p, %sum_index, %n_sums;
    @%p bra REDUCED;
    mad.lo.u32 %tmp0, %sum_index, ${threads}, %lane_thread;
    mad.lo.u32 %tmp0, %tmp0, ${size}, %smem;
    mov.${plan.arithmetic.type} %sum, ${plan.arithmetic.zero};
% for offset in sums.partials:
    ld.shared.${plan.arithmetic.type} %partial, [%tmp0+${offset}];
    add.rn.${plan.arithmetic.type} %sum, %sum, %partial;
% endfor
% if s.grouped:
${store_filter()}\
    add.u32 %sum_index, %sum_index, ${len(sums.partials)};
    bra REDUCE;
REDUCED:
% else:
    st.shared.${plan.arithmetic.type} [%tmp0], %sum;
    add.u32 %sum_index, %sum_index, ${len(sums.partials)};
    bra REDUCE;
REDUCED:
${add_tap_sums()}\
% endif
</%def>

## Lanes are filters: each thread has the whole sum of a tap of one.
<%def name="store_filter()">
<% n = plan.mainloop.vec %>\
    // sum = tap * ${n} + number of the filter among ${n} adjacent ones
    div.u32 %tap, %sum_index, ${n};
    mul.lo.u32 %tmp0, %tap, ${n};
    sub.u32 %filter, %sum_index, %tmp0;
    mad.lo.u32 %tmp0, %tile, ${plan.config.block_lanes}, %lane_thread;
    mad.lo.u32 %filter, %tmp0, ${n}, %filter;
    setp.lt.u32 %in_filters, %filter, %n_lanes;
    mov.u32 %tmp1, %n_lanes;
${store("@%in_filters ")}\
</%def>

## Lanes are pixels: one thread adds the sums of a tap.
<%def name="add_tap_sums()">
    // ---- wait: every tap has the sums of its threads
    bar.sync 0;
    mov.u32 %tap, %thread;
TAP_SUM:
    setp.ge.u32 %p, %tap, ${plan.mainloop.strip.tap_count};
    @%p bra DONE;
    mad.lo.u32 %tmp0, %tap, ${plan.block_sums.bytes}, %smem;
    mov.${plan.arithmetic.type} %sum, ${plan.arithmetic.zero};
% for offset in plan.block_sums.tap_offsets:
    ld.shared.${plan.arithmetic.type} %partial, [%tmp0+${offset}];
    add.rn.${plan.arithmetic.type} %sum, %sum, %partial;
% endfor
    mov.u32 %filter, %tile;
    mov.u32 %tmp1, %nctaid.x;
${store("")}\
    add.u32 %tap, %tap, ${plan.threads};
    bra TAP_SUM;
DONE:
</%def>

## Stores %sum, times alpha, as tap %tap of %filter; %tmp1: number of filters.
<%def name="store(guard)">
    ld.param.${plan.arithmetic.type} %alpha, [alpha];
    mul.rn.${plan.arithmetic.type} %sum, %sum, %alpha;
    mad.lo.u32 %tmp1, %tmp1, %slice, %filter;
    mul.wide.u32 %tmp64, %tmp1, ${plan.mainloop.strip.tap_count};
    cvt.u64.u32 %tmp64b, %tap;
    add.u64 %tmp64, %tmp64, %tmp64b;
    mad.lo.u64 %tmp64, %tmp64, ${plan.arithmetic.bytes}, %workspace;
    ${guard}st.global.${plan.arithmetic.type} [%tmp64], %sum;
</%def>

<%def name="entries()">
<% size = plan.arithmetic.bytes %>\

// C = beta C + the sums of all slices: ${plan.tap_sums.THREADS_PER_TAP} threads add the slices of a tap, one thread adds theirs
.visible .entry ${plan.entry}_add(
% for line in plan.tap_sums.parameter_list.declarations:
    ${line}
% endfor
)
.maxntid ${plan.tap_sums.threads}, 1, 1
{
    .reg .b64 %C, %workspace, %c_addr, %partial_ptr, %tmp64, %slice_step;
    .reg .b32 %n_sums, %taps, %slices, %filter_stride, %tap_stride, %thread, %smem, %tap_index, %slice, %tmp0, %tmp1;
    .reg .pred %p, %in_bounds, %has_beta;
    .reg .${plan.arithmetic.type} %beta, %sum, %partial;
    ${plan.c.declaration}
    ld.param.u64 %C, [C];  ld.param.u64 %workspace, [W];
    cvta.to.global.u64 %C, %C;  cvta.to.global.u64 %workspace, %workspace;
    ld.param.u32 %n_sums, [sums];  ld.param.u32 %taps, [taps];  ld.param.u32 %slices, [slices];
    ld.param.u32 %filter_stride, [filter_stride];  ld.param.u32 %tap_stride, [tap_stride];  ld.param.${plan.arithmetic.type} %beta, [beta];
${pdl.trigger_and_wait()}\
    mov.u32 %thread, %tid.x;
    mov.u32 %smem, smem;
    mov.u32 %tmp0, %ctaid.x;
    and.b32 %tap_index, %thread, ${plan.tap_sums.tap_mask};
    mad.lo.u32 %tap_index, %tmp0, ${plan.tap_sums.TAPS_PER_BLOCK}, %tap_index;
    div.u32 %slice, %thread, ${plan.tap_sums.TAPS_PER_BLOCK};
    setp.lt.u32 %in_bounds, %tap_index, %n_sums;
    mad.lo.u32 %tmp0, %slice, %n_sums, %tap_index;
    mad.wide.u32 %partial_ptr, %tmp0, ${size}, %workspace;
    mul.wide.u32 %slice_step, %n_sums, ${plan.tap_sums.slices_bytes};
    mov.${plan.arithmetic.type} %sum, ${plan.arithmetic.zero};
ADD_SLICE:
    setp.lt.and.u32 %p, %slice, %slices, %in_bounds;
    @!%p bra SLICES_ADDED;
    ld.global.${plan.arithmetic.type} %partial, [%partial_ptr];
    add.rn.${plan.arithmetic.type} %sum, %sum, %partial;
    add.u64 %partial_ptr, %partial_ptr, %slice_step;
    add.u32 %slice, %slice, ${plan.tap_sums.THREADS_PER_TAP};
    bra ADD_SLICE;
SLICES_ADDED:
    mad.lo.u32 %tmp0, %thread, ${size}, %smem;
    st.shared.${plan.arithmetic.type} [%tmp0], %sum;
    // ---- wait: all sums are in shared memory
    bar.sync 0;
    setp.lt.and.u32 %in_bounds, %thread, ${plan.tap_sums.TAPS_PER_BLOCK}, %in_bounds;
    @!%in_bounds bra DONE;
    mov.${plan.arithmetic.type} %sum, ${plan.arithmetic.zero};
% for offset in plan.tap_sums.partials:
    ld.shared.${plan.arithmetic.type} %partial, [%tmp0+${offset}];
    add.rn.${plan.arithmetic.type} %sum, %sum, %partial;
% endfor
    // filter %tmp0, its tap %tap_index
    div.u32 %tmp0, %tap_index, %taps;
    mul.lo.u32 %tmp1, %tmp0, %taps;
    sub.u32 %tap_index, %tap_index, %tmp1;
    mul.lo.u32 %tmp0, %tmp0, %filter_stride;
    mad.lo.u32 %tmp0, %tap_index, %tap_stride, %tmp0;
    mad.wide.u32 %c_addr, %tmp0, ${plan.c.bytes}, %C;
    ${plan.arithmetic.setp_ne} %has_beta, %beta, ${plan.arithmetic.zero};
${c_elements.load("%c_addr", 0, "@%has_beta ")}\
    @%has_beta fma.rn.${plan.arithmetic.type} %sum, ${plan.c.values[0]}, %beta, %sum;
${c_elements.store(["%sum"], "%c_addr", 0, "")}\
DONE:
    ret;
}
</%def>
