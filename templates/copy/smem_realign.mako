## TMA loads each unaligned row from the preceding 16-byte boundary. Warpgroups copy the rows to the swizzled tile, without the
## elements before a row's first. The tile overwrites the previous stage, which has already been multiplied. It is multiplied
## from there, while the next stage is realigned into the memory of this one.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="sync" file="/ptx/barrier.mako"/>
<%def name="setup()">
    // the previous stage, in 16 bytes, and the slot of its mbarriers
    .reg .b32 %prev_offset, %prev_bar_offset;
% for x in plan.mainloop.realign.operands:
    // ${x.name.upper()}: this thread's first word of stage 0 as loaded, and in the tile
    .reg .b32 %src_${x.role}<${x.residue_groups}>, %dst_${x.role}<${x.residue_groups}>;
    .reg .pred %odd_${x.role}<${x.residue_groups}>, %active_${x.role}, %active_odd_${x.role};
    {
    .reg .b32 %word_index, %line, %round, %skipped, %swizzled, %start_elems, %ld;
    ld.param.u64 %tmp64, [${x.name.upper()}];
    cvt.u32.u64 %start_elems, %tmp64;
    shr.u32 %start_elems, %start_elems, 1;
    ld.param.u32 %ld, [ld${x.name}];
    and.b32 %word_index, ${plan.mainloop.realign.thread}, ${x.line_mask};
    shr.u32 %line, ${plan.mainloop.realign.thread}, ${x.log2_line_threads};
    div.u32 %round, %line, ${x.residues_at_once};
    rem.u32 %line, %line, ${x.residues_at_once};
    setp.lt.u32 %active_${x.role}, %round, ${x.last_lines};
  % for w in range(x.residue_groups):
    % if w:
    add.u32 %line, %line, ${x.residues_at_once};
    % endif
    // elements from the 16-byte boundary to a line's first: the same for all lines of a residue
    mad.lo.u32 %skipped, %line, %ld, %start_elems;
    and.b32 %tmp0, %skipped, 1;
    setp.ne.u32 %odd_${x.role}${w}, %tmp0, 0;
    and.b32 %skipped, %skipped, 6;
    mad.lo.u32 %src_${x.role}${w}, %skipped, 2, %smem;
    mad.lo.u32 %src_${x.role}${w}, %word_index, 4, %src_${x.role}${w};
    mad.lo.u32 %src_${x.role}${w}, %line, ${x.residue_bytes}, %src_${x.role}${w};
    mad.lo.u32 %src_${x.role}${w}, %round, ${x.line_bytes}, %src_${x.role}${w};
${constants.shr("%swizzled", "%line", x.swizzle_shift)}\
    and.b32 %swizzled, %swizzled, ${x.swizzle_mask};
    shl.b32 %swizzled, %swizzled, 2;
    xor.b32 %swizzled, %swizzled, %word_index;
    mad.lo.u32 %dst_${x.role}${w}, %swizzled, 4, %smem;
    mad.lo.u32 %tmp0, %round, 8, %line;
    mad.lo.u32 %dst_${x.role}${w}, %tmp0, ${x.span}, %dst_${x.role}${w};
  % endfor
    and.pred %active_odd_${x.role}, %active_${x.role}, %odd_${x.role}0;
    }
% endfor
</%def>

<%def name="realign()">
<% r = plan.mainloop.realign %>\
    // realign the stage into the previous one
    {
    .reg .b32 %stage_start;
    .reg .b32 ${r.address_registers};
    ${r.words.declaration}
    setp.eq.u32 %p, %stage, 0;
    selp.b32 %prev_offset, ${plan.pipeline.stages}, %stage, %p;
    sub.u32 %prev_offset, %prev_offset, 1;
    shl.b32 %prev_bar_offset, %prev_offset, 3;
    mul.lo.u32 %prev_offset, %prev_offset, ${plan.mainloop.stage_units};
    mul.lo.u32 %stage_start, %stage, ${plan.mainloop.stage_bytes};
% for x in r.operands:
  % for w in range(x.residue_groups):
    add.u32 %src_${x.role}_addr${w}, %src_${x.role}${w}, %stage_start;
    mad.lo.u32 %dst_${x.role}_addr${w}, %prev_offset, 16, %dst_${x.role}${w};
  % endfor
% endfor
% for reads, writes in r.turns:
${read(reads)}\
${write(writes)}\
% endfor
    // ---- wait: all threads have written the realigned stage
    fence.proxy.async.shared::cta;
${wait()}\
    }
</%def>

## The words of a batch, and the next word where a row begins in the middle of one.
<%def name="read(moves)">
% for x in moves:
    ${x.guard}ld.shared.b32 ${x.word}, [${x.source}];
    ${x.second_guard} ld.shared.b32 ${x.next_word}, [${x.next_source}];
% endfor
</%def>

<%def name="write(moves)">
% for x in moves:
    ${x.second_guard} prmt.b32 ${x.word}, ${x.word}, ${x.next_word}, 0x5432;
    ${x.guard}st.shared.b32 [${x.target}], ${x.word};
% endfor
</%def>

## All threads that realign the stage have written it.
<%def name="wait()">
% if plan.mainloop.realign.warpgroups > 1:
    bar.sync 1, ${plan.mainloop.realign.threads};
% else:
${sync.warpgroup()}\
% endif
</%def>
