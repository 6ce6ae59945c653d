## Global addresses of an operand by tables: the sum of an offset along M (N) and an offset along K. For im2col, each entry
## also has a word of coordinates, whose guard bits show whether the element is inside the image.
<%namespace name="thread_map" file="/addr/copy_thread_map.mako"/>
<%def name="setup(x)">
${thread_map.setup(x, f"%k_table_{x.name}")}\
    .reg .b32 %mn_off_${x.name}<${len(x.addressing.mn_offsets)}>, %k_off_${x.name}<${len(x.addressing.k_offsets)}>;
% if x.addressing.is_im2col:
    .reg .b32 %mn_coord_${x.name}<${len(x.addressing.mn_offsets)}>, %k_coord_${x.name}<${len(x.addressing.k_offsets)}>, %guard_bits_${x.name}, %max_coords_${x.name};
    ld.param.u32 %guard_bits_${x.name}, [guard_${x.name}];
    ld.param.u32 %max_coords_${x.name}, [high_${x.name}];
% endif
    // offsets along ${x.extent}: looked up once
    ld.param.u64 %tmp64, [mn_table_${x.name}];
    cvta.to.global.u64 %tmp64, %tmp64;
% for n, (mn, oob) in enumerate(zip(x.addressing.mn_offsets, x.oob_predicates)):
    add.u32 %tmp0, %${x.extent.lower()}0, %mn_${x.name};
    add.u32 %tmp0, %tmp0, ${mn};
  % if plan.mainloop.predicated:
    setp.ge.u32 ${oob}, %tmp0, %${x.extent};
  % endif
  % if plan.mainloop.checks_bounds:
    sub.u32 %tmp2, ${x.limit}, ${x.edge};
    min.u32 %tmp0, %tmp0, %tmp2;
  % endif
    mad.wide.u32 %tmp64b, %tmp0, ${x.addressing.table_entry_bytes}, %tmp64;
    ${x.addressing.mn_entries[n]}, [%tmp64b];
% endfor
    ld.param.u64 %tmp64, [k_table_${x.name}];
    cvta.to.global.u64 %tmp64, %tmp64;
    add.u32 %tmp0, %k0, %k_${x.name};
    mad.wide.u32 %k_table_${x.name}, %tmp0, ${x.addressing.table_entry_bytes}, %tmp64;
${look_up_k(x)}\
</%def>

## Looks up the offsets along K of this thread's next loads.
<%def name="look_up_k(x)">
% for load, offset in x.addressing.k_entries:
    ${load}, [%k_table_${x.name}+${offset}];
% endfor
</%def>

<%def name="address(x, p)">
<% mn, k = x.table_places[p.index] %>\
    add.s32 %tmp0, %mn_off_${x.name}${mn}, %k_off_${x.name}${k};
    mad.wide.s32 %tmp64, %tmp0, ${x.global_bytes}, %${x.name.upper()};
</%def>

<%def name="advance(x, first)">
% if first and plan.mainloop.checks_bounds:
    mad.wide.u32 %k_table_${x.name}, %k_rem, ${x.addressing.table_entry_bytes}, %k_table_${x.name};
% else:
    add.u64 %k_table_${x.name}, %k_table_${x.name}, ${x.table_step_bytes};
% endif
${look_up_k(x)}\
</%def>

## Sets %skip if load p is outside the image, past the remainder of K in the first stage, or outside M or N.
<%def name="skip(x, p, first)">
% if x.addressing.is_im2col:
<% mn, k = x.table_places[p.index] %>\
    add.u32 %tmp1, %mn_coord_${x.name}${mn}, %k_coord_${x.name}${k};
    sub.u32 %tmp2, %max_coords_${x.name}, %tmp1;
    lop3.b32 %tmp1, %tmp1, %tmp2, %guard_bits_${x.name}, ${x.addressing.OUT_OF_IMAGE_LUT};
    setp.ne.u32 %skip, %tmp1, 0;
% endif
% if first and plan.mainloop.checks_bounds:
    add.u32 %tmp0, %k_${x.name}, ${p.k};
    ${x.addressing.skip_past_k}
% endif
% if plan.mainloop.predicated and (x.addressing.is_im2col or first):
    or.pred %skip, %skip, ${p.oob};
% endif
</%def>

<%def name="copy_guard(x, guard)">${thread_map.copy_guard(x, guard)}</%def>
