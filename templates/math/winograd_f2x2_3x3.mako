## F(2x2, 3x3): the transforms of filters and of products, for one row or column. The transform of patches is shared with F(3x3,
## 2x2).

## The points of 3 taps: their ends, and half of the sum and of the alternating sum.
<%def name="operand_points(taps, points)">
    mov.f32 ${points[0]}, ${taps[0]};
    mov.f32 ${points[3]}, ${taps[2]};
    add.rn.f32 ${points[1]}, ${taps[0]}, ${taps[2]};
    sub.rn.f32 ${points[2]}, ${points[1]}, ${taps[1]};
    add.rn.f32 ${points[1]}, ${points[1]}, ${taps[1]};
    mul.rn.f32 ${points[1]}, ${points[1]}, 0f3F000000;
    mul.rn.f32 ${points[2]}, ${points[2]}, 0f3F000000;
</%def>

## 2 results of 4 products.
<%def name="result_points(products, results)">
    add.rn.f32 ${results[0]}, ${products[0]}, ${products[1]};
    add.rn.f32 ${results[0]}, ${results[0]}, ${products[2]};
    sub.rn.f32 ${results[1]}, ${products[1]}, ${products[2]};
    sub.rn.f32 ${results[1]}, ${results[1]}, ${products[3]};
</%def>
