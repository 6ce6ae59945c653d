## Sums of 128 elements of K, times the scales of their blocks of A and B, are added to the totals. The scales of the next block
## are loaded while the present block is multiplied.
<%namespace name="convert" file="/ptx/convert.mako"/>
<%namespace name="last" file="/${context['plan'].scales.last_template}"/>
<%def name="setup()">
    // scales of blocks: bytes between those of blocks of rows and of K
    .reg .b64 %scale_base, %scale_k_x, %scale_k_y;
    .reg .b32 %scale_row, %scale_first, %scale_index, %scale_k, %scale_block, %last_block;
    .reg .f32 %scale;
% for x in plan.scales.sides:
    .reg .b32 %scale_rows_${x.role}, %scale_pitch_${x.role};
  % if x.by_k is None:
    ld.param.u32 %scale_rows_${x.role}, [scale_${x.name}_rows];  ld.param.u32 %scale_pitch_${x.role}, [scale_${x.name}_k];
  % endif
% endfor
${last.setup()}\
    // this thread's first row in its warpgroup's
    mov.u32 %scale_row, 0;
${convert.add_thread_terms("%scale_row", "%wg_thread", plan.mainloop.row_terms)}\
% if plan.scales.exchanged:
    .reg .f32 %scale_column<2>;
    .reg .b32 %scale_lane, %scale_from;
    and.b32 %scale_lane, %lane, 3;
    shl.b32 %scale_lane, %scale_lane, 1;
% endif
</%def>

## The addresses of the scales of a tile; loads those of its first block.
<%def name="begin()">
${last.begin()}\
    // addresses of scales; rows outside the matrix have those of its last row
    mad.lo.u32 %scale_first, %wg, ${plan.mainloop.wg_rows}, %x0;
% for x in plan.scales.sides:
    ld.param.u64 %scale_base, [scale_${x.name}];
    cvta.to.global.u64 %scale_base, %scale_base;
  % if x.entry:
    // from those of the item on
    ld.global.u64 %tmp64, [%descriptor+${x.entry}];
    add.u64 %scale_base, %scale_base, %tmp64;
    % if x.by_k:
    // the scales of a block of K are contiguous
    mov.u32 %scale_rows_${x.role}, ${x.BYTES};
    add.u32 %scale_pitch_${x.role}, ${x.extent}, ${x.last_row};
      % if x.shift:
    shr.u32 %scale_pitch_${x.role}, %scale_pitch_${x.role}, ${x.shift};
      % endif
    shl.b32 %scale_pitch_${x.role}, %scale_pitch_${x.role}, ${x.log2_bytes};
    % elif x.by_k is not None:
    // the scales of a block of rows are contiguous
    mov.u32 %scale_pitch_${x.role}, ${x.BYTES};
    mad.lo.u32 %scale_rows_${x.role}, %last_block, ${x.BYTES}, ${x.BYTES};
    % endif
  % elif plan.scales.item:
    ld.param.u64 %tmp64, [scale_${x.name}_items];
    cvt.u64.u32 %tmp64b, ${plan.scales.item};
    mad.lo.u64 %scale_base, %tmp64b, %tmp64, %scale_base;
  % endif
    sub.u32 %tmp0, ${x.extent}, 1;
  % if x.thread:
    add.u32 %tmp1, ${x.first}, ${x.thread};
  % else:
    mov.u32 %tmp1, ${x.first};
  % endif
  % for at, offset in zip(x.addresses.all, x.offsets):
    add.u32 %scale_index, %tmp1, ${offset};
    min.u32 %scale_index, %scale_index, %tmp0;
    % if x.shift:
    shr.u32 %scale_index, %scale_index, ${x.shift};
    % endif
    mad.wide.u32 ${at}, %scale_index, %scale_rows_${x.role}, %scale_base;
  % endfor
% endfor
    mov.u32 %scale_k, %k0;
${load()}\
</%def>

## Loads the scales of the block of K that has element %scale_k. Sums after the last block are zero.
<%def name="load()">
    shr.u32 %scale_block, %scale_k, ${plan.scales.block_shift};
${last.compare()}\
    add.u32 %scale_k, %scale_k, ${plan.scales.depth};
% for x in plan.scales.sides:
    mul.wide.u32 %scale_k_${x.role}, %scale_block, %scale_pitch_${x.role};
  % for to, at in zip(x.loaded.all, x.addresses.all):
    add.u64 %scale_base, ${at}, %scale_k_${x.role};
${last.load(to)}\
  % endfor
% endfor
</%def>

## The scales of this block; loads those of the next one.
<%def name="next_block()">
% for x in plan.scales.sides:
  % for to, value in zip(x.scales.all, x.loaded.all):
    mov.f32 ${to}, ${value};
  % endfor
% endfor
${load()}\
</%def>

<%def name="add(partial)">
% for exchanges, sums in plan.scales.columns[partial]:
  % for s in exchanges:
    add.u32 %scale_from, %scale_lane, ${s.lane};
    shfl.sync.idx.b32 ${s.to}, ${s.register}, %scale_from, 31, 0xffffffff;
  % endfor
  % for s in sums:
    mul.rn.f32 %scale, ${s.x}, ${s.y};
    % for total, part in s.pairs:
    fma.rn.f32 ${total}, ${part}, %scale, ${total};
    % endfor
  % endfor
% endfor
</%def>

<%def name="add_text()">scale their sums, and add them to the totals</%def>
<%def name="add_iteration_text()">scale the sums of this iteration, and add them</%def>
