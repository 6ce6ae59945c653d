## Fragments that a thread loads from global memory: its rows and columns, their addresses, the loads of each step along K.
<%namespace name="convert" file="/ptx/convert.mako"/>
<%namespace name="thread_map" file="/addr/thread_fragments.mako"/>
<%def name="thread_tile()">
    {
    .reg .b32 %lane, %warp, %lane_m, %lane_n;
    and.b32 %lane, %thread, 31;
    shr.u32 %warp, %thread, 5;
${thread_map.rows_and_columns()}\
    }
</%def>

<%def name="pointers(x, own)">
    .reg .b64 %ptr_${x.name}<${len(x.lines)}>;
% if not x.kmajor:
    .reg .b64 %k_stride_${x.name};
    mul.wide.u32 %k_stride_${x.name}, %ld${x.name}, ${x.bytes};
% endif
% if x.predicated:
    .reg .pred %in_${x.name}<${len(x.lines)}>;
% elif x.clamped:
    sub.u32 %tmp2, %${x.extent}, ${x.edge};
% endif
% for n, offset in enumerate(x.lines):
    // ${x.extent.lower()} + ${offset}
    add.u32 %tmp0, %${x.extent.lower()}0, ${own};
    add.u32 %tmp0, %tmp0, ${offset};
  % if x.predicated:
    setp.lt.u32 %in_${x.name}${n}, %tmp0, %${x.extent};
  % elif x.clamped:
    min.u32 %tmp0, %tmp0, %tmp2;
  % endif
  % if x.kmajor:
    mul.wide.u32 %tmp64, %tmp0, %ld${x.name};
    cvt.u64.u32 %tmp64b, %k0;
  % else:
    mul.wide.u32 %tmp64, %k0, %ld${x.name};
    cvt.u64.u32 %tmp64b, %tmp0;
  % endif
    add.u64 %tmp64, %tmp64, %tmp64b;
    mad.lo.u64 %ptr_${x.name}${n}, %tmp64, ${x.bytes}, %${x.name.upper()};
% endfor
</%def>

## The loads of K elements ``first`` up to ``end`` of an iteration. Pointers to rows of K advance between them.
<%def name="load(x, first, end)">
% for step in range(first // x.unit, end // x.unit):
  % if step and not x.kmajor:
${advance(x)}\
  % endif
  % for l in x.loads(step):
    % for r in l.cleared:
    mov.${x.loaded.ptx_type} ${r}, ${x.zero};
    % endfor
    ${x.guards[l.line]}ld.global.nc.${l.ptx_type} ${l.registers}, [%ptr_${x.name}${l.line}+${l.offset}];
  % endfor
% endfor
</%def>

## Advances the pointers to the next row of K, or to the next iteration if K is contiguous.
<%def name="advance(x)">
% for n in range(len(x.lines)):
    add.u64 %ptr_${x.name}${n}, %ptr_${x.name}${n}, ${x.pointer_step};
% endfor
</%def>

## Converts the words that have element ``k``, unless a greater k of the same words was multiplied before.
<%def name="widen(x, k)">
% for into, word in x.conversions(k):
  % if len(into) == 1:
${convert.widen(plan.problem.dtype, into[0], word)}\
  % else:
${convert.widen_pair(plan.problem.dtype, into[0], into[1], word, ("%half0", "%half1"))}\
  % endif
% endfor
</%def>
