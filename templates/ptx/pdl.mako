## Kernels of one stream that may overlap: nothing that another kernel reads or writes is touched before the wait.
<%def name="early_trigger()">
% if plan.pdl_trigger == "early":
${trigger()}\
% endif
</%def>

## Once a block asks for nothing more: blocks that came earlier would take the room of this kernel's own.
<%def name="late_trigger()">
% if plan.pdl_trigger == "late":
${trigger()}\
% endif
</%def>

## Of a pass, which has little to overlap.
<%def name="trigger_and_wait()">
% if plan.pdl:
${trigger()}\
${wait()}\
% endif
</%def>

<%def name="trigger()">
    // the next kernel may begin; its own wait is for the end of this one
    griddepcontrol.launch_dependents;
</%def>

<%def name="wait()">
% if plan.pdl:
    griddepcontrol.wait;
% endif
</%def>
