## The batch item that a block computes. %item counts from the first item of this launch, %batch_index from the first item of
## the batch.
<%def name="registers()">
    .reg .b32 %item, %items, %first_item, %batch_index;
    .reg .b64 %batch_stride_c, %item_c;
    ld.param.u32 %items, [items];  ld.param.u32 %first_item, [first_item];  ld.param.u64 %batch_stride_c, [batch_stride_c];
</%def>

## grid.z counts slices of K, and the items of the launch within each slice.
<%def name="from_block()">
    mov.u32 %item, %ctaid.z;
% if plan.reduction.active:
    div.u32 %slice, %item, %items;
    mul.lo.u32 %tmp0, %slice, %items;
    sub.u32 %item, %item, %tmp0;
% else:
    mov.u32 %slice, 0;
% endif
${c_address()}\
</%def>

## The item from a tile's index among the tiles of all items; %item_tiles: tiles of an item.
<%def name="from_tile()">
    div.u32 %item, %tile, %item_tiles;
    mul.lo.u32 %tmp0, %item, %item_tiles;
    sub.u32 %item_tile, %tile, %tmp0;
${c_address()}\
</%def>

## The address of the item's C.
<%def name="c_address()">
    add.u32 %batch_index, %first_item, %item;
    cvt.u64.u32 %tmp64, %batch_index;
    mad.lo.u64 %item_c, %tmp64, %batch_stride_c, %C;
</%def>

## The item's coordinates in tensors A and B: 0 where all items share one matrix.
<%def name="tensor_coordinates()">
% for register, last in zip(plan.batch.coordinates, plan.batch.last):
    min.u32 ${register}, ${plan.batch.number}, ${last};
% endfor
</%def>

## Moves A and B to the item's matrices; packed copies count items from the first of the launch.
<%def name="offset_operands()">
% for x in (plan.a, plan.b):
    ld.param.u64 %tmp64b, [batch_stride_${x.name}];
  % if x.name in plan.packing.names:
    cvt.u64.u32 %tmp64, %item;
  % else:
    cvt.u64.u32 %tmp64, %batch_index;
  % endif
    mad.lo.u64 %${x.name.upper()}, %tmp64, %tmp64b, %${x.name.upper()};
% endfor
</%def>

## The tile's index among the tiles of all items, from its index in the item.
<%def name="tile_index(tile)">
    mov.u32 %tmp1, %nctaid.x;
    mov.u32 %tmp2, %nctaid.y;
    mul.lo.u32 %tmp1, %tmp1, %tmp2;
    mad.lo.u32 ${tile}, %item, %tmp1, ${tile};
</%def>

## Warp-specialised schedule: registers of batch coordinates, and the last coordinate of each tensor.
<%def name="last_coordinates()">
    .reg .b32 %item_tiles, %item_tile, ${plan.batch.coordinate_registers};
% for r in plan.batch.last:
    ld.param.u32 ${r}, [${r[1:]}];
% endfor
</%def>

## Pingpong: all tiles have as many K iterations.
<%def name="skip(tile)"></%def>
<%def name="skip_next()"></%def>

## Every tile has K iterations.
<%def name="begin_producer_loop()"></%def>
<%def name="end_producer_loop()"></%def>
<%def name="begin_k_loop()"></%def>
<%def name="end_k_loop()"></%def>
<%def name="zero_sums()"></%def>
