## The transform of patches of F(4x4, 3x3) and F(3x3, 4x4), for one row or column.

## The points of 6 pixels. Terms with even and with odd powers of a pair of points are common to both.
<%def name="image_points(pixels, points)">
<% near, far = plan.interpolation.pairs %>\
% for x in (near, far):
    fma.rn.f32 ${points[0]}, ${pixels[2]}, ${x.minus_other_square}, ${pixels[4]};
    fma.rn.f32 ${points[5]}, ${pixels[1]}, ${x.minus_other_square}, ${pixels[3]};
    fma.rn.f32 ${points[x.first]}, ${points[5]}, ${x.plus}, ${points[0]};
    fma.rn.f32 ${points[x.second]}, ${points[5]}, ${x.minus}, ${points[0]};
% endfor
    fma.rn.f32 ${points[0]}, ${pixels[2]}, ${far.minus_square}, ${points[0]};
    fma.rn.f32 ${points[0]}, ${pixels[0]}, ${plan.interpolation.at_zero}, ${points[0]};
    fma.rn.f32 ${points[5]}, ${points[5]}, ${far.minus_square}, ${pixels[5]};
    fma.rn.f32 ${points[5]}, ${pixels[3]}, ${near.minus_square}, ${points[5]};
</%def>
