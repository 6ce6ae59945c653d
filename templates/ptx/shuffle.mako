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

## Adds the values of lower lanes.
<%def name="add_lower(sum, far)">
    {
    .reg .pred %has_lower;
% for distance in (1, 2, 4, 8, 16):
    shfl.sync.up.b32 ${far}|%has_lower, ${sum}, ${distance}, 0, 0xffffffff;
    @%has_lower add.u32 ${sum}, ${sum}, ${far};
% endfor
    }
</%def>
