## The frame of the part of a kernel that computes one of several tiles: it declares the part's registers.
% for tile, meaning in plan.register_table:
    ${tile.declaration}
% endfor
${next.body()}\
    ret;
