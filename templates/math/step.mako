## The reduction of an expression over K, step by step. Steps beyond K are skipped, unless zeros do not change the result.
<%namespace name="convert" file="/ptx/convert.mako"/>
<%def name="clear_accumulators()">
% for r in plan.mainloop.acc.all:
    mov.${plan.mainloop.acc.ptx_type} ${r}, ${plan.mainloop.reducer.identity};
% endfor
% if plan.mainloop.best is not None:
  % for r in plan.mainloop.best.all:
    mov.${plan.mainloop.best.ptx_type} ${r}, ${plan.mainloop.reducer.identities[1]};
  % endfor
% endif
% for line in plan.mainloop.reducer.step_temporaries:
    ${line}
% endfor
% for line in plan.reducer.temporaries:
    ${line}
% endfor
% if plan.mainloop.packed:
    .reg .b16 %pair_half<2>;
% endif
${indices()}\
% for x in plan.mainloop.arrays:
    .reg .b64 %at_${x.name};
    ${x.tile.declaration}
    ld.param.u64 %at_${x.name}, [${x.name}];
    cvta.to.global.u64 %at_${x.name}, %at_${x.name};
  % if len(x.axes) > 1:
    .reg .b32 %step_ld_${x.name};
    ld.param.u32 %step_ld_${x.name}, [step_ld_${x.name}];
  % endif
% endfor
% for x in plan.mainloop.fixed_arrays:
    // ${x.name}: the elements of this thread's rows and columns
${load(x)}\
% endfor
% if plan.mainloop.k_vectors:
    shr.u32 %tmp0, %thread, ${plan.mainloop.log2_group};
    mad.lo.u32 %tmp0, %tmp0, ${plan.mainloop.steps}, %k0;
% endif
% for x in plan.mainloop.k_vectors:
    mad.wide.u32 %at_${x.name}, %tmp0, ${x.bytes}, %at_${x.name};
% endfor
</%def>

## The indices that steps need: %step_i and %step_j of this thread's rows and columns, inside the matrix, and %step_k.
<%def name="indices()">
% for axis, extent, first, offsets in (("i", "M", "%row", plan.mainloop.rows), ("j", "N", "%col", plan.mainloop.columns)):
  % if axis in plan.mainloop.indices:
    .reg .b32 %step_${axis}<${len(offsets)}>;
    add.u32 %tmp1, %${extent.lower()}0, ${first};
    sub.u32 %tmp2, %${extent}, 1;
    % for n, offset in enumerate(offsets):
    add.u32 %step_${axis}${n}, %tmp1, ${offset};
    min.u32 %step_${axis}${n}, %step_${axis}${n}, %tmp2;
    % endfor
  % endif
% endfor
% if "k" in plan.mainloop.indices:
    // %k_first: the first k of this thread in the iteration
    .reg .b32 %step_k, %k_first;
    shr.u32 %tmp0, %thread, ${plan.mainloop.log2_group};
    mad.lo.u32 %k_first, %tmp0, ${plan.mainloop.steps}, %k0;
% endif
</%def>

## Loads the elements of an array that one step needs.
<%def name="load(x)">
% for register, index in x.elements:
  % if len(index) == 1:
    mad.wide.u32 %tmp64, ${index[0]}, ${x.bytes}, %at_${x.name};
  % else:
    mul.wide.u32 %tmp64, ${index[0]}, %step_ld_${x.name};
    cvt.u64.u32 %tmp64b, ${index[1]};
    add.u64 %tmp64, %tmp64, %tmp64b;
    mad.lo.u64 %tmp64, %tmp64, ${x.bytes}, %at_${x.name};
  % endif
    ld.global.nc.${x.access} ${register}, [%tmp64];
% endfor
</%def>

<%def name="read(x, k, buffer, part, guard='')">
% for r in plan.mainloop.fragment_loads(x, k, buffer, part):
    ${guard}ld.shared.${r.ptx_type} ${r.registers}, [${r.address}];
% endfor
</%def>

<%def name="multiply(k, part)">
<% m = plan.mainloop %>\
% if "k" in m.indices:
    add.u32 %step_k, %k_first, ${k};
% endif
% for x in m.k_vectors:
    ld.global.nc.${x.access} ${x.tile[k]}, [%at_${x.name}+${x.offsets[k]}];
% endfor
% for x in m.k_matrices:
${load(x)}\
% endfor
% for line in m.step_lines(k, part):
    ${line}
% endfor
% if k == m.last_step:
${advance(plan.config.u)}\
% endif
</%def>

