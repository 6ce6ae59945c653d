## Pingpong: two warpgroups multiply in turns.
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%def name="begin()">
    // pingpong: warpgroup 0 multiplies first
    setp.ne.u32 %p, %wg, 0;
    @%p bar.arrive 4, 256;
</%def>

<%def name="take_turn()">
    // ---- wait: the other warpgroup has seen all its stages full, as a parity distinguishes only adjacent rounds
${sync.alternate("sync", 4, 5)}\
</%def>

<%def name="end_turn()">
    // the other warpgroup may continue
${sync.alternate("arrive", 5, 4)}\
</%def>
