## Kernels of one stream that may overlap: nothing that another kernel reads or writes is touched before the wait.
<%def name="begin()">
% if plan.dependent:
    // the next kernel may begin; its own wait is for the end of this one
    griddepcontrol.launch_dependents;
% endif
</%def>

<%def name="wait()">
% if plan.dependent:
    griddepcontrol.wait;
% endif
</%def>
