## Products of taps by fma: a thread has the channels of its pixels, and reads the taps of a channel from shared memory.
<%namespace name="convert" file="/ptx/convert.mako"/>
<%def name="first_place()">
    mov.u32 ${plan.mainloop.places[0]}, %thread;
</%def>
<%def name="prepare()">
    ${plan.mainloop.pixels.declaration} ${plan.mainloop.halves.declaration}
</%def>
<%def name="begin_chunk()">
    mov.u32 %weights_addr, %taps_smem;
</%def>
<%def name="channel_register()">%channel</%def>
<%def name="tap_channel()">%row_of</%def>
<%def name="tap_product()">%in_row</%def>
<%def name="store_place()"></%def>
## Stores %elem16, a tap, in the type of sums.
<%def name="store_tap(at)">
${convert.widen(plan.problem.dtype, "%elem", "%elem16")}\
    st.shared.${plan.arithmetic.type} [${at}], %elem;
</%def>

<%def name="end_iteration()"></%def>

<%def name="multiply(access)">
% for low, high, word in access.pairs:
${convert.widen_pair(plan.problem.dtype, low, high, word, plan.mainloop.halves)}\
% endfor
% for wide, half in access.singles:
${convert.widen(plan.problem.dtype, wide, half)}\
% endfor
% for to, loaded in access.moves:
    mov.${plan.arithmetic.type} ${to}, ${loaded};
% endfor
% for channel in access.channels:
  % for load in channel.taps:
    ld.shared.${plan.mainloop.weight_type} ${load.operand}, [%weights_addr+${load.offset}];
  % endfor
  % for sum, pixel, tap in channel.products:
    fma.rn.${plan.arithmetic.type} ${sum}, ${pixel}, ${tap}, ${sum};
  % endfor
% endfor
</%def>
