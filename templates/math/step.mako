## The reduction of an expression over K, a step at a time. Steps beyond K are not reduced, unless zeros do not change the result.
<%def name="clear_accumulators()">
% for r in plan.mainloop.acc.all:
    mov.${plan.arithmetic.type} ${r}, ${plan.reducer.identity};
% endfor
% if plan.mainloop.best is not None:
% for r in plan.mainloop.best.all:
    mov.${plan.mainloop.best.kind} ${r}, ${plan.reducer.identities[1]};
% endfor
% endif
% for line in plan.reducer.step_temporaries:
    ${line}
% endfor
% for line in plan.reducer.temporaries:
    ${line}
% endfor
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
% if plan.mainloop.peels_remainder:
    // %k_left: steps of this thread in the iteration that has the remainder of K
    .reg .pred %k_valid;
    .reg .b32 %k_left;
    shr.u32 %tmp0, %thread, ${plan.mainloop.log2_group};
    mul.lo.u32 %tmp0, %tmp0, ${plan.mainloop.steps};
    sub.u32 %k_left, %k_rem, %tmp0;
% endif
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
<%def name="load(x, guard='')">
% for register, index in x.elements:
% if len(index) == 1:
    mad.wide.u32 %tmp64, ${index[0]}, ${x.bytes}, %at_${x.name};
% else:
    mul.wide.u32 %tmp64, ${index[0]}, %step_ld_${x.name};
    cvt.u64.u32 %tmp64b, ${index[1]};
    add.u64 %tmp64, %tmp64, %tmp64b;
    mad.lo.u64 %tmp64, %tmp64, ${x.bytes}, %at_${x.name};
% endif
    ${guard}ld.global.nc.${x.access} ${register}, [%tmp64];
% endfor
</%def>

<%def name="read(x, k, buffer, part, guard='')">
% for r in plan.mainloop.fragment_loads(x, k, buffer, part):
    ${guard}ld.shared.${r.kind} ${r.registers}, [${r.address}];
% endfor
</%def>

<%def name="multiply(k, part)">
<% m, valid = plan.mainloop, "@%k_valid " if part.remainder else "" %>\
% if part.remainder:
    setp.gt.s32 %k_valid, %k_left, ${k};
% endif
% if "k" in m.indices:
    add.u32 %step_k, %k_first, ${k};
% endif
% for x in m.k_vectors:
% if part.remainder:
    mov.b${x.register_bits} ${x.tile[k]}, 0;
% endif
    ${valid}ld.global.nc.${x.access} ${x.tile[k]}, [%at_${x.name}+${k * x.bytes}];
% endfor
% for x in m.k_matrices:
% if part.remainder:
% for register in x.tile.all:
    mov.b${x.register_bits} ${register}, 0;
% endfor
% endif
${load(x, valid)}\
% endfor
% for i, j in m.products_of(part):
% for line in m.step_lines(k, i, j, valid if plan.reducer.guarded else ""):
    ${line}
% endfor
% endfor
% if k == m.steps - 1:
% for x in m.k_vectors:
% if part.remainder:
    mad.wide.u32 %at_${x.name}, %k_rem, ${x.bytes}, %at_${x.name};
% else:
    add.u64 %at_${x.name}, %at_${x.name}, ${plan.config.u * x.bytes};
% endif
% endfor
% if "k" in m.indices:
    add.u32 %k_first, %k_first, ${"%k_rem" if part.remainder else plan.config.u};
% endif
% endif
</%def>

## Row i of the thread's tile into %result.
<%def name="scaled_row(i)">
% for s in range(1, plan.mainloop.ks):
% for j in range(plan.mainloop.ns):
% for line in plan.mainloop.join_lines(s, i, j):
    ${line}
% endfor
% endfor
% endfor
% for j in range(plan.mainloop.ns):
    mov.${plan.arithmetic.type} ${plan.epilogue.vector[j]}, ${plan.mainloop.acc[0, i, j]};
% endfor
</%def>
