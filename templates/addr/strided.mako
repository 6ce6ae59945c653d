## Global addresses of an operand with rows at a leading dimension.
<%namespace name="thread_map" file="/addr/copy_thread_map.mako"/>
<%def name="setup(x)">
${thread_map.setup(x, f"%k_stride_{x.name}")}\
% if x.shared_pointer:
${shared_pointer(x)}\
% else:
${pointers(x)}\
% endif
% if not x.kmajor:
    mul.wide.u32 %k_stride_${x.name}, %ld${x.name}, ${x.depth_global_bytes};
% endif
% if plan.mainloop.masks_every_stage:
    // the elements of K from the stage on that is loaded next
    .reg .b32 ${plan.mainloop.k_left[x.name]};
    mov.u32 ${plan.mainloop.k_left[x.name]}, %k_len;
% endif
</%def>

<%def name="row_of(x, p)">
    // load ${p.index}: ${x.extent.lower()} + ${p.mn}, k + ${p.k}
    add.u32 %tmp0, %${x.extent.lower()}0, %mn_${x.name};
    add.u32 %tmp0, %tmp0, ${p.mn};
    add.u32 %tmp1, %k_${x.name}, ${p.k};
% if plan.mainloop.predicated:
    setp.ge.u32 ${p.oob}, %tmp0, %${x.extent};
% elif plan.mainloop.checks_bounds:
    sub.u32 %tmp2, ${x.limit}, ${x.edge};
    min.u32 %tmp0, %tmp0, %tmp2;
% endif
</%def>

<%def name="pointers(x)">
    .reg .b64 %ptr_${x.name}<${len(x.loads)}>;
% for p in x.loads:
${row_of(x, p)}\
    add.u32 %tmp1, %tmp1, %k0;
${pointer(x, f"%ptr_{x.name}{p.index}", "%tmp0", "%tmp1")}\
% endfor
</%def>

## ``to``: the address of the element at row (or column) ``line`` and ``k``.
<%def name="pointer(x, to, line, k)">
% if x.kmajor:
    mul.wide.u32 %tmp64, ${line}, %ld${x.name};
    cvt.u64.u32 %tmp64b, ${k};
% else:
    mul.wide.u32 %tmp64, ${k}, %ld${x.name};
    cvt.u64.u32 %tmp64b, ${line};
% endif
    add.u64 %tmp64, %tmp64, %tmp64b;
    mad.lo.u64 ${to}, %tmp64, ${x.global_bytes}, %${x.name.upper()};
</%def>

<%def name="shared_pointer(x)">
    // all loads share one pointer, which advances along K; each load has a 32-bit offset
    .reg .b64 %ptr_${x.name};
    .reg .b32 %off_${x.name}<${len(x.loads)}>;
${pointer(x, f"%ptr_{x.name}", f"%{x.extent.lower()}0", "%k0")}\
% for p in x.loads:
${row_of(x, p)}\
    sub.u32 %tmp0, %tmp0, %${x.extent.lower()}0;
    ${x.offset_in_tile}
    mul.lo.u32 %off_${x.name}${p.index}, %tmp0, ${x.global_bytes};
% endfor
</%def>

## Computes the address of load p into its register of x.load_addresses.
<%def name="address(x, p)">
% if x.shared_pointer:
    cvt.u64.u32 %tmp64, %off_${x.name}${p.index};
    add.u64 %tmp64, %ptr_${x.name}, %tmp64;
% endif
</%def>

<%def name="advance(x, first)">
<% remainder = first and plan.mainloop.checks_bounds and not plan.mainloop.remainder_last %>\
% if remainder and not x.kmajor:
    mul.wide.u32 %tmp64b, %ld${x.name}, %k_rem;
    mul.lo.u64 %tmp64b, %tmp64b, ${x.global_bytes};
% endif
% for pointer in x.pointers:
  % if remainder and x.kmajor:
    mad.wide.u32 ${pointer}, %k_rem, ${x.global_bytes}, ${pointer};
  % elif remainder:
    add.u64 ${pointer}, ${pointer}, %tmp64b;
  % else:
    add.u64 ${pointer}, ${pointer}, ${x.pointer_step};
  % endif
% endfor
% if plan.mainloop.masks_every_stage:
    min.u32 %tmp0, ${plan.mainloop.k_left[x.name]}, ${plan.config.u};
    sub.u32 ${plan.mainloop.k_left[x.name]}, ${plan.mainloop.k_left[x.name]}, %tmp0;
% endif
</%def>

## Sets %skip if load p of a stage with a remainder of K is past it, or outside M or N.
<%def name="skip(x, p, first)">
% if (first and plan.mainloop.checks_bounds) or plan.mainloop.masks_every_stage:
    add.u32 %tmp0, %k_${x.name}, ${p.k};
    setp.ge.u32 %skip, %tmp0, ${plan.mainloop.k_left[x.name]};
  % if plan.mainloop.predicated:
    or.pred %skip, %skip, ${p.oob};
  % endif
% endif
</%def>

<%def name="copy_guard(x, guard)">${thread_map.copy_guard(x, guard)}</%def>
