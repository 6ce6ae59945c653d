## Adds the register of the lane whose number differs by ``distance``.
<%def name="add_butterfly(type, register, distance)">
% if type == "f64":
    {
    .reg .b32 %low, %high;
    .reg .f64 %far;
    mov.b64 {%low, %high}, ${register};
    shfl.sync.bfly.b32 %low, %low, ${distance}, 31, 0xffffffff;
    shfl.sync.bfly.b32 %high, %high, ${distance}, 31, 0xffffffff;
    mov.b64 %far, {%low, %high};
    add.rn.f64 ${register}, ${register}, %far;
    }
% else:
    {
    .reg .f32 %far;
    shfl.sync.bfly.b32 %far, ${register}, ${distance}, 31, 0xffffffff;
    add.rn.f32 ${register}, ${register}, %far;
    }
% endif
</%def>
