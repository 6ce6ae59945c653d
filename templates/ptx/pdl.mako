## Programmatic dependent launch: before griddepcontrol.wait, a kernel touches no memory that an earlier kernel writes.
<%def name="early_trigger()">
% if plan.pdl.trigger == "early":
${trigger()}\
% endif
</%def>

## After the block's last loads: blocks of the next kernel that start earlier would take resources of this kernel's blocks.
<%def name="late_trigger()">
% if plan.pdl.trigger == "late":
${trigger()}\
% endif
</%def>

## For auxiliary kernels, which have little to overlap.
<%def name="trigger_and_wait()">
% if plan.pdl.active:
${trigger()}\
${wait()}\
% endif
</%def>

<%def name="trigger()">
    // the next kernel may start; its griddepcontrol.wait waits for the end of this one
    griddepcontrol.launch_dependents;
</%def>

<%def name="wait()">
% if plan.pdl.active:
    // ---- wait: the previous kernel of the stream has ended
    griddepcontrol.wait;
% endif
</%def>
