## Depthwise schedule for whole feature maps: a block copies adjacent maps of the images to shared memory as one contiguous run,
## its threads compute strips along columns of the maps, and the block stores the run of results.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="convert" file="/ptx/convert.mako"/>\
<%namespace name="radix" file="/addr/mixed_radix.mako"/>\
<%namespace name="run" file="/copy/contiguous_run.mako"/>\
<%namespace name="pdl" file="/ptx/pdl.mako"/>\
<%namespace name="store_op" file="/${context['plan'].epilogue.store_op}"/>\
<%namespace name="store_c" file="/${context['plan'].epilogue.template}"/>\
<% main, columns = plan.mainloop, plan.mainloop.feature_maps.columns %>\
    .reg .b64 %A, %B, %C, %workspace, %tmp64, %results, %product;
    .reg .b32 %ldc, %tmp0, %tmp1, %thread, %first_map, %images_smem, %results_smem;
    .reg .b32 %strips, %round, %strip, %map, %strip_start, %column, %channel, %row, %row_bytes;
    .reg .pred %in_bounds, %p, %inside;
    .reg .${plan.arithmetic.type} %alpha, %beta, %pixel;
    .reg .${main.word.ptx_type} %elem;
    ${main.weights.declaration} ${main.column_limits.declaration} ${main.column_addresses.declaration}
% for name in plan.parameters.names:
    .reg .b32 %${name};
    ld.param.u32 %${name}, [${name}];
% endfor
    ld.param.u64 %A, [A];  ld.param.u64 %B, [B];  ld.param.u64 %C, [C];
    cvta.to.global.u64 %A, %A;  cvta.to.global.u64 %B, %B;  cvta.to.global.u64 %C, %C;
    ld.param.${plan.arithmetic.type} %alpha, [alpha];  ld.param.${plan.arithmetic.type} %beta, [beta];
    mov.b32 %ldc, 0;
${run.setup()}\
${pdl.early_trigger()}\
${ptx.banner("block to feature maps; those of images to shared memory")}\
    mov.u32 %thread, %tid.x;
    mov.u32 %tmp0, %ctaid.x;
    mul.lo.u32 %first_map, %tmp0, %block_maps;
    sub.u32 %maps, %maps, %first_map;
    min.u32 %maps, %maps, %block_maps;
    mul.lo.u32 %tmp0, %image_rows, %image_columns;
    mul.lo.u32 %tmp0, %tmp0, ${main.size};
    mul.wide.u32 %run, %first_map, %tmp0;
    add.u64 %run, %run, ${main.images};
    mul.lo.u32 %run_bytes, %maps, %tmp0;
    mov.u32 %tmp0, smem;
${run.split("%tmp0")}\
    mov.b32 %images_smem, %run_smem;
${pdl.wait()}\
${run.load(main.word)}\
    // the run of results: %results in C, %results_smem in shared memory
    mul.lo.u32 %tmp0, %result_rows, %result_columns;
    mul.lo.u32 %tmp0, %tmp0, ${plan.c.bytes};
    mul.wide.u32 %results, %first_map, %tmp0;
    add.u64 %results, %results, %C;
    mul.lo.u32 %run_bytes, %maps, %tmp0;
    mov.b64 %run, %results;
    mov.u32 %tmp0, smem;
    add.u32 %tmp0, %tmp0, %result_region;
${run.split("%tmp0")}\
    mov.b32 %results_smem, %run_smem;
    mul.lo.u32 %strips, %maps, %map_strips;
    mul.lo.u32 %row_bytes, %image_columns, ${main.size};
    mov.u32 %round, 0;
${ptx.banner("strip loop: adjacent threads have adjacent columns, then the next strip, then the next feature map")}\
    .pragma "nounroll";
STRIP_LOOP:
    // threads past the last strip repeat it, and store nothing
    add.u32 %strip, %round, %thread;
    setp.lt.u32 %in_bounds, %strip, %strips;
    sub.u32 %tmp0, %strips, 1;
    min.u32 %strip, %strip, %tmp0;
${radix.divide("%map", "%strip", "map_strips")}\
    mul.lo.u32 %tmp0, %map, %map_strips;
    sub.u32 %strip, %strip, %tmp0;
