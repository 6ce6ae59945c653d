## Schedule of convolutions with few results per pixel: a block multiplies the pixels that a tile of results reads by the taps of all
## filters, and stores the products in shared memory. A result is the sum of one product of each tap.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="math" file="/${context['plan'].mainloop.slot}"/>\
<%namespace name="store_op" file="/${context['plan'].epilogue.store_op}"/>\
<%namespace name="store_c" file="/${context['plan'].epilogue.template}"/>\
<% main, taps, g = plan.mainloop, plan.mainloop.taps, plan.geometry %>\
    .reg .b64 %A, %B, %C, %workspace, %tmp64, %image_addr, %filter_addr, %result_addr;
    .reg .b32 %ldc, %tmp0, %tmp1, %tmp2, %thread, %lane, %tile, %image, %first_row, %first_column, %row, %column, %filter;
    .reg .b32 %channel, %chunk, %chunk_end, %sums_smem, %taps_smem, %weights_addr;
    .reg .b64 %channel_bytes;
    .reg .pred %p, %loaded;
    .reg .${plan.arithmetic.type} %alpha, %beta;
    ${main.addresses.declaration} ${main.inside.declaration} ${main.places.declaration} ${main.words.declaration}
    ${main.weights.declaration}
% for name in plan.parameters.names:
    .reg .b32 %${name};
    ld.param.u32 %${name}, [${name}];
% endfor
    ld.param.u64 %A, [A];  ld.param.u64 %B, [B];  ld.param.u64 %C, [C];
    cvta.to.global.u64 %A, %A;  cvta.to.global.u64 %B, %B;  cvta.to.global.u64 %C, %C;
    ld.param.${plan.arithmetic.type} %alpha, [alpha];  ld.param.${plan.arithmetic.type} %beta, [beta];
    mov.b32 %ldc, 0;
    mov.u32 %sums_smem, smem;
    add.u32 %taps_smem, %sums_smem, ${g.sums_bytes};
${ptx.banner("block to results: tiles along the width, then the height, then images")}\
    mov.u32 %thread, %tid.x;
    and.b32 %lane, %thread, 31;
    mov.u32 %tile, %ctaid.x;
    div.u32 %image, %tile, %tiles;
    mul.lo.u32 %tmp0, %image, %tiles;
    sub.u32 %tile, %tile, %tmp0;
    div.u32 %first_row, %tile, %tiles_across;
    mul.lo.u32 %tmp0, %first_row, %tiles_across;
    sub.u32 %first_column, %tile, %tmp0;
    mul.lo.u32 %first_row, %first_row, ${plan.config.tile_height};
    mul.lo.u32 %first_column, %first_column, ${plan.config.tile_width};
    mul.wide.u32 %tmp64, %image, %image_image_stride;
    mad.lo.u64 %image_addr, %tmp64, ${main.size}, ${main.images};
    mul.wide.u32 %tmp64, %image, %image_result_stride;
    mad.lo.u64 %result_addr, %tmp64, ${plan.c.bytes}, %C;
    mul.wide.s32 %tmp64, %filter_start, ${main.size};
    add.u64 %filter_addr, %tmp64, ${main.filters};
    mul.wide.u32 %channel_bytes, %channel_image_stride, ${main.size};
${ptx.banner(f"pixels of the thread: {main.count} of the {g.pixels} pixels that the tile reads, in rows of {g.region_width}")}\
${math.first_place()}\
% for place, step in main.later_places:
    add.u32 ${place}, ${main.places[0]}, ${step};
% endfor
% for place, address, inside in main.places_of_pixels:
    div.u32 %row, ${place}, ${g.region_width};
    mul.lo.u32 %tmp0, %row, ${g.region_width};
    sub.u32 %column, ${place}, %tmp0;
    mad.lo.u32 %row, %first_row, ${taps.rows.stride}, %row;
    mad.lo.u32 %column, %first_column, ${taps.columns.stride}, %column;
    sub.u32 %row, %row, %row_padding;
    sub.u32 %column, %column, %column_padding;
    setp.lt.u32 ${inside}, ${place}, ${g.pixels};
    setp.lt.and.u32 ${inside}, %row, %image_rows, ${inside};
    setp.lt.and.u32 ${inside}, %column, %image_columns, ${inside};
    mul.lo.u32 %tmp0, %row, %row_image_stride;
    mad.lo.u32 %tmp0, %column, %column_image_stride, %tmp0;
    mad.wide.s32 ${address}, %tmp0, ${main.size}, %image_addr;
% endfor
${math.prepare()}\
% for r in main.acc.all:
    mov.${main.acc.ptx_type} ${r}, ${plan.arithmetic.zero};
% endfor
${ptx.banner(f"channel loop: the taps of {plan.config.filter_channels} channels in shared memory, then the products of their pixels")}\
    mov.u32 %chunk, 0;
    mov.u32 %channel, 0;
    .pragma "nounroll";
CHUNK_LOOP:
    setp.ge.u32 %p, %chunk, %channels;
    @%p bra.uni CHUNKS_DONE;
