## The items of each phase, which are groups of channels: %item counts phases, and within each phase the items of the launch.
<%def name="registers()">
    .reg .b32 %first_item, %items_of_phase, %batch_index, ${plan.batch.phase_number};
    .reg .b64 %batch_stride_c;
    ld.param.u32 %items_of_phase, [items];  ld.param.u32 %first_item, [first_item];  ld.param.u64 %batch_stride_c, [batch_stride_c];
    mul.lo.u32 %items, %items, %items_of_phase;
</%def>

<%def name="last_coordinates()">
    .reg .b32 ${plan.batch.coordinate_registers};
</%def>

## The phase, and the item of the batch, from %item.
<%def name="phase_number()">
    div.u32 ${plan.batch.phase_number}, %item, %items_of_phase;
    mul.lo.u32 %tmp0, ${plan.batch.phase_number}, %items_of_phase;
    sub.u32 %batch_index, %item, %tmp0;
    add.u32 %batch_index, %first_item, %batch_index;
</%def>

<%def name="c_address()">
    cvt.u64.u32 %tmp64, %batch_index;
    mad.lo.u64 %item_c, %tmp64, %batch_stride_c, %item_c;
</%def>

## The group's coordinates in tensors A and B, each of which has all groups.
<%def name="tensor_coordinates()">
% for register in plan.batch.coordinates:
    mov.u32 ${register}, %batch_index;
% endfor
</%def>

## Turns an item number into the number of its phase.
<%def name="phase_of(number)">
    div.u32 ${number}, ${number}, %items_of_phase;
</%def>
