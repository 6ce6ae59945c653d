## Loads of matrices: the coordinate along K is %k.
<%def name="setup()"></%def>

<%def name="begin()">
    mov.u32 %k, %k0;
</%def>

<%def name="step()">
    add.u32 %k, %k, ${plan.config.u};
</%def>