${ptx.banner("wait: all threads have multiplied by the preceding taps")}\
    bar.sync 0;
${load_taps()}\
${ptx.banner("wait: all taps are in shared memory")}\
    bar.sync 0;
    add.u32 %chunk_end, %chunk, ${plan.config.filter_channels};
    min.u32 %chunk_end, %chunk_end, %channels;
${math.begin_chunk()}\
    .pragma "nounroll";
CHANNEL_LOOP:
% for access in main.accesses:
    add.u32 %tmp0, ${math.channel_register()}, ${access.channel};
  % for load in access.loads:
    setp.lt.and.u32 %loaded, %tmp0, %channels, ${load.inside};
    % for r in load.words:
    mov.${main.words.ptx_type} ${r}, ${main.zero};
    % endfor
    @%loaded ld.global.nc.${main.load_type} ${load.operand}, [${load.address}+${load.offset}];
  % endfor
  % for address in main.moved_by_access:
    add.u64 ${address}, ${address}, %channel_bytes;
  % endfor
% endfor
% for address in main.moved_by_iteration:
    add.u64 ${address}, ${address}, ${main.iteration_bytes};
% endfor
% for access in main.accesses:
${math.multiply(access)}\
% endfor
${math.end_iteration()}\
    add.u32 %weights_addr, %weights_addr, ${main.weight_step};
    add.u32 %channel, %channel, ${plan.config.u};
    setp.lt.u32 %p, %channel, %chunk_end;
    @%p bra.uni CHANNEL_LOOP;
    add.u32 %chunk, %chunk, ${plan.config.filter_channels};
    bra.uni CHUNK_LOOP;
CHUNKS_DONE:
${ptx.banner("products to shared memory: product, pixel")}\
${math.store_place()}\
% for place, _, inside in main.places_of_pixels:
    setp.lt.u32 ${inside}, ${place}, ${g.pixels};
    mad.lo.u32 ${place}, ${place}, ${plan.arithmetic.bytes}, %sums_smem;
% endfor
% for inside, place, offset, sum in main.sum_stores:
    @${inside} st.shared.${main.acc.ptx_type} [${place}+${offset}], ${sum};
% endfor
${ptx.banner("wait: all products are in shared memory")}\
    bar.sync 0;
${ptx.banner(f"epilogue: {plan.epilogue.summary}")}\
    mov.u32 %sums_smem, smem;
${store_op.store_tiles(store_c, None, store_op)}\
<%def name="after_entry()"></%def>\
## The taps of the channels from %chunk on to shared memory; zeros past the last channel and the last product.
<%def name="load_taps()">
<% main, taps = plan.mainloop, plan.mainloop.taps %>\
    {
    .reg .b32 %element, %row_of, %in_row, %product, %tap, %of_channel;
    .reg .b64 %tap_addr;
    .reg .pred %exists;
    .reg .b16 %elem16;
    .reg .${plan.arithmetic.type} %elem;
    mov.u32 %element, %thread;
    .pragma "nounroll";
TAPS:
    div.u32 %row_of, %element, ${main.filter_row};
    mul.lo.u32 %in_row, %row_of, ${main.filter_row};
    sub.u32 %in_row, %element, %in_row;
    add.u32 %of_channel, %chunk, ${math.tap_channel()};
    setp.lt.u32 %exists, %of_channel, %channels;
    setp.lt.and.u32 %exists, ${math.tap_product()}, ${taps.products}, %exists;
    div.u32 %tap, ${math.tap_product()}, ${taps.filters};
    mul.lo.u32 %tmp0, %tap, ${taps.filters};
    sub.u32 %product, ${math.tap_product()}, %tmp0;
    mul.lo.u32 %tmp0, %product, %filter_filter_stride;
    mad.lo.u32 %tmp0, %of_channel, %channel_filter_stride, %tmp0;
    div.u32 %product, %tap, ${taps.columns.taps};
    mad.lo.u32 %tmp0, %product, %row_filter_stride, %tmp0;
    mul.lo.u32 %product, %product, ${taps.columns.taps};
    sub.u32 %product, %tap, %product;
    mad.lo.u32 %tmp0, %product, %column_filter_stride, %tmp0;
    mad.wide.s32 %tap_addr, %tmp0, ${main.size}, %filter_addr;
    mad.lo.u32 %tmp1, %row_of, ${plan.geometry.filter_pitch}, %taps_smem;
    mad.lo.u32 %tmp1, %in_row, ${main.filter_bytes}, %tmp1;
% if main.size == 2:
    mov.b16 %elem16, 0;
    @%exists ld.global.nc.b16 %elem16, [%tap_addr];
${math.store_tap("%tmp1")}\
% else:
    mov.${plan.arithmetic.type} %elem, ${plan.arithmetic.zero};
    @%exists ld.global.nc.${plan.arithmetic.type} %elem, [%tap_addr];
    st.shared.${plan.arithmetic.type} [%tmp1], %elem;
% endif
    add.u32 %element, %element, ${plan.threads};
    setp.lt.u32 %exists, %element, ${main.filter_elements};
    @%exists bra TAPS;
    }
</%def>
