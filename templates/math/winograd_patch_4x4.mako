## The transform of patches of F(2x2, 3x3) and F(3x3, 2x2), for one row or column.

## The points of 4 pixels.
<%def name="image_points(pixels, points)">
    sub.rn.f32 ${points[0]}, ${pixels[0]}, ${pixels[2]};
    add.rn.f32 ${points[1]}, ${pixels[1]}, ${pixels[2]};
    sub.rn.f32 ${points[2]}, ${pixels[2]}, ${pixels[1]};
    sub.rn.f32 ${points[3]}, ${pixels[1]}, ${pixels[3]};
</%def>
