## Runs of pairs with equal keys are reduced in memory, in any order.
<%namespace name="values" file="/epilogue/result_values.mako"/>
<%def name="load()"></%def>
<%def name="skip_tile()">${values.skip_tile()}</%def>

## Joins the taken values of a vector to the runs, and writes those whose keys change.
<%def name="take(of, guard)">
<% row, column = of.tiles[1], of.tiles[2] %>\
% for q in range(plan.c.vec):
    // %write: the run ends before this pair
    setp.ne.u32 %same, ${row[q]}, %run_row${q};
    setp.ne.or.u32 %same, ${column[q]}, %run_column${q}, %same;
    and.pred %write${q}, %take${q}, %open${q};
    and.pred %write${q}, %write${q}, %same;
    not.pred %same, %write${q};
    and.pred %open${q}, %open${q}, %same;
% endfor
${write_runs(False)}\
% for q in range(plan.c.vec):
    @!%open${q} mov.${plan.groups.ptx_type} ${plan.groups.run[q]}, ${plan.groups.identity};
  % for line in plan.groups.join(plan.groups.run[q], of.of(0)[q], f"@%take{q} "):
    ${line}
  % endfor
    @%take${q} mov.b32 %run_row${q}, ${row[q]};
    @%take${q} mov.b32 %run_column${q}, ${column[q]};
    or.pred %open${q}, %open${q}, %take${q};
% endfor
</%def>

<%def name="end(whole_warps)">
% for q in range(plan.c.vec):
    and.pred %write${q}, %open${q}, %open${q};
% endfor
${write_runs(whole_warps)}\
</%def>

## Writes the runs with %write: those of equal keys in adjacent columns at once.
<%def name="write_runs(whole_warps)">
% for p, q in zip(range(plan.c.vec), range(1, plan.c.vec)):
    setp.eq.u32 %same, %run_row${p}, %run_row${q};
    setp.eq.and.u32 %same, %run_column${p}, %run_column${q}, %same;
    and.pred %same, %same, %write${p};
    and.pred %same, %same, %write${q};
  % for line in plan.groups.join(plan.groups.run[q], plan.groups.run[p], "@%same "):
    ${line}
  % endfor
    not.pred %same, %same;
    and.pred %write${p}, %write${p}, %same;
% endfor
% for q in range(plan.c.vec):
    mov.${plan.groups.ptx_type} %emitted, ${plan.groups.run[q]};
    and.pred %emit, %write${q}, %write${q};
  % if whole_warps:
${join_warp(q)}\
  % endif
    mul.wide.u32 %group_index, %run_row${q}, %group_columns;
    cvt.u64.u32 %group_addr, %run_column${q};
    add.u64 %group_index, %group_index, %group_addr;
    mad.lo.u64 %group_addr, %group_index, ${plan.groups.bytes}, %C;
${emit()}\
% endfor
</%def>

## If all lanes of the warp have the same keys, the first one writes for all.
<%def name="join_warp(q)">
    {
    .reg .b32 %first;
    .reg .${plan.groups.ptx_type} %received;
    shfl.sync.idx.b32 %first, %run_row${q}, 0, 31, 0xffffffff;
    setp.eq.and.u32 %same, %first, %run_row${q}, %emit;
    shfl.sync.idx.b32 %first, %run_column${q}, 0, 31, 0xffffffff;
    setp.eq.and.u32 %same, %first, %run_column${q}, %same;
    vote.sync.all.pred %same, %same, 0xffffffff;
    @!%same bra.uni WARP_JOINED;
% for distance in (16, 8, 4, 2, 1):
  % for line in plan.groups.exchange("%received", "%emitted", distance):
    ${line}
  % endfor
  % for line in plan.groups.join("%emitted", "%received"):
    ${line}
  % endfor
% endfor
    and.b32 %first, %thread, 31;
    setp.eq.u32 %emit, %first, 0;
WARP_JOINED:
    }
</%def>

## Reduces %emitted in memory.
<%def name="emit()">
% if not plan.groups.atomics:
    {
    @!%emit bra WRITTEN;
    ld.relaxed.gpu.global.${plan.groups.bits_type} %seen_bits, [%group_addr];
TRY:
    mov.${plan.groups.bits_type} %seen, %seen_bits;
    mov.${plan.groups.bits_type} %bits, %seen_bits;
    mov.${plan.groups.ptx_type} %next, %seen;
  % for line in plan.groups.join("%next", "%emitted"):
    ${line}
  % endfor
    mov.${plan.groups.bits_type} %next_bits, %next;
    atom.relaxed.gpu.global.cas.${plan.groups.bits_type} %seen_bits, [%group_addr], %bits, %next_bits;
    setp.ne.${plan.groups.bits_type} %same, %seen_bits, %bits;
    @%same bra TRY;
WRITTEN:
    }
% else:
  % if plan.groups.splits_sign:
    mov.${plan.groups.bits_type} %bits, %emitted;
    setp.nan.${plan.groups.type} %is_nan, %emitted, %emitted;
    @%is_nan mov.${plan.groups.bits_type} %bits, ${plan.groups.nan};
    setp.ge.s${plan.groups.bits} %same, %bits, 0;
    and.pred %plus, %emit, %same;
    not.pred %same, %same;
    and.pred %minus, %emit, %same;
  % endif
  % for guard, instruction in plan.groups.atomics:
    @${guard} red.relaxed.gpu.global.${instruction} [%group_addr], ${plan.groups.added};
  % endfor
% endif
</%def>
