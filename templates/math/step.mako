## The reduction of an expression over K, a step at a time. Steps beyond K are not reduced, unless zeros do not change the result.
<%def name="clear_accumulators()">
% for r in plan.mainloop.acc.all:
    mov.${plan.arithmetic.type} ${r}, ${plan.reducer.identity};
% endfor
% for line in plan.reducer.step_temporaries:
    ${line}
% endfor
% for line in plan.reducer.temporaries:
    ${line}
% endfor
% for v in plan.mainloop.fixed_vectors:
${load_fixed(v)}\
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
% for v in plan.mainloop.k_vectors:
    .reg .b64 %at_${v.name};
    ${v.tile.declaration}
    ld.param.u64 %at_${v.name}, [${v.name}];
    cvta.to.global.u64 %at_${v.name}, %at_${v.name};
    mad.wide.u32 %at_${v.name}, %tmp0, ${v.bytes}, %at_${v.name};
% endfor
</%def>

## The elements of an array along M or N that belong to the rows or columns of this thread.
<%def name="load_fixed(v)">
    // ${v.name}: one element for each ${"row" if v.extent == "M" else "column"} of this thread
    .reg .b64 %at_${v.name};
    ${v.tile.declaration}
    ld.param.u64 %at_${v.name}, [${v.name}];
    cvta.to.global.u64 %at_${v.name}, %at_${v.name};
    add.u32 %tmp1, %${v.extent.lower()}0, ${"%row" if v.extent == "M" else "%col"};
    sub.u32 %tmp2, %${v.extent}, 1;
% for n, offset in enumerate(v.offsets):
    add.u32 %tmp0, %tmp1, ${offset};
    min.u32 %tmp0, %tmp0, %tmp2;
    mad.wide.u32 %tmp64, %tmp0, ${v.bytes}, %at_${v.name};
    ld.global.nc.${v.access} ${v.tile[n]}, [%tmp64];
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
% for v in m.k_vectors:
% if part.remainder:
    mov.b${v.register_bits} ${v.tile[k]}, 0;
% endif
    ${valid}ld.global.nc.${v.access} ${v.tile[k]}, [%at_${v.name}+${k * v.bytes}];
% endfor
% for i, j in m.products_of(part):
% for line in m.step_lines(k, i, j, valid if plan.reducer.guarded else ""):
    ${line}
% endfor
% endfor
% if k == m.steps - 1:
% for v in m.k_vectors:
% if part.remainder:
    mad.wide.u32 %at_${v.name}, %k_rem, ${v.bytes}, %at_${v.name};
% else:
    add.u64 %at_${v.name}, %at_${v.name}, ${plan.config.u * v.bytes};
% endif
% endfor
% endif
</%def>

## Row i of the thread's tile into %result.
<%def name="scaled_row(i)">
% for s in range(1, plan.mainloop.ks):
% for j in range(plan.mainloop.ns):
% for line in plan.reducer.join(plan.mainloop.acc[0, i, j], plan.mainloop.acc[s, i, j]):
    ${line}
% endfor
% endfor
% endfor
% for j in range(plan.mainloop.ns):
    mov.${plan.arithmetic.type} ${plan.epilogue.vector[j]}, ${plan.mainloop.acc[0, i, j]};
% endfor
</%def>
