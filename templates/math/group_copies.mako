## The copies of the groups that each lane of a warp has in shared memory, and the combination of values with them.

## Registers and parameters. %first: of the slice, %end: past its last row or column.
<%def name="setup()">
<% own = plan.mainloop %>\
    .reg .b64 %array, %keys, %element_addr, %key_addr, %wide;
    .reg .b32 %M, %N, %slice, %first, %end, %thread, %lane, %warp, %copies, %key_now, %rejected_keys, %pitch, %tmp0, %tmp1;
    .reg .pred %p, %same, %aligned, %valid;
% for line in (*own.declarations, *plan.groups.declarations):
    ${line}
% endfor
    ld.param.u64 %array, [${own.sink.array.name}];  cvta.to.global.u64 %array, %array;
    ld.param.u64 %keys, [${own.sink.keys_read.name}];  cvta.to.global.u64 %keys, %keys;
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];  ld.param.u32 %slice, [slice];
    mov.u32 %thread, %tid.x;
    and.b32 %lane, %thread, 31;
    shr.u32 %warp, %thread, 5;
    mov.b32 %rejected_keys, 0;
    mul.lo.u32 %pitch, %N, ${own.size};
    mov.u32 %copies, smem;
    mad.lo.u32 %copies, %warp, ${own.warp_bytes}, %copies;
    mad.lo.u32 %copies, %lane, ${own.lane_bytes}, %copies;
    mov.u32 %first, %ctaid.y;
    mul.lo.u32 %first, %first, %slice;
    add.u32 %end, %first, %slice;
    min.u32 %end, %end, ${own.sliced_extent};
</%def>

## %aligned: vectors of the array begin at multiples of their bytes.
<%def name="find_alignment()">
<% own = plan.mainloop %>\
% if own.vec > 1:
    cvt.u64.u32 %wide, %pitch;
    or.b64 %wide, %wide, %array;
    and.b64 %wide, %wide, ${own.vector_mask};
    setp.eq.u64 %aligned, %wide, 0;
% endif
</%def>

## Registers of elements are set, because loads that are out of bounds write none.
<%def name="clear_elements()">
<% own = plan.mainloop %>\
% for r in own.array.all:
    mov.${own.word_class} ${r}, ${own.no_word};
% endfor
% if own.packed:
  % for r in own.one.all:
    mov.b16 ${r}, 0;
  % endfor
% endif
</%def>

## The identity to all copies of the warp.
<%def name="clear_copies()">
<% own, value = plan.mainloop, plan.groups.identity %>\
<% loops, rest = own.clear_loop %>\
    {
    .reg .${own.kind} %clear;
    .reg .b32 %clear_addr, %clear_end;
    mov.${own.kind} %clear, ${value};
    mov.b32 %clear_addr, %copies;
% if loops:
    add.u32 %clear_end, %copies, ${own.clear_loop_bytes};
    .pragma "nounroll";
CLEAR:
  % for offset in own.clear_offsets:
    st.shared.${own.held_access} [%clear_addr+${offset}], ${own.clear_operand};
  % endfor
    add.u32 %clear_addr, %clear_addr, ${own.clear_step_bytes};
    setp.lt.u32 %p, %clear_addr, %clear_end;
    @%p bra CLEAR;
% endif
% for offset in own.clear_offsets[:rest]:
    st.shared.${own.held_access} [%clear_addr+${offset}], ${own.clear_operand};
% endfor
    }
</%def>

## The register ``to`` = the key in ``register``, or the number of what is not reduced if it is out of range.
<%def name="group_of(register, to)">
<% own = plan.mainloop %>\
% for line in own.key_lines(register):
    ${line}
% endfor
    min.u32 ${to}, %key_now, ${own.count};
</%def>

## One element of a vector that is not aligned; of packed ones both at the second.
<%def name="load_element(k, t, q, guard, offset)">
<% own = plan.mainloop %>\
% if own.packed:
    @${guard} ld.global.nc.b16 ${own.one[0, q]}, [%element_addr+${offset}];
  % if q in own.second_elements:
<% word, low = own.second_elements[q] %>\
    mov.b32 ${own.array[k, t, word]}, {${low}, ${own.one[0, q]}};
  % endif
% else:
    @${guard} ld.global.nc.${own.element_load} ${own.array[k, t, q]}, [%element_addr+${offset}];
% endif
</%def>

## Stores the number of rejected keys of each warp in shared memory. After the barrier, a block reads all copies.
<%def name="share_rejected()">
    {
    .reg .b32 %other_count;
% for distance in (16, 8, 4, 2, 1):
    shfl.sync.bfly.b32 %other_count, %rejected_keys, ${distance}, 31, 0xffffffff;
    add.u32 %rejected_keys, %rejected_keys, %other_count;
% endfor
    setp.eq.u32 %p, %lane, 0;
    mov.u32 %tmp0, smem;
    mad.lo.u32 %tmp0, %warp, 8, %tmp0;
    @%p st.shared.u32 [%tmp0+${plan.mainloop.counts_at}], %rejected_keys;
    bar.sync 0;
    }
</%def>

## Thread 0 stores the number of the keys that the block has rejected, times ``pairs``.
<%def name="sum_rejected(pairs)">
    {
    setp.ne.u32 %p, %thread, 0;
    @%p bra SUMMED;
    mov.u32 %tmp0, smem;
    mov.b32 %rejected_keys, 0;
% for offset in plan.mainloop.count_offsets:
    ld.shared.u32 %tmp1, [%tmp0+${offset}];
    add.u32 %rejected_keys, %rejected_keys, %tmp1;
% endfor
${store_rejected(pairs)}\
SUMMED:
    }
