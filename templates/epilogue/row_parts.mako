## Parts of a long row: each stores its sums in the workspace; the one that arrives last adds all of them in order.
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%def name="add_parts()">
<% rows, op = plan.mainloop, plan.arithmetic %>\
    setp.eq.u32 %p, %part_id, ${rows.whole};
    @%p bra SUMS_COMPLETE;
    {
    .reg .b64 %ptr_part, %ptr_counter, %ptr_sums, %part_pitch;
    .reg .b32 %members, %leader, %first_part, %count, %arrived, %slabs, %done;
    .reg .pred %leads, %again;
${ptx.banner("part of a long row: store its sums")}\
    mul.wide.u32 %part_pitch, %N, ${rows.part_bytes};
    cvt.u64.u32 %ptr_part, %part_id;
    mad.lo.u64 %ptr_part, %ptr_part, %part_pitch, %partials;
% for r, v in rows.lane_vectors:
${sums_address(r, v)}\
  % for at, names, access in rows.sum_accesses(v, r):
    @%stores${v} st.global.${access} [%ptr_sums+${at}], ${operand_list(names)};
  % endfor
% endfor
    // lanes of the row: ${rows.row_threads}
    mov.u32 %leader, %laneid;
    and.b32 %leader, %leader, ${rows.leader_mask};
    mov.b32 %members, ${rows.member_mask};
    shl.b32 %members, %members, %leader;
    fence.acq_rel.gpu;
    bar.warp.sync %members;
    mad.wide.u32 %ptr_counter, %part_id, 8, %parts;
    ld.global.nc.v2.u32 {%first_part, %count}, [%ptr_counter];
    mov.u32 %slabs, %nctaid.y;
    mov.u32 %tmp0, %ctaid.y;
    mad.lo.u32 %tmp0, %first_part, %slabs, %tmp0;
    mad.wide.u32 %ptr_counter, %tmp0, 4, %workspace;
    mov.u32 %tmp0, %laneid;
    setp.eq.u32 %leads, %tmp0, %leader;
    mov.b32 %arrived, 0;
    @%leads atom.acq_rel.gpu.global.add.u32 %arrived, [%ptr_counter], 1;
    shfl.sync.idx.b32 %arrived, %arrived, 0, ${rows.member_clamp}, %members;
    bar.warp.sync %members;
    add.u32 %arrived, %arrived, 1;
    setp.lt.u32 %p, %arrived, %count;
    @%p bra DONE;
${ptx.banner("the last part adds the sums of all in order; the workspace is zero again")}\
    fence.acq_rel.gpu;
    @%leads st.global.u32 [%ptr_counter], 0;
% for name in rows.sums.all:
    mov.${op.type} ${name}, ${op.zero};
% endfor
    cvt.u64.u32 %ptr_part, %first_part;
    mad.lo.u64 %ptr_part, %ptr_part, %part_pitch, %partials;
    mov.b32 %done, 0;
    .pragma "nounroll";
ADD_PART:
% for r, v in rows.lane_vectors:
${sums_address(r, v)}\
  % for at, names, access in rows.sum_accesses(v, r):
    @%stores${v} ld.global.${access} ${rows.part_sum[: len(names)]}, [%ptr_sums+${at}];
    % for i, name in enumerate(names):
    @%stores${v} add.rn.${op.type} ${name}, ${name}, ${rows.part_sum[i]};
    % endfor
    % for i in range(len(names)):
    mov.${op.type} ${rows.part_sum[i]}, ${op.zero};
    % endfor
    @%stores${v} st.global.${access} [%ptr_sums+${at}], ${rows.part_sum[: len(names)]};
  % endfor
% endfor
    add.u64 %ptr_part, %ptr_part, %part_pitch;
    add.u32 %done, %done, 1;
    setp.lt.u32 %again, %done, %count;
    @%again bra ADD_PART;
    }
SUMS_COMPLETE:
</%def>

## The address of vector v of row r of the lane in a part.
<%def name="sums_address(r, v)">
    mad.wide.u32 %ptr_sums, %col${v}, ${plan.arithmetic.bytes}, %ptr_part;
% if r:
    add.u64 %ptr_sums, %ptr_sums, %row_pitch;
% endif
</%def>
