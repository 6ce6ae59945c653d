## Groups of rows of an array: a warp has a strip of columns, and combines each row with the copies of the row's group.
<%inherit file="base.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="groups" file="/math/group_copies.mako"/>\
<%namespace name="slices" file="/${context['plan'].slices}"/>\
<% own = plan.mainloop %>\
    .reg .b64 %column_addr;
    .reg .b32 %column, %row, %last_row, %own_group;
    .reg .pred %has, %in_row<${own.vec}>;
${ptx.banner("thread to columns: lanes beyond the last column load nothing")}\
${groups.setup()}\
    mov.u32 %column, %ctaid.x;
    shl.b32 %column, %column, 5;
    add.u32 %column, %column, %lane;
    mul.lo.u32 %column, %column, ${own.vec};
    setp.lt.u32 %has, %column, %N;
    mad.wide.u32 %column_addr, %column, ${own.size}, %array;
${groups.find_alignment()}\
% for q in range(own.vec):
    add.u32 %tmp0, %column, ${q};
    setp.lt.u32 %in_row${q}, %tmp0, %N;
% endfor
    sub.u32 %last_row, %end, 1;
    mad.lo.u32 %row, %warp, ${own.loads}, %first;
${groups.clear_elements()}\
% for r in own.keys.all:
    mov.b32 ${r}, 0;
% endfor
    setp.ge.u32 %p, %row, %end;
    @%p bra.uni NO_ROWS;
${ptx.banner("loads of the first rows, while the copies are cleared")}\
${load("FIRST")}\
NO_ROWS:
${groups.clear_copies()}\
${ptx.banner(f"rows of the slice: {own.loads} of each warp at once")}\
    setp.ge.u32 %p, %row, %end;
    @%p bra.uni REDUCED;
    .pragma "nounroll";
NEXT_ROWS:
${reduce()}\
    add.u32 %row, %row, ${own.stage_rows};
    setp.ge.u32 %p, %row, %end;
    @%p bra.uni REDUCED;
${load("NEXT")}\
    bra.uni NEXT_ROWS;
REDUCED:
${ptx.banner("wait: the copies of all warps are complete; they are joined and stored")}\
${groups.share_rejected()}\
    mov.u32 %tmp0, %ctaid.x;
    setp.ne.u32 %p, %tmp0, 0;
    @%p bra COUNTED;
${groups.sum_rejected("%N")}\
COUNTED:
${groups.find_result()}\
    {
    .reg .b32 %element, %copy_addr, %at_column, %of_group;
    .reg .${own.ptx_type} %joined, %other_copy<${own.other_warps}>;
    mov.b32 %element, %thread;
    setp.ge.u32 %p, %element, ${own.strip_elements};
    @%p bra DONE;
    .pragma "nounroll";
NEXT_ELEMENT:
    mov.u32 %copy_addr, smem;
    mad.lo.u32 %copy_addr, %element, ${own.held}, %copy_addr;
    ld.shared.${own.ptx_type} %joined, [%copy_addr];
% for n, offset in enumerate(own.other_copies):
    ld.shared.${own.ptx_type} %other_copy${n}, [%copy_addr+${offset}];
% endfor
% for n in range(len(own.other_copies)):
  % for line in plan.groups.join("%joined", f"%other_copy{n}"):
    ${line}
  % endfor
% endfor
    shr.u32 %of_group, %element, ${own.log2_span};
    and.b32 %at_column, %element, ${own.span_mask};
    mov.u32 %tmp0, %ctaid.x;
    mad.lo.u32 %at_column, %tmp0, ${own.span}, %at_column;
    setp.lt.u32 %p, %at_column, %N;
    mul.wide.u32 %wide, %of_group, %N;
    mad.lo.u64 %element_addr, %wide, ${own.held}, %out;
    mad.wide.u32 %element_addr, %at_column, ${own.held}, %element_addr;
    @%p st.global.${own.ptx_type} [%element_addr], %joined;
    add.u32 %element, %element, ${own.threads};
    setp.lt.u32 %p, %element, ${own.strip_elements};
    @%p bra NEXT_ELEMENT;
    }
DONE:
<%def name="after_entry()">
${slices.join_kernel()}\
</%def>\

## Loads rows from %row on, and the keys of these, one per lane. Rows beyond the last are the last.
<%def name="load(label)">
<% own = plan.mainloop %>\
    add.u32 %tmp0, %row, %lane;
    setp.lt.u32 %valid, %tmp0, %end;
% if own.loads < 32:
    setp.lt.and.u32 %valid, %lane, ${own.loads}, %valid;
% endif
    mad.wide.u32 %key_addr, %tmp0, ${own.key_bytes}, %keys;
    @%valid ld.global.nc.${own.key_load} ${own.keys[0, 0]}, [%key_addr];
% if own.vec > 1:
    @!%aligned bra.uni ${label}_ELEMENTS;
% endif
% for t in range(own.loads):
${row_address(t)}\
    @%has ld.global.nc.L1::no_allocate.${own.vector_load} ${own.array[0, t, :]}, [%element_addr];
% endfor
% if own.vec > 1:
    bra.uni ${label}_LOADED;
${label}_ELEMENTS:
  % for t in range(own.loads):
${row_address(t)}\
    % for q in range(own.vec):
${groups.load_element(0, t, q, f"%in_row{q}", own.element_offsets[0][q])}\
    % endfor
  % endfor
${label}_LOADED:
% endif
</%def>

<%def name="row_address(t)">
    add.u32 %tmp0, %row, ${t};
    min.u32 %tmp0, %tmp0, %last_row;
    mad.wide.u32 %element_addr, %tmp0, %pitch, %column_addr;
</%def>

## Combines the rows with their groups, two at a time. %own_group: the group of the lane's row, in bytes.
<%def name="reduce()">
<% own = plan.mainloop %>\
    add.u32 %tmp0, %row, %lane;
    setp.lt.u32 %valid, %tmp0, %end;
% if own.loads < 32:
    setp.lt.and.u32 %valid, %lane, ${own.loads}, %valid;
% endif
${groups.group_of(own.keys[0, 0], "%own_group")}\
    setp.eq.and.u32 %p, %own_group, ${own.count}, %valid;
    @%p add.u32 %rejected_keys, %rejected_keys, 1;
    @!%valid mov.b32 %own_group, ${own.count};
    mul.lo.u32 %own_group, %own_group, ${own.copy_bytes};
% for step in own.steps:
  % for i, (t, _) in enumerate(step):
    shfl.sync.idx.b32 ${own.group_addr[i]}, %own_group, ${t}, 31, 0xffffffff;
    add.u32 ${own.group_addr[i]}, ${own.group_addr[i]}, %copies;
    % for q in range(own.vec):
      % for line in own.row_lines(t, q, i):
    ${line}
      % endfor
    % endfor
    ld.shared.${own.held_access} ${own.group[i, :]}, [${own.group_addr[i]}];
  % endfor
  % if len(step) > 1:
    setp.eq.u32 %same, ${own.group_addr[0]}, ${own.group_addr[1]};
    % for q in range(own.vec):
      % for line in plan.groups.join(own.values[0, q], own.values[1, q], "@%same "):
    ${line}
      % endfor
    % endfor
  % endif
  % for i, (guard, _) in enumerate(zip(own.step_guards, step)):
    % for q in range(own.vec):
      % for line in plan.groups.join(own.group[i, q], own.values[i, q]):
    ${line}
      % endfor
    % endfor
    ${guard}st.shared.${own.held_access} [${own.group_addr[i]}], ${own.group[i, :]};
  % endfor
% endfor
</%def>\