</%def>

## Stores the number of rejected keys of a slice, or of all.
<%def name="store_rejected(pairs)">
    {
    .reg .b64 %count_addr, %count;
% if plan.sliced:
    .reg .b32 %slice_number;
    ld.param.u64 %count_addr, [W];
    cvta.to.global.u64 %count_addr, %count_addr;
    ld.param.u64 %count, [counts];
    add.u64 %count_addr, %count_addr, %count;
    mov.u32 %slice_number, %ctaid.y;
    mad.wide.u32 %count_addr, %slice_number, 8, %count_addr;
    cvt.u64.u32 %count, %rejected_keys;
% else:
    ld.param.u64 %count_addr, [rejected];
    cvta.to.global.u64 %count_addr, %count_addr;
    mul.wide.u32 %count, %rejected_keys, ${pairs};
% endif
    st.global.u64 [%count_addr], %count;
    }
</%def>

## %out: the result, or that of the slice in the workspace.
<%def name="find_result()">
    .reg .b64 %out;
% if plan.sliced:
    {
    .reg .b64 %elements, %number;
    .reg .b32 %slice_number;
    ld.param.u64 %out, [W];
    cvta.to.global.u64 %out, %out;
    ld.param.u64 %elements, [elements];
    mov.u32 %slice_number, %ctaid.y;
    cvt.u64.u32 %number, %slice_number;
    mul.lo.u64 %elements, %elements, %number;
    mad.lo.u64 %out, %elements, ${plan.mainloop.held}, %out;
    }
% else:
    ld.param.u64 %out, [C];
    cvta.to.global.u64 %out, %out;
% endif
</%def>

## The kernel that joins the results of slices.
<%def name="join_kernel()">
% if plan.sliced:
<% own = plan.mainloop %>\

// C = the results of all slices, joined in their order
.visible .entry ${plan.entry}_join(
  % for line in plan.joins.rows.declarations:
    ${line}
  % endfor
)
.maxntid ${plan.joins.THREADS}, 1, 1
{
    .reg .b64 %partials, %C, %rejected, %elements, %counts, %number, %step, %partial_addr, %total, %more;
    .reg .b32 %slices, %pairs, %left, %thread, %tmp0;
    .reg .${own.kind} %sum, %addend<${plan.joins.AT_ONCE}>;
    .reg .pred %p;
  % for line in plan.groups.declarations:
    ${line}
  % endfor
    ld.param.u64 %partials, [W];  cvta.to.global.u64 %partials, %partials;
    ld.param.u64 %C, [C];  cvta.to.global.u64 %C, %C;
    ld.param.u64 %elements, [elements];
    ld.param.u32 %slices, [slices];
    mov.u32 %tmp0, %ctaid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %thread, %tmp0, ${plan.joins.THREADS}, %thread;
    cvt.u64.u32 %number, %thread;
    mov.u32 %tmp0, %nctaid.x;
    mul.wide.u32 %step, %tmp0, ${plan.joins.THREADS};
NEXT:
    setp.ge.u64 %p, %number, %elements;
    @%p bra JOINED;
    mad.lo.u64 %partial_addr, %number, ${own.held}, %partials;
    mov.${own.kind} %sum, ${plan.groups.identity};
    mov.b32 %left, %slices;
ADD:
  % for n in range(plan.joins.AT_ONCE):
    mov.${own.kind} %addend${n}, ${plan.groups.identity};
    setp.gt.u32 %p, %left, ${n};
    @%p ld.global.${own.kind} %addend${n}, [%partial_addr];
    mad.lo.u64 %partial_addr, %elements, ${own.held}, %partial_addr;
  % endfor
  % for n in range(plan.joins.AT_ONCE):
    % for line in plan.groups.join("%sum", f"%addend{n}"):
    ${line}
    % endfor
  % endfor
    setp.gt.u32 %p, %left, ${plan.joins.AT_ONCE};
    sub.u32 %left, %left, ${plan.joins.AT_ONCE};
    @%p bra ADD;
    mad.lo.u64 %partial_addr, %number, ${own.held}, %C;
    st.global.${own.kind} [%partial_addr], %sum;
    add.u64 %number, %number, %step;
    bra NEXT;
JOINED:
    setp.ne.u32 %p, %thread, 0;
    @%p bra DONE;
    ld.param.u64 %rejected, [rejected];  cvta.to.global.u64 %rejected, %rejected;
    ld.param.u64 %counts, [counts];
    ld.param.u32 %pairs, [pairs];
    add.u64 %partial_addr, %partials, %counts;
    mov.u64 %total, 0;
    mov.b32 %left, %slices;
COUNT:
    ld.global.u64 %more, [%partial_addr];
    add.u64 %total, %total, %more;
    add.u64 %partial_addr, %partial_addr, 8;
    sub.u32 %left, %left, 1;
    setp.gt.u32 %p, %left, 0;
    @%p bra COUNT;
    cvt.u64.u32 %more, %pairs;
    mul.lo.u64 %total, %total, %more;
    st.global.u64 [%rejected], %total;
DONE:
    ret;
}
% endif
</%def>
