## F(3x3, 2x2): the transforms of result gradients and of products, for one row or column, with the points of F(2x2, 3x3).

## The points of 2 pixels: both, and half of their sum and of their difference.
<%def name="operand_points(pixels, points)">
    mov.f32 ${points[0]}, ${pixels[0]};
    mov.f32 ${points[3]}, ${pixels[1]};
    add.rn.f32 ${points[1]}, ${pixels[0]}, ${pixels[1]};
    sub.rn.f32 ${points[2]}, ${pixels[0]}, ${pixels[1]};
    mul.rn.f32 ${points[1]}, ${points[1]}, 0f3F000000;
    mul.rn.f32 ${points[2]}, ${points[2]}, 0f3F000000;
</%def>

## 3 gradients of 4 products.
<%def name="result_points(products, results)">
    add.rn.f32 ${results[2]}, ${products[1]}, ${products[2]};
    sub.rn.f32 ${results[1]}, ${products[1]}, ${products[2]};
    add.rn.f32 ${results[0]}, ${products[0]}, ${results[2]};
    sub.rn.f32 ${results[2]}, ${results[2]}, ${products[3]};
</%def>
