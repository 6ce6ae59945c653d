## K slices store their sums in the workspace, and the block that finishes them polls every word.
<%namespace name="polled" file="/epilogue/polled_sums.mako"/>
<%namespace name="batch" file="/${context['plan'].batch.items}"/>
<%def name="reduce()">
<% f, kg = plan.fixup, plan.config.kg %>\
    {
    .reg .b64 %tile_sums, %slice_sums;
${polled.registers()}\
    // 16 bytes a thread and group of columns, at [tile][owner][slice][warpgroup][instruction][group][thread]
    mov.u32 %tmp0, %ctaid.x;
    mov.u32 %tmp1, %ctaid.y;
    mov.u32 %tmp2, %nctaid.x;
    mad.lo.u32 %tmp0, %tmp1, %tmp2, %tmp0;
${batch.tile_index("%tmp0")}\
    mul.wide.u32 %tmp64, %tmp0, ${f.tile_bytes};
    add.u64 %tile_sums, %workspace, %tmp64;
    mul.lo.u32 %tmp0, %wg, ${f.wg_bytes};
    mad.lo.u32 %tmp0, %wg_thread, 16, %tmp0;
    cvt.u64.u32 %tmp64, %tmp0;
    add.u64 %tile_sums, %tile_sums, %tmp64;
% if not f.distributed:
    // the last slice keeps its sums in registers, and adds the others
    setp.eq.u32 %p, %slice, ${f.last_slice};
    @%p bra.uni REDUCE;
% endif
    mul.wide.u32 %tmp64, %slice, ${f.slice_bytes};
    add.u64 %slice_sums, %tile_sums, %tmp64;
    // store this slice's sums
${polled.store("%slice_sums")}\
% if f.distributed:
  % if f.owners < kg:
    setp.ge.u32 %p, %slice, ${f.owners};
    @%p bra.uni END;
  % endif
    mul.wide.u32 %tmp64, %slice, ${f.owner_bytes};
    add.u64 %tile_sums, %tile_sums, %tmp64;
    mad.lo.u32 %y0, %slice, ${plan.epilogue.y_columns}, %y0;
% else:
    bra.uni END;
REDUCE:
% endif
    // ---- wait: poll until every word is written; add the words, and clear them
    mov.b32 %zero, 0;
${polled.add("%tile_sums")}\
    }
</%def>
