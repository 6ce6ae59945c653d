## Groups of columns of an array: a warp has some rows; its lanes combine each element with their own copies of the element's
## group.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="groups" file="/math/group_copies.mako"/>\
<%namespace name="slices" file="/${context['plan'].slices}"/>\
<% own = plan.mainloop %>\
    .reg .b64 %row_addr<${own.rows}>;
    .reg .b32 %unit, %row, %own_row, %column, %index, %last_row;
    .reg .pred %has<${own.vec}>, %in<${own.loads}>;
${ptx.banner("warp to rows: rows beyond the last are the last, and not stored")}\
${groups.setup()}\
    mov.u32 %unit, %ctaid.x;
    mad.lo.u32 %unit, %unit, ${own.warps}, %warp;
    mul.lo.u32 %row, %unit, ${own.rows};
    sub.u32 %last_row, %M, 1;
% for k in range(own.rows):
    add.u32 %own_row, %row, ${k};
    min.u32 %own_row, %own_row, %last_row;
    mad.wide.u32 %row_addr${k}, %own_row, %pitch, %array;
% endfor
${groups.find_alignment()}\
% for line in own.keys_aligned:
    ${line}
% endfor
    mad.lo.u32 %column, %lane, ${own.vec}, %first;
${groups.clear_elements()}\
% for r in own.keys.all:
    mov.b32 ${r}, 0;
% endfor
    setp.eq.u32 %p, %M, 0; // there is no row to load
    @%p mov.b32 %end, %first;
    setp.ge.u32 %p, %first, %end;
    @%p bra.uni NO_COLUMNS;
${ptx.banner("loads of the first columns, while the copies are cleared")}\
${load("FIRST")}\
NO_COLUMNS:
${groups.clear_copies()}\
${ptx.banner(f"columns of the slice: {own.loads} vectors of each row at once")}\
    setp.ge.u32 %p, %first, %end;
    @%p bra.uni REDUCED;
    .pragma "nounroll";
NEXT_COLUMNS:
${reduce()}\
    add.u32 %column, %column, ${own.stage_columns};
    add.u32 %first, %first, ${own.stage_columns};
    setp.ge.u32 %p, %first, %end;
    @%p bra.uni REDUCED;
${load("NEXT")}\
    bra.uni NEXT_COLUMNS;
REDUCED:
    bar.warp.sync 0xffffffff;
${ptx.banner("epilogue: the copies of the lanes are joined: a lane has a group, and reads the others' copies of it in turn")}\
${groups.find_result()}\
    {
    .reg .b32 %of_group, %copy_addr, %place, %base;
    .reg .${own.ptx_type} %joined<${own.JOINED}>, %other_copy;
    .reg .pred %in_groups, %stored;
    mov.u32 %base, smem;
    mad.lo.u32 %base, %warp, ${own.warp_bytes}, %base;
% for k in range(own.rows):
    add.u32 %own_row, %row, ${k};
    setp.lt.u32 %stored, %own_row, %M;
    mov.b32 %of_group, %lane;
    .pragma "nounroll";
NEXT_GROUPS_${k}:
    min.u32 %copy_addr, %of_group, ${own.count};
    mad.lo.u32 %copy_addr, %copy_addr, ${own.copy_bytes}, %base;
  % for n, (register, joined) in enumerate(own.copy_joins):
    xor.b32 %place, %lane, ${n};
    mad.lo.u32 %place, %place, ${own.held}, %copy_addr;
    ld.shared.${own.ptx_type} ${register}, [%place+${own.row_offsets[k]}];
    % if joined:
      % for line in plan.groups.join(joined, register):
    ${line}
      % endfor
    % endif
  % endfor
  % for n in range(1, own.JOINED):
    % for line in plan.groups.join("%joined0", f"%joined{n}"):
    ${line}
    % endfor
  % endfor
    setp.lt.and.u32 %in_groups, %of_group, ${own.count}, %stored;
    mul.wide.u32 %wide, %own_row, ${own.count};
    mad.lo.u64 %element_addr, %wide, ${own.held}, %out;
    mad.wide.u32 %element_addr, %of_group, ${own.held}, %element_addr;
    @%in_groups st.global.${own.ptx_type} [%element_addr], %joined0;
    add.u32 %of_group, %of_group, 32;
    setp.lt.u32 %p, %of_group, ${own.count};
    @%p bra NEXT_GROUPS_${k};
% endfor
    }
${ptx.banner("the first block of a slice counts the keys out of range; wait: the counts of all warps are complete")}\
    mov.u32 %tmp0, %ctaid.x;
    setp.ne.u32 %p, %tmp0, 0;
    @%p bra DONE;
${count_rejected()}\
${groups.share_rejected()}\
${groups.sum_rejected("%M")}\
DONE:
<%def name="after_entry()">
${slices.join_kernel()}\
</%def>\

## Loads vectors from %column on, and the keys of their columns.
<%def name="load(label)">
<% own = plan.mainloop %>\
% for t, columns in enumerate(own.vector_columns):
    add.u32 %index, %column, ${columns[0]};
    setp.lt.u32 %in${t}, %index, %end;
