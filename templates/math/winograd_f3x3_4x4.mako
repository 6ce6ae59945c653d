## F(3x3, 4x4): the transforms of result gradients and of products, for one row or column, with the points of F(4x4, 3x3).

## The points of 4 pixels.
<%def name="operand_points(pixels, points)">
% for x in plan.interpolation.pairs:
    fma.rn.f32 ${points[0]}, ${pixels[3]}, ${x.square}, ${pixels[1]};
    fma.rn.f32 ${points[x.first]}, ${pixels[2]}, ${x.square}, ${pixels[0]};
    mul.rn.f32 ${points[x.first]}, ${points[x.first]}, ${x.even};
    fma.rn.f32 ${points[x.second]}, ${points[0]}, ${x.minus_odd}, ${points[x.first]};
    fma.rn.f32 ${points[x.first]}, ${points[0]}, ${x.odd}, ${points[x.first]};
% endfor
    mul.rn.f32 ${points[0]}, ${pixels[0]}, ${plan.interpolation.inverse_at_zero};
    mov.f32 ${points[5]}, ${pixels[3]};
</%def>

## 3 gradients of 6 products, from the sum and the difference of both products of a pair of points. Overwrites products.
<%def name="result_points(products, results)">
<% near, far = plan.interpolation.pairs %>\
    add.rn.f32 ${results[0]}, ${products[1]}, ${products[2]};
    sub.rn.f32 ${products[1]}, ${products[1]}, ${products[2]};
    add.rn.f32 ${products[2]}, ${products[3]}, ${products[4]};
    sub.rn.f32 ${products[3]}, ${products[3]}, ${products[4]};
    mul.rn.f32 ${results[1]}, ${products[1]}, ${near.plus};
    fma.rn.f32 ${results[1]}, ${products[3]}, ${far.plus}, ${results[1]};
    fma.rn.f32 ${results[2]}, ${results[0]}, ${near.square}, ${products[5]};
    fma.rn.f32 ${results[2]}, ${products[2]}, ${far.square}, ${results[2]};
    add.rn.f32 ${results[0]}, ${results[0]}, ${products[0]};
    add.rn.f32 ${results[0]}, ${results[0]}, ${products[2]};
</%def>
