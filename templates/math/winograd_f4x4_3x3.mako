## F(4x4, 3x3): the transforms of filters and of products, for one row or column. The transform of patches is shared with F(3x3,
## 4x4).

## The points of 3 taps.
<%def name="operand_points(taps, points)">
    mul.rn.f32 ${points[0]}, ${taps[0]}, ${plan.interpolation.inverse_at_zero};
    mov.f32 ${points[5]}, ${taps[2]};
% for x in plan.interpolation.pairs:
    fma.rn.f32 ${points[x.first]}, ${taps[2]}, ${x.square}, ${taps[0]};
    mul.rn.f32 ${points[x.first]}, ${points[x.first]}, ${x.even};
    fma.rn.f32 ${points[x.second]}, ${taps[1]}, ${x.minus_odd}, ${points[x.first]};
    fma.rn.f32 ${points[x.first]}, ${taps[1]}, ${x.odd}, ${points[x.first]};
% endfor
</%def>

## 4 results of 6 products, from the sum and the difference of both products of a pair of points. Overwrites products.
<%def name="result_points(products, results)">
<% near, far = plan.interpolation.pairs %>\
    add.rn.f32 ${results[0]}, ${products[1]}, ${products[2]};
    sub.rn.f32 ${products[1]}, ${products[1]}, ${products[2]};
    add.rn.f32 ${products[2]}, ${products[3]}, ${products[4]};
    sub.rn.f32 ${products[3]}, ${products[3]}, ${products[4]};
    mul.rn.f32 ${results[1]}, ${products[1]}, ${near.plus};
    fma.rn.f32 ${results[1]}, ${products[3]}, ${far.plus}, ${results[1]};
    mul.rn.f32 ${results[2]}, ${results[0]}, ${near.square};
    fma.rn.f32 ${results[2]}, ${products[2]}, ${far.square}, ${results[2]};
    fma.rn.f32 ${results[3]}, ${products[1]}, ${near.cube}, ${products[5]};
    fma.rn.f32 ${results[3]}, ${products[3]}, ${far.cube}, ${results[3]};
    add.rn.f32 ${results[0]}, ${results[0]}, ${products[0]};
    add.rn.f32 ${results[0]}, ${results[0]}, ${products[2]};
</%def>
