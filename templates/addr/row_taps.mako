## im2col loads whose stages have all taps of a filter row: K is rows of taps, of channels. Rows of taps are the taps of a single
## phase.
<%namespace name="phased" file="/addr/phased_im2col.mako"/>
<%def name="setup()">
${phased.setup()}\
    // the taps of the row, in the order of the pixels that they are multiplied by
    .reg .b32 %row_tap<${len(plan.loads.row_taps)}>;
</%def>

<%def name="begin()">
${phased.begin()}\
${row_taps()}\
</%def>

<%def name="row_taps()">
% for n in plan.loads.row_taps:
    add.u32 %row_tap${n}, %filter_tap, ${plan.loads.row_taps[-1 - n] if plan.loads.flipped else n};
% endfor
</%def>

## The next channels, or the next row of taps.
<%def name="step()">
${phased.step()}\
${row_taps()}\
</%def>
