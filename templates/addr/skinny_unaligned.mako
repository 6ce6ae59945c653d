## Unaligned rows: whole 16-byte chunks by vector loads, the elements before and after them one by one.
<%namespace name="skinny" file="/addr/skinny.mako"/>
<%namespace name="lane_map" file="/${context['plan'].mainloop.lane_map}"/>
<%def name="setup()">
<% x, y = plan.mainloop.x, plan.mainloop.y %>\
    .reg .b32 %head, %k_end, %k_thread;
${lane_map.lane_map()}\
    sub.u32 %k_thread, %k_pos, %k0;
    // ${x.upper}: ${x.described_rows}; past the last row this thread loads its first row again
    .reg .b64 %ptr_${x.name}<${len(x.rows)}>;
    add.u32 %tmp1, %${x.extent.lower()}0, ${plan.mainloop.first_long};
    sub.u32 %tmp2, %${x.extent}, 1;
    min.u32 %tmp1, %tmp1, %tmp2;
    mul.wide.u32 %tmp64, %tmp1, %ld${x.name};
    mad.lo.u64 %ptr_${x.name}0, %tmp64, ${x.size}, %${x.upper};
% for n, row in enumerate(x.rows[1:], 1):
    add.u32 %tmp0, %tmp1, ${row};
    setp.lt.u32 %p, %tmp0, %${x.extent};
    selp.b32 %tmp0, %tmp0, %tmp1, %p;
    mul.wide.u32 %tmp64, %tmp0, %ld${x.name};
    mad.lo.u64 %ptr_${x.name}${n}, %tmp64, ${x.size}, %${x.upper};
% endfor
% if x.split_vectors:
    // %head: elements before the first vector, which is assembled from two chunks
    mov.u32 %head, ${x.vec};
    .reg .b32 %misalignment, %bit_shift, %shifted<6>;
    .reg .pred %skip_two, %skip_one;
    // %misalignment: bytes from the 16-byte boundary to the start of the rows: whole words, and bits of a word
    cvt.u32.u64 %misalignment, %ptr_${x.name}0;
    and.b32 %misalignment, %misalignment, 15;
    and.b32 %tmp0, %misalignment, 8;
    setp.ne.u32 %skip_two, %tmp0, 0;
    and.b32 %tmp0, %misalignment, 4;
    setp.ne.u32 %skip_one, %tmp0, 0;
    and.b32 %bit_shift, %misalignment, 3;
    shl.b32 %bit_shift, %bit_shift, 3;
% else:
    // %head: elements before the first 16-byte boundary, the same in all these rows
    cvt.u32.u64 %tmp0, %ptr_${x.name}0;
    neg.s32 %tmp0, %tmp0;
    and.b32 %tmp0, %tmp0, 15;
    shr.u32 %head, %tmp0, ${plan.mainloop.log2_size};
% endif
    add.u32 %k_pos, %k_pos, %head;
    cvt.u64.u32 %tmp64, %k_pos;
% for n in range(len(x.rows)):
    mad.lo.u64 %ptr_${x.name}${n}, %tmp64, ${x.size}, %ptr_${x.name}${n};
  % if x.split_vectors:
    and.b64 %ptr_${x.name}${n}, %ptr_${x.name}${n}, -16;
  % endif
% endfor
    // %k_end: the end of this slice
    add.u32 %k_end, %k0, %k_len;
    add.u32 %k_end, %k_end, %head;
    min.u32 %k_end, %k_end, %K;
    // K iterations that are whole for all threads, whatever their misalignment
    sub.s32 %tmp0, %K, %k0;
    sub.s32 %tmp0, %tmp0, ${plan.mainloop.k_tail_elements};
    min.s32 %k_len, %k_len, %tmp0;
    max.s32 %k_len, %k_len, 0;
${skinny.pointers(y, plan.mainloop.first_y)}\
</%def>

## The largest end of a whole vector.
<%def name="last_vector_end(to)">
% if plan.mainloop.tail_reserve:
    sub.s32 ${to}, %K, ${plan.mainloop.tail_reserve};
    min.s32 ${to}, ${to}, %k_end;
% else:
    mov.u32 ${to}, %k_end;
% endif
</%def>

<%def name="remainder()">
    add.u32 %k_pos, %k_pos, %tmp0;
${last_vector_end("%tmp0")}\
    sub.s32 %tmp0, %tmp0, ${plan.mainloop.x.last_element};
    max.s32 %tmp0, %tmp0, 0;
</%def>

## The elements that no whole vector covers: the first threads along K multiply those at the end, the next thread those at
## the start.
<%def name="unaligned_elements(math)">
<% x, y = plan.mainloop.x, plan.mainloop.y %>\
    .reg .b32 %k_start, %k_stop;
    .reg .b16 %elem<4>;
    .reg .pred %in_k_range<${x.vec}>;
${last_vector_end("%tmp1")}\
    add.u32 %tmp0, %k0, %head;
    sub.s32 %tmp1, %tmp1, %tmp0;
    max.s32 %tmp1, %tmp1, 0;
    and.b32 %tmp1, %tmp1, -${x.vec};
    add.u32 %k_start, %tmp0, %tmp1;
    add.u32 %k_start, %k_start, %k_thread;
    setp.lt.u32 %p, %k_thread, ${plan.mainloop.tail_elements};
    selp.b32 %k_stop, %k_end, 0, %p;
    setp.eq.u32 %p, %k_thread, ${plan.mainloop.tail_elements};
    selp.b32 %k_start, 0, %k_start, %p;
    setp.eq.and.u32 %p, %k0, 0, %p;
    min.u32 %tmp1, %head, %K;
    selp.b32 %k_stop, %tmp1, %k_stop, %p;
    // pointers are at the start of the last K iteration
    sub.u32 %tmp0, %k_pos, ${plan.mainloop.iteration_elements};
    sub.s32 %tmp0, %k_start, %tmp0;
    mul.wide.s32 %tmp64, %tmp0, ${x.size};
% for n in range(len(y.rows)):
    add.s64 %ptr_${y.name}${n}, %ptr_${y.name}${n}, %tmp64;
% endfor
% for line in x.from_chunk:
    ${line}
% endfor
% for n in range(len(x.rows)):
    add.s64 %ptr_${x.name}${n}, %ptr_${x.name}${n}, %tmp64;
% endfor
% for i in range(x.vec):
    add.u32 %tmp0, %k_start, ${i};
    setp.lt.u32 %in_k_range${i}, %tmp0, %k_stop;
% endfor
% for o, loads in plan.mainloop.element_loads:
  % for l in loads:
    % for in_range, element, offset in l.elements:
    mov.${o.element_register_type} ${element}, ${o.element_zero};
    @${in_range} ld.global.nc.${o.element_type} ${element}, [${l.pointer}+${offset}];
    % endfor
    % if len(l.pairs) == 1:
    mov.b32 ${l.word}, ${l.pairs[0]};
    % elif l.pairs:
    mov.b32 %tmp1, ${l.pairs[0]};
    mov.b32 %tmp2, ${l.pairs[1]};
    prmt.b32 ${l.word}, %tmp1, %tmp2, 0x6420;
    % endif
  % endfor
% endfor
${math.products(0)}\
</%def>
