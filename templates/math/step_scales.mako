## Block scales: an instruction starts from zero, and its result, times the scales of its row and column, is added to the sums.
<%def name="setup()">
    // scales of blocks: the first element of K of this warp in the next stage
    .reg .b64 %scale_base, %scale_address;
    .reg .b32 %scale_k, %scale_next, %scale_block;
    .reg .pred %scale_inside, %scale_new;
    .reg .f32 %scale;
    shr.u32 %scale_next, %thread, ${plan.mainloop.log2_group};
    mad.lo.u32 %scale_next, %scale_next, ${plan.mainloop.group_depth}, %k0;
% for x in plan.scales.sides:
    .reg .b64 %scales_${x.name};
    .reg .b32 %scale_rows_${x.name}, %scale_pitch_${x.name};
    ld.param.u64 %scales_${x.name}, [scale_${x.name}];
    cvta.to.global.u64 %scales_${x.name}, %scales_${x.name};
  % if x.by_k is None:
    ld.param.u32 %scale_rows_${x.name}, [scale_${x.name}_rows];  ld.param.u32 %scale_pitch_${x.name}, [scale_${x.name}_k];
  % endif
  % if x.entry:
    // from those of the item on
    ld.global.u64 %tmp64, [%descriptor+${x.entry}];
    add.u64 %scales_${x.name}, %scales_${x.name}, %tmp64;
    % if x.by_k:
    // the scales of a block of K are contiguous
    mov.u32 %scale_rows_${x.name}, ${x.BYTES};
    add.u32 %scale_pitch_${x.name}, ${x.extent}, ${x.last_row};
      % if x.shift:
    shr.u32 %scale_pitch_${x.name}, %scale_pitch_${x.name}, ${x.shift};
      % endif
    shl.b32 %scale_pitch_${x.name}, %scale_pitch_${x.name}, ${x.log2_bytes};
    % elif x.by_k is not None:
    // the scales of a block of rows are contiguous
    mov.u32 %scale_pitch_${x.name}, ${x.BYTES};
    add.u32 %tmp0, %K, ${plan.scales.last_k};
    shr.u32 %tmp0, %tmp0, ${plan.scales.depth_shift};
    shl.b32 %scale_rows_${x.name}, %tmp0, ${x.log2_bytes};
    % endif
  % elif plan.scales.batched:
    ld.param.u64 %tmp64, [scale_${x.name}_items];
    cvt.u64.u32 %tmp64b, %batch_index;
    mad.lo.u64 %scales_${x.name}, %tmp64b, %tmp64, %scales_${x.name};
  % endif
    // rows outside the matrix have the scales of its last row
    add.u32 %tmp0, ${x.origin}, ${x.first};
    sub.u32 %tmp1, ${x.extent}, 1;
  % for to, offset in zip(x.places.all, x.offsets):
    add.u32 ${to}, %tmp0, ${offset};
    min.u32 ${to}, ${to}, %tmp1;
    % if x.shift:
    shr.u32 ${to}, ${to}, ${x.shift};
    % endif
  % endfor
% endfor
</%def>

## Loads the scales of the block of a step; they are 0 after the end of K.
<%def name="begin_step(k)">
% if k == 0:
    // scales: the K of this stage
    mov.u32 %scale_k, %scale_next;
    add.u32 %scale_next, %scale_next, ${plan.config.u};
% endif
    // scales of the block of this step
    add.u32 %tmp0, %scale_k, ${plan.scales.positions[k]};
    setp.lt.u32 %scale_inside, %tmp0, %K;
% if k == 0:
    mov.pred %scale_new, %scale_inside;
% else:
    and.b32 %tmp1, %tmp0, ${plan.scales.last_k};
    setp.eq.and.u32 %scale_new, %tmp1, 0, %scale_inside;
% endif
    shr.u32 %scale_block, %tmp0, ${plan.scales.depth_shift};
% for x in plan.scales.sides:
    mul.wide.u32 %scale_base, %scale_block, %scale_pitch_${x.name};
    add.u64 %scale_base, %scale_base, %scales_${x.name};
  % for to, place in zip(x.scales.all, x.places.all):
    mad.wide.u32 %scale_address, ${place}, %scale_rows_${x.name}, %scale_base;
    @%scale_new ld.global.nc.f32 ${to}, [%scale_address];
    @!%scale_inside mov.f32 ${to}, 0f00000000;
  % endfor
% endfor
</%def>

<%def name="product(instruction, sums, a, b)">
    {
    .reg .f32 ${instruction.partial_registers}, %zero;
    mov.f32 %zero, 0f00000000;
    ${instruction.name} {${instruction.partial_registers}}, ${a}, ${b}, {${instruction.zeros}};
% for s in plan.scales.scaled[sums[0]]:
    mul.rn.f32 %scale, ${s.a}, ${s.b};
    fma.rn.f32 ${s.total}, ${s.partial}, %scale, ${s.total};
% endfor
    }
</%def>
