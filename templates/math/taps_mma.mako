## Products of taps by mma.sync: 16 pixels, 16 channels and 8 products. Four lanes load 32 channels of a pixel, eight each.
<%def name="first_place()">
    shr.u32 %tmp0, %thread, 5;
    shr.u32 %tmp1, %lane, 2;
    mad.lo.u32 ${plan.mainloop.places[0]}, %tmp0, ${plan.mainloop.warp_pixels}, %tmp1;
</%def>
<%def name="prepare()">
    .reg .b32 %lane_channel, %lane_taps, %channel_of_lane;
    and.b32 %lane_channel, %lane, 3;
    shl.b32 %lane_channel, %lane_channel, ${plan.mainloop.log2_vector};
    mul.wide.u32 %tmp64, %lane_channel, ${plan.mainloop.size};
% for address in plan.mainloop.addresses.all:
    add.u64 ${address}, ${address}, %tmp64;
% endfor
    // the lane's taps: eight channels of the product of its group
    shr.u32 %lane_taps, %lane, 2;
    mad.lo.u32 %lane_taps, %lane_taps, ${plan.geometry.filter_pitch}, %taps_smem;
    mad.lo.u32 %lane_taps, %lane_channel, ${plan.mainloop.size}, %lane_taps;
    mov.u32 %channel_of_lane, %lane_channel;
</%def>
<%def name="begin_chunk()">
    mov.u32 %weights_addr, %lane_taps;
    add.u32 %channel_of_lane, %chunk, %lane_channel;
</%def>
<%def name="channel_register()">%channel_of_lane</%def>
<%def name="tap_channel()">%in_row</%def>
<%def name="tap_product()">%row_of</%def>
## The first products of a lane: two for each instruction.
<%def name="store_place()">
    and.b32 %tmp0, %lane, 3;
    mul.lo.u32 %tmp0, %tmp0, ${plan.mainloop.lane_pitch_bytes};
    add.u32 %sums_smem, %sums_smem, %tmp0;
</%def>

<%def name="store_tap(at)">
    st.shared.b16 [${at}], %elem16;
</%def>

<%def name="end_iteration()">
    add.u32 %channel_of_lane, %channel_of_lane, ${plan.config.u};
</%def>

<%def name="multiply(access)">
% for load in access.taps:
    ld.shared.v4.b32 ${load.operand}, [%weights_addr+${load.offset}];
% endfor
% for x in access.products:
    ${plan.mainloop.instruction} ${x.sums}, ${x.pixels}, ${x.taps}, ${x.sums};
% endfor
</%def>