${radix.divide("%strip_start", "%strip", "result_columns")}\
    mul.lo.u32 %tmp0, %strip_start, %result_columns;
    sub.u32 %column, %strip, %tmp0;
    // the filter of the feature map
    add.u32 %channel, %first_map, %map;
${radix.divide("%tmp0", "%channel", "channels")}\
    mul.lo.u32 %tmp0, %tmp0, %channels;
    sub.u32 %channel, %channel, %tmp0;
    mad.wide.u32 %tmp64, %channel, ${main.filter_bytes}, ${main.filters};
% for weight, offset in main.filter_loads:
    ld.global.nc.${main.word.ptx_type} %elem, [%tmp64+${offset}];
${convert.widen_element(weight)}\
% endfor
    // the first row and the column of the image that each tap reads
    mad.lo.s32 %row, %strip_start, ${main.row_step}, %row_start;
    mul.lo.u32 %strip_start, %strip_start, ${plan.config.strip_results};
    mad.lo.s32 %tmp1, %column, ${columns.stride}, %column_start;
    mad.lo.s32 ${main.column_addresses[0]}, %map, %image_rows, %row;
    mul.lo.s32 ${main.column_addresses[0]}, ${main.column_addresses[0]}, %image_columns;
% if columns.ratio == 1:
    add.s32 ${main.column_addresses[0]}, ${main.column_addresses[0]}, %tmp1;
  % for tap in main.column_taps:
    add.s32 %tmp0, %tmp1, ${tap.step};
    setp.lt.u32 %inside, %tmp0, %image_columns;
    selp.b32 ${tap.limit}, %image_rows, 0, %inside;
  % endfor
% else:
  % for tap in reversed(main.column_taps):
    add.s32 %tmp0, %tmp1, ${tap.step};
    rem.u32 %strip, %tmp0, ${columns.ratio};
    setp.eq.u32 %inside, %strip, 0;
    div.u32 %tmp0, %tmp0, ${columns.ratio};
    setp.lt.and.u32 %inside, %tmp0, %image_columns, %inside;
    selp.b32 ${tap.limit}, %image_rows, 0, %inside;
    add.u32 ${tap.pointer}, ${main.column_addresses[0]}, %tmp0;
  % endfor
% endif
% for r in main.column_addresses.all:
    mad.lo.s32 ${r}, ${r}, ${main.size}, %images_smem;
% endfor
% for r in main.acc.all:
    mov.${plan.arithmetic.type} ${r}, ${plan.arithmetic.zero};
% endfor
    setp.ne.u32 %p, %round, 0;
    @%p bra.uni PIXELS;
${ptx.banner("wait before the first strip: images are in shared memory")}\
% if main.cp_async:
    cp.async.wait_all;
% endif
    bar.sync 0;
PIXELS:
${ptx.banner(f"pixels of a strip, {main.feature_maps.rows.taps} x {main.feature_maps.columns.taps} taps, and their products")}\
% for step, products in main.pixel_rows:
  % if step:
    add.s32 %row, %row, ${step};
    % for r in main.column_addresses.all:
    mad.lo.s32 ${r}, %row_bytes, ${step}, ${r};
    % endfor
  % endif
  % for s, column in enumerate(main.column_taps):
    setp.lt.u32 %inside, %row, ${column.limit};
    mov.${main.word.ptx_type} %elem, 0;
    @%inside ld.shared.${main.word.ptx_type} %elem, [${column.address}];
${convert.widen_element("%pixel")}\
    % for result, tap in products:
    fma.rn.${plan.arithmetic.type} ${main.acc[result]}, %pixel, ${main.weights[tap, s]}, ${main.acc[result]};
    % endfor
  % endfor
% endfor
${ptx.banner(f"epilogue: {plan.epilogue.summary}")}\
${store_op.store_tiles(store_c, None, store_op)}\
    add.u32 %round, %round, ${plan.threads};
    setp.lt.u32 %p, %round, %strips;
    @%p bra.uni STRIP_LOOP;
${ptx.banner("wait: all results are in shared memory; the run of results to C")}\
    bar.sync 0;
${run.store(plan.epilogue.word)}\
<%def name="after_entry()"></%def>\
