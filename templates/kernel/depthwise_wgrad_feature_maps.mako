## Schedule of depthwise weight gradients for whole feature maps: a block has adjacent channels of every n-th image. For each
## image, it copies the feature maps of pixels and of result gradients to shared memory. Its threads multiply strips along
## columns of the maps, and keep the sums of all taps of a channel. Blocks store their sums in the workspace
## [slice][filter][tap].
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="convert" file="/ptx/convert.mako"/>\
<%namespace name="lanes" file="/math/lane_sum.mako"/>\
<%namespace name="radix" file="/addr/mixed_radix.mako"/>\
<%namespace name="run" file="/copy/contiguous_run.mako"/>\
<%namespace name="pdl" file="/ptx/pdl.mako"/>\
<%namespace name="aux_kernels" file="/epilogue/depthwise_wgrad_sums.mako"/>\
<% main, columns = plan.mainloop, plan.mainloop.feature_maps.columns %>\
    .reg .b64 %A, %B, %workspace, %tmp64, %tmp64b, %product;
    .reg .b32 %tmp0, %tmp1, %thread, %slice, %image, %first_channel, %maps, %map, %first_strip, %images_smem, %results_smem;
    .reg .b32 %strip, %strip_start, %column, %row, %row_bytes, %result_rows_left, %result_row_bytes, %result_addr, %smem;
    .reg .pred %in_maps, %in_bounds, %p, %inside, %is_result<${main.most_results}>;
    .reg .${plan.arithmetic.type} %alpha, %sum, %partial, %pixel;
    .reg .${main.word.ptx_type} %elem;
    ${main.result_grads.declaration} ${main.column_limits.declaration} ${main.column_addresses.declaration}
% for name in plan.parameters.names:
    .reg .b32 %${name};
    ld.param.u32 %${name}, [${name}];
% endfor
    ld.param.u64 %A, [A];  ld.param.u64 %B, [B];  ld.param.u64 %workspace, [W];
    cvta.to.global.u64 %A, %A;  cvta.to.global.u64 %B, %B;  cvta.to.global.u64 %workspace, %workspace;
${run.setup()}\
${pdl.early_trigger()}\
${ptx.banner("block to channels and slice of the images; thread to channel and strip")}\
    mov.u32 %thread, %tid.x;
    mov.u32 %smem, smem;
    mov.u32 %slice, %ctaid.y;
    mov.u32 %image, %slice;
    mov.u32 %tmp0, %ctaid.x;
    mul.lo.u32 %first_channel, %tmp0, %block_maps;
    sub.u32 %maps, %channels, %first_channel;
    min.u32 %maps, %maps, %block_maps;
${radix.divide("%map", "%thread", "map_threads")}\
    mul.lo.u32 %tmp0, %map, %map_threads;
    sub.u32 %first_strip, %thread, %tmp0;
    setp.lt.u32 %in_maps, %map, %maps;
    mul.lo.u32 %row_bytes, %image_columns, ${main.size};
    mul.lo.u32 %result_row_bytes, %result_columns, ${main.size};
% for r in main.acc.all:
    mov.${plan.arithmetic.type} ${r}, ${plan.arithmetic.zero};
% endfor
${pdl.wait()}\
${ptx.banner("image loop: feature maps to shared memory, then all strips of them")}\
    .pragma "nounroll";
IMAGE_LOOP:
    setp.ge.u32 %p, %image, %images;
    @%p bra.uni IMAGES_DONE;
${load_maps(main.images, "%image_rows", "%image_columns", "%images_smem", "%smem", "LOAD_IMAGES")}\
    add.u32 %tmp1, %smem, %result_region;
${load_maps(main.results, "%result_rows", "%result_columns", "%results_smem", "%tmp1", "LOAD_RESULTS")}\
% if main.cp_async:
    cp.async.wait_all;
% endif
    // ---- wait: the feature maps are in shared memory
    bar.sync 0;
    mov.u32 %strip, %first_strip;
    .pragma "nounroll";
STRIP_LOOP:
    setp.lt.and.u32 %in_bounds, %strip, %map_strips, %in_maps;
${radix.divide("%strip_start", "%strip", "result_columns")}\
    mul.lo.u32 %tmp0, %strip_start, %result_columns;
    sub.u32 %column, %strip, %tmp0;
    // the first row and the column of the image that each tap reads; threads past the last strip read none
    mad.lo.s32 %row, %strip_start, ${main.row_step}, %row_start;
    mul.lo.u32 %strip_start, %strip_start, ${plan.config.strip_results};
    mad.lo.s32 %tmp1, %column, ${columns.stride}, %column_start;
    mad.lo.s32 ${main.column_addresses[0]}, %map, %image_rows, %row;
    mad.lo.s32 ${main.column_addresses[0]}, ${main.column_addresses[0]}, %image_columns, %tmp1;
    mad.lo.s32 ${main.column_addresses[0]}, ${main.column_addresses[0]}, ${main.size}, %images_smem;
% for tap in main.column_taps:
    add.s32 %tmp0, %tmp1, ${tap.step};
    setp.lt.and.u32 %inside, %tmp0, %image_columns, %in_bounds;
    selp.b32 ${tap.limit}, %image_rows, 0, %inside;
% endfor
    // result gradients of the strip: %result_rows_left of them are inside
    sub.u32 %result_rows_left, %result_rows, %strip_start;
    selp.b32 %result_rows_left, %result_rows_left, 0, %in_bounds;
    mad.lo.u32 %result_addr, %map, %result_rows, %strip_start;
    mad.lo.u32 %result_addr, %result_addr, %result_columns, %column;
    mad.lo.u32 %result_addr, %result_addr, ${main.size}, %results_smem;
