## Activations and quantized weights: the coordinates along K are %k, and in bytes of weights %weights_k.
<%def name="setup()">
    .reg .b32 %weights_k;
</%def>

<%def name="begin()">
    mov.u32 %k, %k0;
    shr.u32 %weights_k, %k0, ${plan.loads.log2_per_byte};
</%def>

<%def name="step()">
    add.u32 %k, %k, ${plan.config.u};
    add.u32 %weights_k, %weights_k, ${plan.loads.stage_bytes};
</%def>
