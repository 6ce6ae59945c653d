## Scales and zero points of a thread's rows of weights: those of the next group are loaded while the present group is
## multiplied.
<%namespace name="dequantize" file="/${context['plan'].mainloop.fragments.dequantizer.template}"/>
<%namespace name="convert" file="/ptx/convert.mako"/>
<%def name="setup()">
    // groups of weights
    .reg .b64 %group_base;
    .reg .b32 %group, %last_group, %groups, %group_row, %group_index;
% if plan.scales.item:
    .reg .b64 %groups64;
% endif
    .reg .b16 %zero_half;
    mov.b16 %zero_half, 0;
% if plan.scales.grouped:
    shr.u32 %groups, %K, ${plan.scales.log2_group};
% else:
    mov.u32 %groups, 1;
% endif
    max.u32 %last_group, %groups, 1;
    sub.u32 %last_group, %last_group, 1;
    // this thread's first row in its warpgroup's
    mov.u32 %group_row, 0;
${convert.add_thread_terms("%group_row", "%wg_thread", plan.mainloop.row_terms)}\
</%def>

## The addresses of the rows of a tile; loads those of its first group.
<%def name="begin()">
    // addresses of scales; rows outside the matrix have those of its last row
    mad.lo.u32 %group_index, %wg, ${plan.mainloop.wg_rows}, %x0;
    add.u32 %group_index, %group_index, %group_row;
    sub.u32 %tmp0, ${plan.scales.extent}, 1;
% for array, size, _, _, addresses in plan.scales.arrays:
    ld.param.u64 %group_base, [${array}];
    cvta.to.global.u64 %group_base, %group_base;
  % if plan.scales.item:
    // those of the item
    mul.wide.u32 %tmp64, ${plan.scales.item}, ${plan.scales.extent};
    cvt.u64.u32 %groups64, %groups;
    mul.lo.u64 %tmp64, %tmp64, %groups64;
    mad.lo.u64 %group_base, %tmp64, ${size}, %group_base;
  % endif
  % for at, offset in zip(addresses.all, plan.scales.row_offsets):
    add.u32 %tmp1, %group_index, ${offset};
    min.u32 %tmp1, %tmp1, %tmp0;
    mul.wide.u32 %tmp64, %tmp1, %groups;
    mad.lo.u64 ${at}, %tmp64, ${size}, %group_base;
  % endfor
% endfor
% if plan.scales.grouped:
    shr.u32 %group, %k0, ${plan.scales.log2_group};
${load()}\
% else:
    mov.u32 %group, 0;
${load()}\
${begin_zero_points()}\
${convert_scales()}\
% endif
</%def>

<%def name="load()">
    min.u32 %group_index, %group, %last_group;
% for _, size, suffix, loaded, addresses in plan.scales.arrays:
  % for to, at in zip(loaded.all, addresses.all):
    mad.wide.u32 %group_base, %group_index, ${size}, ${at};
    ld.global.nc.${suffix} ${to}, [%group_base];
  % endfor
% endfor
</%def>

<%def name="convert_scales()">
% for line in plan.scales.conversions:
    ${line}
% endfor
</%def>

## The zero points of the group that begins.
<%def name="begin_zero_points()">
% for to, zero in plan.scales.zero_points:
${dequantize.zero_point(plan.mainloop.fragments.dequantizer, to, zero)}\
% endfor
</%def>

## The scales of the group that begins, once the sums of the one before it are scaled; loads those of the next group.
<%def name="begin_scales()">
${convert_scales()}\
% if plan.scales.ends_within_stage:
    // past the end of K sums are zero, and so are scales
    setp.gt.u32 %p, %group, %last_group;
  % for r in plan.scales.scale.all:
    selp.f32 ${r}, 0f00000000, ${r}, %p;
  % endfor
% endif
    add.u32 %group, %group, 1;
${load()}\
</%def>

## Weights are multiplied without their scales.
<%def name="scale_weights(x)"></%def>

<%def name="next_block()"></%def>

<%def name="add(partial)">
% for total, part, scale in plan.scales.scaled_sums:
    fma.rn.f32 ${total}, ${part}, ${scale}, ${total};
% endfor
</%def>

## The sums of rows whose weights have one scale.
<%def name="scale_rows()">
% for total, _, scale in plan.scales.scaled_sums:
    mul.rn.f32 ${total}, ${total}, ${scale};
% endfor
</%def>

<%def name="add_text()">scale their sums, and add them to the totals</%def>
<%def name="add_iteration_text()">scale the sums of this iteration, and add them</%def>