% for i, grad in enumerate(main.result_grads.all):
    setp.gt.s32 %p, %result_rows_left, ${i};
    mov.${main.word.ptx_type} %elem, 0;
    @%p ld.shared.${main.word.ptx_type} %elem, [%result_addr];
    add.u32 %result_addr, %result_addr, %result_row_bytes;
${convert.widen_element(grad)}\
% endfor
    // pixels of a strip, ${main.feature_maps.rows.taps} x ${columns.taps} taps, and their products with the results that are inside
% for step, results, products in main.gradient_rows:
  % if step:
    add.s32 %row, %row, ${step};
    mad.lo.s32 ${main.column_addresses[0]}, %row_bytes, ${step}, ${main.column_addresses[0]};
  % endif
  % for n, result in enumerate(results):
    setp.gt.s32 %is_result${n}, %result_rows_left, ${result};
  % endfor
  % for s, column in enumerate(main.column_taps):
    setp.lt.u32 %inside, %row, ${column.limit};
    mov.${main.word.ptx_type} %elem, 0;
    @%inside ld.shared.${main.word.ptx_type} %elem, [${column.address}];
${convert.widen_element("%pixel")}\
    % for is_result, result, tap in products:
    @${is_result} fma.rn.${plan.arithmetic.type} ${main.acc[tap, s]}, %pixel, ${main.result_grads[result]}, ${main.acc[tap, s]};
    % endfor
  % endfor
% endfor
    add.u32 %strip, %strip, %map_threads;
    sub.u32 %tmp0, %strip, %first_strip;
    setp.lt.u32 %p, %tmp0, %map_strips;
    @%p bra.uni STRIP_LOOP;
    // ---- wait: no thread reads the feature maps
    bar.sync 0;
    mov.u32 %tmp0, %nctaid.y;
    add.u32 %image, %image, %tmp0;
    bra.uni IMAGE_LOOP;
IMAGES_DONE:
${ptx.banner(f"sums of the block: threads store theirs in shared memory [tap][thread]; {main.SUM_LANES} lanes add those of a channel's tap")}\
    mad.lo.u32 %tmp0, %thread, ${plan.arithmetic.bytes}, %smem;
% for r, offset in main.sum_places:
    st.shared.${plan.arithmetic.type} [%tmp0+${offset}], ${r};
% endfor
    // ---- wait: all sums are in shared memory
    bar.sync 0;
    .reg .b32 %warp_sum, %sum_index, %sums, %lane, %item, %filter, %tap;
    .reg .pred %in_sums;
${lanes.registers(plan.arithmetic.type)}\
    div.u32 %sum_index, %thread, ${main.SUM_LANES};
    and.b32 %lane, %thread, ${main.sum_lane_mask};
    shr.u32 %warp_sum, %thread, 5;
    mul.lo.u32 %warp_sum, %warp_sum, ${main.warp_sums};
    mul.lo.u32 %sums, %maps, ${main.feature_maps.taps};
SUM_LOOP:
    setp.ge.u32 %p, %warp_sum, %sums;
    @%p bra.uni SUMS_DONE;
    setp.lt.u32 %in_sums, %sum_index, %sums;
    div.u32 %map, %sum_index, ${main.feature_maps.taps};
    mul.lo.u32 %tmp0, %map, ${main.feature_maps.taps};
    sub.u32 %tap, %sum_index, %tmp0;
    mul.lo.u32 %item, %map, %map_threads;
    mad.lo.u32 %item, %tap, ${plan.threads}, %item;
    add.u32 %item, %item, %lane;
    mad.lo.u32 %item, %item, ${plan.arithmetic.bytes}, %smem;
    mov.${plan.arithmetic.type} %sum, ${plan.arithmetic.zero};
    selp.b32 %tmp0, %lane, %map_threads, %in_sums;
ITEM_LOOP:
    setp.ge.u32 %p, %tmp0, %map_threads;
    @%p bra ITEMS_DONE;
    ld.shared.${plan.arithmetic.type} %partial, [%item];
    add.rn.${plan.arithmetic.type} %sum, %sum, %partial;
    add.u32 %item, %item, ${main.sum_lane_bytes};
    add.u32 %tmp0, %tmp0, ${main.SUM_LANES};
    bra ITEM_LOOP;
ITEMS_DONE:
    bar.warp.sync 0xffffffff;
% for lane in main.peer_lanes:
${lanes.add_peer("%sum", lane, f"add.rn.{plan.arithmetic.type}")}\
% endfor
    setp.eq.and.u32 %in_sums, %lane, 0, %in_sums;
    add.u32 %filter, %first_channel, %map;
    mov.u32 %tmp1, %channels;
${aux_kernels.store("@%in_sums ")}\
    add.u32 %warp_sum, %warp_sum, ${main.block_sums};
    add.u32 %sum_index, %sum_index, ${main.block_sums};
    bra.uni SUM_LOOP;
SUMS_DONE:
<%def name="after_entry()">${aux_kernels.entries()}</%def>\
## Copies the block's feature maps of an image to shared memory. ``base``: register with the address of all maps; ``rows``, ``columns``:
## their extents; ``to``: receives the address of the first one; ``region``: that of the shared memory for them.
<%def name="load_maps(base, rows, columns, to, region, label)">
    mad.lo.u32 %tmp0, %image, %channels, %first_channel;
    mul.lo.u32 %run_bytes, ${rows}, ${columns};
    mul.lo.u32 %run_bytes, %run_bytes, ${plan.mainloop.size};
    mul.wide.u32 %run, %tmp0, %run_bytes;
    add.u64 %run, %run, ${base};
    mul.lo.u32 %run_bytes, %run_bytes, %maps;
${run.split(region)}\
    mov.b32 ${to}, %run_smem;
${run.load(plan.mainloop.word, label)}\
</%def>
