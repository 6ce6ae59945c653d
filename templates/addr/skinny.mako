## The elements of both operands that a thread multiplies, and their global addresses.
<%def name="setup()">
${lane_map()}\
% for x, own in ((plan.a, "%row"), (plan.b, "%col")):
${pointers(x, own)}\
% endfor
</%def>

<%def name="lane_map()">
    {
    .reg .b32 %lane, %warp, %k_group, %long_lane, %k_lane, %smem_addr;
    and.b32 %lane, %thread, 31;
    shr.u32 %warp, %thread, 5;
% if plan.mainloop.x.kmajor:
    // adjacent lanes along K
    and.b32 %k_lane, %lane, ${plan.mainloop.last_lane};
    shr.u32 %long_lane, %lane, ${plan.mainloop.log2_across};
% else:
    // adjacent lanes along ${plan.mainloop.x.extent}
    shr.u32 %k_lane, %lane, ${plan.mainloop.log2_lanes_long};
    and.b32 %long_lane, %lane, ${plan.mainloop.last_lane_long};
% endif
    setp.eq.u32 %is_k_lane0, %k_lane, 0;
    shr.u32 %k_group, %warp, ${plan.mainloop.log2_warps_along};
    and.b32 %warp, %warp, ${plan.mainloop.last_warp_along};
    mad.lo.u32 %long_lane, %warp, ${plan.config.lanes_long}, %long_lane;
    mad.lo.u32 %k_lane, %k_group, ${plan.mainloop.lanes}, %k_lane;
    mul.lo.u32 %k_pos, %k_lane, ${plan.mainloop.depth};
    mul.lo.u32 ${plan.mainloop.first_long}, %long_lane, ${plan.mainloop.x.contiguous_run};
    mov.u32 ${plan.mainloop.first_short}, 0;
    // %smem_c: where the epilogue stores this thread's sums in shared memory
    mad.lo.u32 %smem_addr, %k_group, ${plan.config.ml}, %row;
    mad.lo.u32 %smem_addr, %smem_addr, ${plan.epilogue.row_pitch}, %col;
    mad.lo.u32 %smem_c, %smem_addr, ${plan.arithmetic.bytes}, %smem;
    add.u32 %k_pos, %k_pos, %k0;
    }
</%def>

<%def name="pointers(x, own)">
    // ${x.upper}: ${x.described_rows}, index clamped to the last one
    .reg .b64 %ptr_${x.name}<${len(x.rows)}>;
% if x.pointer_steps:
    .reg .b64 %k_step_${x.name}<${len(x.pointer_steps)}>;
% endif
    sub.u32 %tmp2, %${x.extent}, ${x.edge};
% for n, row in enumerate(x.rows):
    add.u32 %tmp0, %${x.extent.lower()}0, ${own};
    add.u32 %tmp0, %tmp0, ${row};
    min.u32 %tmp0, %tmp0, %tmp2;
  % if x.kmajor:
    mul.wide.u32 %tmp64, %tmp0, %ld${x.name};
    cvt.u64.u32 %tmp64b, %k_pos;
  % else:
    mul.wide.u32 %tmp64, %k_pos, %ld${x.name};
    cvt.u64.u32 %tmp64b, %tmp0;
  % endif
    add.u64 %tmp64, %tmp64, %tmp64b;
    mad.lo.u64 %ptr_${x.name}${n}, %tmp64, ${x.size}, %${x.upper};
% endfor
% for n, step in enumerate(x.pointer_step_bytes):
    mul.wide.u32 %k_step_${x.name}${n}, %ld${x.name}, ${step};
% endfor
</%def>

## After the K loop: %k_rem: the remainder of K; %tmp0: the end of the slice.
<%def name="remainder()">
    sub.u32 %k_rem, %k_len, %tmp0;
    setp.eq.u32 %p, %k_rem, 0;
    @%p bra.uni EPILOGUE;
    add.u32 %k_pos, %k_pos, %tmp0;
    add.u32 %tmp0, %k0, %k_len;
</%def>

## Elements that vectors do not cover: none, rows are whole vectors.
<%def name="unaligned_elements(math)"></%def>

## The loads of a step. guard: the predicate of all of them; zeros: whether registers are 0 where it is false.
<%def name="load(x, step, guard='', following=False, zeros=False)">
% for l in x.loads(step, following):
  % if zeros:
    % for r in l.names:
    mov.${x.raw.ptx_type} ${r}, ${x.zero};
    % endfor
  % endif
    ${guard}ld.global.nc${x.cache_hint}.${l.ptx_type} ${l.registers}, [${l.pointer}+${l.offset}];
  % if l.advance >= 0:
    % for n in range(len(x.rows)):
    ${guard}add.u64 %ptr_${x.name}${n}, %ptr_${x.name}${n}, %k_step_${x.name}${l.advance};
    % endfor
  % endif
% endfor
</%def>

## Advances the pointers to the next K iteration, where K is contiguous.
<%def name="advance(x)">
% if x.kmajor:
  % for n in range(len(x.rows)):
    add.u64 %ptr_${x.name}${n}, %ptr_${x.name}${n}, ${x.stride_bytes};
  % endfor
% endif
</%def>
