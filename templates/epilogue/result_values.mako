<%namespace name="pdl" file="/ptx/pdl.mako"/>\
## The values that a sink takes of a vector of results: plan.values has their registers. row, column: (register, constant
## to add) of the row and column of the first result; values: those to compute, if not all.
## instead: instructions of a block that has nothing else to do, which return.
<%def name="skip_tile(instead='')">
% if plan.values.reachable is not None:
    { // no pair of this tile is taken: the block has nothing to do
    .reg .pred %reachable;
    .reg .b32 %first_i, %first_j, %last_i, %last_j;
    mov.b32 %first_i, %m0;
    mov.b32 %first_j, %n0;
    add.u32 %last_i, %m0, ${plan.values.rows};
    add.u32 %last_j, %n0, ${plan.values.columns};
    min.u32 %last_i, %last_i, %M;
    min.u32 %last_j, %last_j, %N;
    sub.u32 %last_i, %last_i, 1;
    sub.u32 %last_j, %last_j, 1;
${corner_keys()}\
  % for line in plan.values.reach_lines:
    ${line}
  % endfor
  % if instead:
    @%reachable bra.uni TILE_REACHABLE;
${instead}\
TILE_REACHABLE:
  % else:
    @!%reachable ret;
  % endif
    }
% endif
</%def>

## The elements of ascending vectors at the corners of a tile, which bound those of its rows and columns.
<%def name="corner_keys()">
% if plan.values.corner_keys:
    .reg .b64 %keys, %key_addr;
${pdl.wait()}\
% endif
% for x in plan.values.corner_keys:
    .reg .${x.ptx_type} %first_${x.name}, %last_${x.name};
    ld.param.u64 %keys, [${x.name}];
    cvta.to.global.u64 %keys, %keys;
  % for end in ("first", "last"):
    mad.wide.u32 %key_addr, %${end}_${x.axes}, ${x.bytes}, %keys;
    ld.global.nc.${x.access} %${end}_${x.name}, [%key_addr];
  % endfor
% endfor
</%def>

<%def name="setup()">
% for ptx_type, register, _ in plan.values.fixed:
    .reg .${ptx_type} ${register};
% endfor
% if plan.values.fixed:
    { // ---- what is equal for all results
  % for line in [*plan.values.fixed_temporaries, *plan.values.fixed_lines]:
    ${line}
  % endfor
    }
% endif
% for x in plan.values.arrays:
    .reg .b64 %${x.name};
    ld.param.u64 %${x.name}, [${x.name}];
    cvta.to.global.u64 %${x.name}, %${x.name};
  % if x.pitched:
    .reg .b32 %ld_${x.name};
    ld.param.u32 %ld_${x.name}, [ld_${x.name}];
  % endif
% endfor
</%def>

## The registers of a scope in which values are computed.
<%def name="declare(values=None)">
<% v = values or plan.values %>\
% for tile in v.tiles:
    ${tile.declaration}
% endfor
% for line in v.temporaries:
    ${line}
% endfor
% for x in v.arrays:
    ${x.tile.declaration}
% endfor
    .reg .b64 %read_addr;
    .reg .b32 %index_i, %index_j<${v.vec}>;
% for ptx_type, r, zero in v.preinitialised:
    mov.${ptx_type} ${r}, ${zero};
% endfor
</%def>

<%def name="compute(registers, guard, row, column, values=None)">
<% v = values or plan.values %>\
% if v.arrays or v.indices:
    add.u32 %index_i, ${row[0]}, ${row[1]};
  % for q in range(v.vec):
    add.u32 %index_j${q}, ${column[0]}, ${column[1] + q};
  % endfor
% endif
% for x in v.arrays:
  % if x.axes == "ji":
    % for q in range(v.vec):
    mul.wide.u32 %read_addr, %index_j${q}, %ld_${x.name};
    mad.lo.u64 %read_addr, %read_addr, ${x.bytes}, %${x.name};
    mad.wide.u32 %read_addr, %index_i, ${x.bytes}, %read_addr;
    ${guard}ld.global.nc.${x.access} ${x.tile[q]}, [%read_addr];
    % endfor
  % elif x.axes == "i":
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
    % for q, offset in zip(range(v.vec), x.offsets):
    ${guard}ld.global.nc.${x.access} ${x.tile[q]}, [%read_addr+${offset}];
    % endfor
  % endif
% endfor
% for line in v.lines(registers):
    ${line}
% endfor
</%def>

## Scalars of an auxiliary kernel that completes sums: see splitk_kernels.mako.
<%def name="declare_scalars()">
% for group in plan.scalars_after_sums:
    .reg .${group.type} ${group.registers};
% endfor
% if plan.problem.sink.reads_k:
    .reg .b32 %K;
% endif
</%def>
<%def name="load_scalars()">
% for group in plan.scalars_after_sums:
    ${group.load}
% endfor
% if plan.problem.sink.reads_k:
    ld.param.u32 %K, [K];
% endif
</%def>
