## The copies of the groups that each lane of a warp has in shared memory, and the combination of values with these copies.
<%namespace name="slices" file="/${context['plan'].slices}"/>
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
    .reg .${own.ptx_type} %clear;
    .reg .b32 %clear_addr, %clear_end;
    mov.${own.ptx_type} %clear, ${value};
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
${slices.rejected(pairs)}\
    st.global.u64 [%count_addr], %count;
    }
</%def>

## %out: the result, or that of the slice in the workspace.
<%def name="find_result()">
    .reg .b64 %out;
${slices.find_result()}\
</%def>
