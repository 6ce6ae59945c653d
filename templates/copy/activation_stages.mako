## Threads copy activations to stages in shared memory by cp.async; lanes load them from there.
<%def name="registers()">
    .reg .b32 %read_at, %read_end;
</%def>

## The address of the lane's first activations in the first stage.
<%def name="lane_address()">
<% x = plan.a.stages %>\
    mad.lo.u32 %read_at, %frag_row, ${x.pitch}, %smem;
    mad.lo.u32 %read_at, %k_lane, ${x.chunk_bytes}, %read_at;
    mad.lo.u32 %read_at, %k_group, ${plan.mainloop.warp_bytes}, %read_at;
    add.u32 %read_at, %read_at, ${x.first};
    add.u32 %read_end, %read_at, ${x.all_bytes};
</%def>

## The first copy of the thread: its row and K of A, and its place in the first stage.
<%def name="setup()">
<% x = plan.a.stages %>\
    .reg .b64 %copy_from;
    .reg .b32 %copy_row, %copy_to, %copy_end, %copy_left, %copy_bytes, %row_bytes, %last_row, %lda_bytes;
    .reg .pred %copies, %in_copy;
    // A: threads copy vectors along K of a row, then of the rows after
    setp.lt.u32 %copies, %thread, ${x.copying};
    shr.u32 %copy_row, %thread, ${x.log2_row_threads};
    mad.lo.u32 %copy_to, %copy_row, ${x.pitch}, %smem;
    add.u32 %copy_row, %copy_row, %m0;
    sub.u32 %last_row, %M, 1;
    shl.b32 %lda_bytes, %lda, 1;
    and.b32 %tmp0, %thread, ${x.last_row_thread};
    mul.lo.u32 %tmp0, %tmp0, ${x.vec};
    sub.u32 %copy_left, %k_len, %tmp0;
    add.u32 %tmp1, %k0, %tmp0;
    mul.wide.u32 %tmp64, %tmp1, 2;
    add.u64 %copy_from, %A, %tmp64;
% for part, shift, mask, factor in x.place_steps:
    // ${part}
    shr.u32 %tmp1, %tmp0, ${shift};
    and.b32 %tmp1, %tmp1, ${mask};
    mul.lo.u32 %tmp1, %tmp1, ${factor};
    mad.lo.u32 %copy_to, %tmp1, 2, %copy_to;
% endfor
    add.u32 %copy_to, %copy_to, ${x.first};
    add.u32 %copy_end, %copy_to, ${x.all_bytes};
</%def>

## Copies a stage, zeros past the end of K and of the rows, and moves to the next.
<%def name="copy_stage(x)">
% for c in x.copies:
  % if c.guard_place:
    setp.gt.s32 %in_copy, %copy_left, ${c.guard_place};
    selp.b32 %copy_bytes, ${x.copy_bytes}, 0, %in_copy;
  % endif
    add.u32 %tmp0, %copy_row, ${c.row};
    setp.le.u32 %p, %tmp0, %last_row;
    selp.b32 %row_bytes, %copy_bytes, 0, %p;
    min.u32 %tmp0, %tmp0, %last_row;
    mad.wide.u32 %tmp64, %tmp0, %lda_bytes, %copy_from;
    ${x.guard}cp.async.${x.cache}.shared.global [%copy_to+${c.to_bytes}], [%tmp64+${c.from_bytes}], ${x.copy_bytes}, %row_bytes;
% endfor
    cp.async.commit_group;
    add.u64 %copy_from, %copy_from, ${x.stride_bytes};
    sub.u32 %copy_left, %copy_left, ${x.extent};
    add.u32 %copy_to, %copy_to, ${x.bytes};
    setp.eq.u32 %p, %copy_to, %copy_end;
    @%p sub.u32 %copy_to, %copy_to, ${x.all_bytes};
</%def>

<%def name="prologue()">
% for _ in plan.a.stages.stages_ahead:
${copy_stage(plan.a.stages)}\
% endfor
</%def>

## The stage of this K iteration is complete, and every warp has read that of the iteration before.
<%def name="begin_last()">
    // ---- wait: the activations of this iteration are in shared memory
    cp.async.wait_group ${plan.a.stages.pending};
    bar.sync 0;
</%def>

<%def name="begin()">
${begin_last()}\
${copy_stage(plan.a.stages)}\
</%def>

<%def name="end()">
    // ---- wait: no copy is outstanding
    cp.async.wait_all;
</%def>

<%def name="load(loads, last=False)">
% for l in loads:
    ld.shared.${l.suffix} ${l.registers}, [${l.pointer}+${l.offset}];
% endfor
</%def>

## Moves to the stage of the next K iteration.
<%def name="advance()">
<% x = plan.a.stages %>\
    add.u32 %read_at, %read_at, ${x.bytes};
    setp.eq.u32 %p, %read_at, %read_end;
    @%p sub.u32 %read_at, %read_at, ${x.all_bytes};
</%def>
