## Each lane loads its own activations from global memory to registers.
<%namespace name="lanes" file="/ptx/lane_loads.mako"/>\
<%def name="registers()"></%def>
<%def name="lane_address()"></%def>

## Pointers to the rows of the lane.
<%def name="setup()">
    // A: rows of the lane in each tile, index clamped to the last one
    .reg .b64 %ptr_a<${plan.a.tiles}>;
    sub.u32 %tmp2, %M, 1;
% for pointer, row in plan.a.rows:
    add.u32 %tmp0, %m0, %frag_row;
    add.u32 %tmp0, %tmp0, ${row};
    min.u32 %tmp0, %tmp0, %tmp2;
    mul.wide.u32 %tmp64, %tmp0, %lda;
    cvt.u64.u32 %tmp64b, %k_pos;
    add.u64 %tmp64, %tmp64, %tmp64b;
    mad.lo.u64 ${pointer}, %tmp64, 2, %A;
% endfor
</%def>

<%def name="prologue()"></%def>
<%def name="begin()"></%def>
<%def name="begin_last()"></%def>
<%def name="end()"></%def>

## The loads of a chunk. last: those of the remainder of K.
<%def name="load(loads, last=False)">
% if last:
${lanes.load_last(loads)}\
% else:
${lanes.load(loads)}\
% endif
% for word, elements in plan.a.joins:
    mov.b32 ${word}, ${elements};
% endfor
</%def>

## Advances the pointers to the next K iteration.
<%def name="advance()">
% for pointer, _ in plan.a.rows:
    add.u64 ${pointer}, ${pointer}, ${plan.a.stride_bytes};
% endfor
</%def>
