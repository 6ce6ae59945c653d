## Block scales: an instruction starts from zero, and its result, times the scales of its row and column, is added to the sums.
<%def name="setup()">
    // scales of blocks: this stage of K ends at %scale_end, the next one is %scale_step longer
    .reg .b64 %scale_base, %scale_address;
    .reg .b32 %scale_k, %scale_end, %scale_step, %scale_group, %scale_block;
    .reg .pred %scale_inside, %scale_new;
    .reg .f32 %scale;
    mov.u32 %scale_end, %k0;
    mov.u32 %scale_step, %k_rem;
    shr.u32 %scale_group, %thread, ${plan.mainloop.log2_group};
    mul.lo.u32 %scale_group, %scale_group, ${plan.mainloop.group_depth};
% for x in plan.scales.sides:
    .reg .b64 %scales_${x.name};
    .reg .b32 %scale_rows_${x.name}, %scale_pitch_${x.name};
    ld.param.u64 %scales_${x.name}, [scale_${x.name}];
    cvta.to.global.u64 %scales_${x.name}, %scales_${x.name};
    ld.param.u32 %scale_rows_${x.name}, [scale_${x.name}_rows];  ld.param.u32 %scale_pitch_${x.name}, [scale_${x.name}_k];
  % if plan.scales.batched:
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
    mov.u32 %scale_k, %scale_end;
    add.u32 %scale_end, %scale_end, %scale_step;
    mov.u32 %scale_step, ${plan.config.u};
    add.u32 %scale_k, %scale_k, %scale_group;
% endif
    // scales of the block of this step
    add.u32 %tmp0, %scale_k, ${plan.scales.positions[k]};
    setp.lt.u32 %scale_inside, %tmp0, %scale_end;
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
