## Each thread adds the products of its results, one for each tap, and stores one result after the other.
<%def name="store_tile(math, store_op, add_c)">
<% main, taps = plan.mainloop, plan.mainloop.taps %>\
    {
    .reg .b64 %c_addr;
    .reg .b32 %number, %products;
    .reg .pred %in_tile, %in_image;
    .reg .${plan.arithmetic.type} %product;
    ${plan.epilogue.vector.declaration}
    mov.u32 %number, %thread;
    .pragma "nounroll";
RESULTS:
    setp.lt.u32 %in_tile, %number, ${main.tile_results};
    @!%in_tile bra RESULTS_DONE;
% if taps.channels_last:
    div.u32 %tmp0, %number, ${taps.filters};
    mul.lo.u32 %filter, %tmp0, ${taps.filters};
    sub.u32 %filter, %number, %filter;
    div.u32 %row, %tmp0, ${plan.config.tile_width};
    mul.lo.u32 %column, %row, ${plan.config.tile_width};
    sub.u32 %column, %tmp0, %column;
% else:
    div.u32 %tmp0, %number, ${plan.config.tile_width};
    mul.lo.u32 %column, %tmp0, ${plan.config.tile_width};
    sub.u32 %column, %number, %column;
    div.u32 %filter, %tmp0, ${plan.config.tile_height};
    mul.lo.u32 %row, %filter, ${plan.config.tile_height};
    sub.u32 %row, %tmp0, %row;
% endif
    mad.lo.u32 %products, %row, ${main.row_bytes}, %sums_smem;
    mad.lo.u32 %products, %column, ${main.column_bytes}, %products;
    mad.lo.u32 %products, %filter, ${main.pitch_bytes}, %products;
    ld.shared.${plan.arithmetic.type} ${plan.epilogue.vector[0]}, [%products+${main.first_tap}];
% for offset in main.later_taps:
    ld.shared.${plan.arithmetic.type} %product, [%products+${offset}];
    ${plan.arithmetic.add} ${plan.epilogue.vector[0]}, ${plan.epilogue.vector[0]}, %product;
% endfor
    mul.rn.${plan.arithmetic.type} ${plan.epilogue.vector[0]}, ${plan.epilogue.vector[0]}, %alpha;
    add.u32 %row, %row, %first_row;
    add.u32 %column, %column, %first_column;
    setp.lt.u32 %in_image, %row, %result_rows;
    setp.lt.and.u32 %in_image, %column, %result_columns, %in_image;
    mul.lo.u32 %tmp0, %row, %row_result_stride;
    mad.lo.u32 %tmp0, %column, %column_result_stride, %tmp0;
    mad.lo.u32 %tmp0, %filter, %filter_result_stride, %tmp0;
    mad.wide.s32 %c_addr, %tmp0, ${plan.c.bytes}, %result_addr;
${store_op.store_vector(plan.epilogue.vector.all, "%c_addr", 0, "@%in_image ", add_c, *plan.epilogue.filter_coordinates)}\
    add.u32 %number, %number, ${plan.threads};
    bra RESULTS;
RESULTS_DONE:
    }
</%def>
