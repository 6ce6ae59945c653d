## The values that a sink takes of a vector of results: plan.values has their registers. row, column: (register, constant
## to add) of the row and column of the first result.
<%def name="setup()">
% for x in plan.values.arrays:
    .reg .b64 %${x.name};
    ld.param.u64 %${x.name}, [${x.name}];
    cvta.to.global.u64 %${x.name}, %${x.name};
% if x.axes == "ij":
    .reg .b32 %ld_${x.name};
    ld.param.u32 %ld_${x.name}, [ld_${x.name}];
% endif
% endfor
</%def>

## The registers of a scope in which values are computed.
<%def name="declare()">
% for tile in plan.values.tiles:
    ${tile.declaration}
% endfor
% for line in plan.values.temporaries:
    ${line}
% endfor
% for x in plan.values.arrays:
    ${x.tile.declaration}
% endfor
    .reg .b64 %read_addr;
    .reg .b32 %index_i, %index_j<${plan.values.vec}>;
</%def>

<%def name="compute(registers, guard, row, column)">
% if plan.values.arrays or plan.values.indices:
    add.u32 %index_i, ${row[0]}, ${row[1]};
% for q in range(plan.values.vec):
    add.u32 %index_j${q}, ${column[0]}, ${column[1] + q};
% endfor
% endif
% for x in plan.values.arrays:
% if x.axes == "i":
    mad.wide.u32 %read_addr, %index_i, ${x.bytes}, %${x.name};
    ${guard}ld.global.nc.${x.access} ${x.tile[0]}, [%read_addr];
% else:
% if x.axes == "ij":
    mul.wide.u32 %read_addr, %index_i, %ld_${x.name};
    mad.lo.u64 %read_addr, %read_addr, ${x.bytes}, %${x.name};
    mad.wide.u32 %read_addr, %index_j0, ${x.bytes}, %read_addr;
% else:
    mad.wide.u32 %read_addr, %index_j0, ${x.bytes}, %${x.name};
% endif
% for q in range(plan.values.vec):
    ${guard}ld.global.nc.${x.access} ${x.tile[q]}, [%read_addr+${q * x.bytes}];
% endfor
% endif
% endfor
% for line in plan.values.lines(registers):
    ${line}
% endfor
</%def>

## Scalars of an auxiliary kernel that completes sums: see splitk_kernels.mako.
<%def name="declare_scalars()">
% for kind, names in plan.scalars_after_sums:
    .reg .${kind} ${", ".join(f"%{name}" for name in names)};
% endfor
</%def>
<%def name="load_scalars()">
% for kind, names in plan.scalars_after_sums:
    ${"  ".join(f"ld.param.{kind} %{name}, [{name}];" for name in names)}
% endfor
</%def>