% endfor
    mad.wide.u32 %key_addr, %column, ${own.key_bytes}, %keys;
% if own.vec > 1:
    @!%aligned bra.uni ${label}_ELEMENTS;
% endif
% for t in range(own.loads):
  % for registers, offset in own.key_loads[t]:
    @%in${t} ld.global.nc.${own.key_access} ${registers}, [%key_addr+${offset}];
  % endfor
% endfor
% for k in range(own.rows):
    mad.wide.u32 %element_addr, %column, ${own.size}, %row_addr${k};
  % for t in range(own.loads):
    @%in${t} ld.global.nc.L1::no_allocate.${own.vector_load} ${own.array[k, t, :]}, [%element_addr+${own.element_offsets[t][0]}];
  % endfor
% endfor
% if own.vec > 1:
    bra.uni ${label}_LOADED;
${label}_ELEMENTS:
  % for t in range(own.loads):
    % for q, column in enumerate(own.vector_columns[t]):
    add.u32 %tmp0, %column, ${column};
    setp.lt.u32 %has${q}, %tmp0, %end;
    @%has${q} ld.global.nc.${own.key_load} ${own.keys[t, q]}, [%key_addr+${own.key_offsets[column]}];
    % endfor
    % for k in range(own.rows):
    mad.wide.u32 %element_addr, %column, ${own.size}, %row_addr${k};
      % for q in range(own.vec):
${groups.load_element(k, t, q, f"%has{q}", own.element_offsets[t][q])}\
      % endfor
    % endfor
  % endfor
${label}_LOADED:
% endif
</%def>

## Combines the elements with their groups, two of a lane at a time.
<%def name="reduce()">
<% own = plan.mainloop %>\
% for t in range(own.loads):
  % for q in range(own.vec):
${groups.group_of(own.keys[t, q], own.keys[t, q])}\
  % endfor
% endfor
    add.u32 %tmp0, %first, ${own.stage_columns};
    setp.le.u32 %p, %tmp0, %end;
    @%p bra.uni WHOLE;
% for t, columns in enumerate(own.vector_columns):
  % for q, column in enumerate(columns):
    add.u32 %index, %column, ${column};
    setp.lt.u32 %valid, %index, %end;
    @!%valid mov.b32 ${own.keys[t, q]}, ${own.count};
  % endfor
% endfor
WHOLE:
% for step in own.steps:
  % for i, (t, q) in enumerate(step):
    mad.lo.u32 ${own.group_addr[i]}, ${own.keys[t, q]}, ${own.copy_bytes}, %copies;
  % endfor
  % if len(step) > 1:
    setp.eq.u32 %same, ${own.group_addr[0]}, ${own.group_addr[1]};
  % endif
  % for i, (t, q) in enumerate(step):
    % for k in range(own.rows):
    ld.shared.${own.ptx_type} ${own.group[i, k]}, [${own.group_addr[i]}+${own.row_offsets[k]}];
    % endfor
  % endfor
  % for k in range(own.rows):
    % for i, (t, q) in enumerate(step):
      % for line in own.element_lines(k, t, q, i):
    ${line}
      % endfor
    % endfor
    % if len(step) > 1:
      % for line in plan.groups.join(own.values[0, k], own.values[1, k], "@%same "):
    ${line}
      % endfor
    % endif
    % for i, _ in enumerate(step):
      % for line in plan.groups.join(own.group[i, k], own.values[i, k]):
    ${line}
      % endfor
    % endfor
  % endfor
  % for i, (guard, _) in enumerate(zip(own.step_guards, step)):
    % for k, offset in enumerate(own.row_offsets):
    ${guard}st.shared.${own.ptx_type} [${own.group_addr[i]}+${offset}], ${own.group[i, k]};
    % endfor
  % endfor
% endfor
</%def>

## %rejected_keys: the keys of the slice that are out of range.
<%def name="count_rejected()">
<% own = plan.mainloop %>\
    {
    .reg .b32 %counted<${own.COUNTED}>, %some;
    mov.u32 %first, %ctaid.y;
    mul.lo.u32 %first, %first, %slice;
    add.u32 %end, %first, %slice;
    min.u32 %end, %end, %N;
    add.u32 %index, %first, %thread;
COUNT_KEYS:
% for n, first in enumerate(own.counted_keys):
    add.u32 %some, %index, ${first};
    setp.lt.u32 %valid, %some, %end;
    mad.wide.u32 %key_addr, %some, ${own.key_bytes}, %keys;
    mov.b32 %counted${n}, 0;
    @%valid ld.global.nc.${own.key_load} %counted${n}, [%key_addr];
% endfor
% for n, first in enumerate(own.counted_keys):
    add.u32 %some, %index, ${first};
    setp.lt.u32 %valid, %some, %end;
${groups.group_of(f"%counted{n}", "%some")}\
    setp.eq.and.u32 %p, %some, ${own.count}, %valid;
    @%p add.u32 %rejected_keys, %rejected_keys, 1;
% endfor
    add.u32 %index, %index, ${own.counted_step};
    setp.lt.u32 %p, %index, %end;
    @%p bra COUNT_KEYS;
    }
</%def>\
