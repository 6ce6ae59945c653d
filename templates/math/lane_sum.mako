## Butterfly shuffles: in each step, a lane of a warp adds the value of another lane.
<%def name="registers(ptx_type)">
    .reg .b32 %low, %high, %peer_low, %peer_high;
    .reg .${ptx_type} %peer;
</%def>

## Adds to register ``r`` its value in the lane whose number differs in the bit of ``lane``.
<%def name="add_peer(r, lane, add_op)">
% if plan.arithmetic.bytes == 8:
    mov.b64 {%low, %high}, ${r};
    shfl.sync.bfly.b32 %peer_low, %low, ${lane}, 31, 0xffffffff;
    shfl.sync.bfly.b32 %peer_high, %high, ${lane}, 31, 0xffffffff;
    mov.b64 %peer, {%peer_low, %peer_high};
% else:
    shfl.sync.bfly.b32 %peer, ${r}, ${lane}, 31, 0xffffffff;
% endif
    ${add_op} ${r}, ${r}, %peer;
</%def>
