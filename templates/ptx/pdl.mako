## Kernels of one stream that may overlap: nothing that another kernel reads or writes is touched before the wait.
<%def name="begin()">
% if plan.opens == "early":
${opened()}\
% endif
</%def>

## Once a block asks for nothing more: blocks that came earlier would take the room of this kernel's own.
<%def name="end()">
% if plan.opens == "late":
${opened()}\
% endif
</%def>

## Of a pass, which has little to overlap.
<%def name="at_once()">
% if plan.dependent:
${opened()}\
${wait()}\
% endif
</%def>

<%def name="opened()">
    // the next kernel may begin; its own wait is for the end of this one
    griddepcontrol.launch_dependents;
</%def>

<%def name="wait()">
% if plan.dependent:
    griddepcontrol.wait;
% endif
</%def>