## Advances what is along K by the elements of an iteration.
<%def name="advance(elements)">
% for x in plan.mainloop.k_vectors:
  % if isinstance(elements, int):
    add.u64 %at_${x.name}, %at_${x.name}, ${x.offsets[elements]};
  % else:
    mad.wide.u32 %at_${x.name}, ${elements}, ${x.bytes}, %at_${x.name};
  % endif
% endfor
% if "k" in plan.mainloop.indices:
    add.u32 %k_first, %k_first, ${elements};
% endif
</%def>

## The remainder of K, whose elements are in stage 0: a loop over the steps that this thread has of it. One step is
## assembled, where an iteration has many.
<%def name="remainder()">
<% m = plan.mainloop %>\
    // %k_left: steps of this thread; %k_done: how many of them are done
    .reg .b32 %k_left, %k_done;
    shr.u32 %tmp0, %thread, ${m.log2_group};
    mul.lo.u32 %tmp0, %tmp0, ${m.steps};
    sub.u32 %k_left, %k_rem, %tmp0;
    min.s32 %k_left, %k_left, ${m.steps};
    mov.u32 %k_done, 0;
% for x, first in ((plan.a, "%row"), (plan.b, "%col")):
    ${x.step_ptrs.declaration}
  % if x.kmajor_smem:
    // the element and the row from which steps of ${x.name.upper()} are addressed
    .reg .b32 %step_first_${x.name}, %step_row_${x.name};
    shr.u32 %tmp0, ${first}, ${x.swizzle_shift};
    shr.u32 %tmp1, %thread, ${m.log2_group};
    mul.lo.u32 %tmp1, %tmp1, ${x.reads_per_iteration};
    xor.b32 %tmp0, %tmp0, %tmp1;
    and.b32 %tmp0, %tmp0, ${x.swizzle_mask};
    mul.lo.u32 %step_first_${x.name}, %tmp0, ${x.chunk};
    mul.lo.u32 %tmp0, %tmp0, 16;
    sub.u32 %step_row_${x.name}, ${x.fragment_ptrs[0]}, %tmp0;
  % else:
    mov.u32 ${x.step_ptrs[0]}, ${x.fragment_ptrs[0]};
  % endif
% endfor
    setp.gt.s32 %p, %k_left, 0;
    @!%p bra.uni REMAINDER_END;
    .pragma "nounroll";
REMAINDER:
% for x in (plan.a, plan.b):
  % if x.kmajor_smem:
    xor.b32 %tmp0, %step_first_${x.name}, %k_done;
    % for ptr, swizzle in zip(x.step_ptrs.all, x.swizzles):
    xor.b32 %tmp1, %tmp0, ${swizzle};
    mad.lo.u32 ${ptr}, %tmp1, ${x.bytes}, %step_row_${x.name};
    % endfor
  % endif
  % for r in x.step_loads:
    ld.shared.${r.ptx_type} ${r.registers}, [${r.address}];
  % endfor
  % for pointer in x.moved_step_ptrs:
    add.u32 ${pointer}, ${pointer}, ${x.row_bytes};
  % endfor
% endfor
% if "k" in m.indices:
    add.u32 %step_k, %k_first, %k_done;
% endif
% for x in m.k_vectors:
    mad.wide.u32 %tmp64, %k_done, ${x.bytes}, %at_${x.name};
    ld.global.nc.${x.access} ${x.tile[0]}, [%tmp64];
% endfor
% for x in m.k_matrices:
${load(x)}\
% endfor
% for line in m.step_lines(0, m.WHOLE):
    ${line}
% endfor
    add.u32 %k_done, %k_done, 1;
    setp.lt.s32 %p, %k_done, %k_left;
    @%p bra.uni REMAINDER;
REMAINDER_END:
${advance("%k_rem")}\
</%def>

## Row i of the thread's tile into %result, extended to the type of results.
<%def name="scaled_row(i)">
% for s in range(1, plan.mainloop.ks):
  % for j in range(plan.mainloop.acc.shape[2]):
    % for line in plan.mainloop.join_lines(s, i, j):
    ${line}
    % endfor
  % endfor
% endfor
% if plan.mainloop.packed:
  % for sums, (low, high) in zip(plan.mainloop.row_sums[i], plan.epilogue.vector_pairs):
${convert.widen_pair(plan.b.held, low, high, sums, ("%pair_half0", "%pair_half1"))}\
  % endfor
% else:
  % for j in range(plan.mainloop.ns):
    mov.${plan.arithmetic.type} ${plan.epilogue.vector[j]}, ${plan.mainloop.acc[0, i, j]};
  % endfor
% endif
</%def>
