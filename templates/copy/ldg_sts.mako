## Global to shared memory through registers (ld.global, st.shared): any alignment; widens 16-bit types, or stores them twice, and transposes.
<%namespace name="convert" file="/ptx/convert.mako"/>
<%def name="setup(x)">
    .reg .b32 ${x.store_registers};
% if x.unpacks:
    ${x.converted.declaration}
    ${x.halves.declaration}
% endif
% if x.extracts and x.casts:
    ${x.extracted.declaration}
% endif
</%def>

<%def name="load(addr, x, guard, first=False)">
${addr.copy_guard(x, guard)}\
% for p in x.loads:
<% skip, issue = plan.mainloop.skips[x.name, first][p.index], x.issues[p.index] or guard %>\
<% loads = issue %>\
  % if skip:
<% loads = "%skip" %>\
    % for word in x.staged[p.index]:
    mov.${x.staging.ptx_type} ${word}, 0;
    % endfor
${addr.skip(x, p, first)}\
    % if skip != "%skip":
    mov.pred %skip, ${skip};
    % endif
    not.pred %skip, %skip;
    and.pred %skip, %skip, ${issue};
  % endif
${addr.address(x, p)}\
    @${loads} ld.global.nc.${x.load_type} ${x.staging[p.index, :]}, [${x.load_addresses[p.index]}];
% endfor
</%def>

<%def name="store(addr, x, stage, guard)">
${addr.copy_guard(x, guard)}\
% for to, offset in x.store_ptrs:
    add.u32 ${to}, ${stage}, ${offset};
% endfor
% for p in x.loads:
<% issue = x.issues[p.index] or guard %>\
  % if x.extracts or x.casts:
${cast(x, p, issue)}\
  % elif x.unpacks:
${unpack(x, p, issue)}\
  % endif
  % for store in x.shared_stores[p.index]:
    @${issue} st.shared.${store.ptx_type} [${x.copy_targets[p.index]}+${store.offset}], ${store.registers};
  % endfor
% endfor
</%def>

## Extracts integers of 8 or 16 bits from words, and casts elements to the type that shared memory holds.
<%def name="cast(x, p, issue)">
% for to, value, word, bit in x.cast_elements[p.index]:
  % if x.extracts:
    @${issue} bfe.${x.read_type} ${value}, ${word}, ${bit}, ${x.dtype.bits};
  % endif
  % if x.casts:
    % for line in x.cast(to, value, f"@{issue}"):
    ${line}
    % endfor
  % endif
% endfor
</%def>

## Unpacks words of two 16-bit elements, to f32 where shared memory holds f32, to pairs where it has elements twice.
<%def name="unpack(x, p, issue)">
% for word, low, high in x.unpacked_pairs[p.index]:
  % if x.twice and x.vec == 1:
    @${issue} mov.b32 ${low}, {${word}, ${word}};
  % elif x.twice:
    @${issue} prmt.b32 ${low}, ${word}, 0, 0x1010;
    @${issue} prmt.b32 ${high}, ${word}, 0, 0x3232;
  % elif x.vec == 1:
${convert.widen(x.dtype.name, low, word, f"@{issue} ")}\
  % elif x.widens:
${convert.widen_pair(x.dtype.name, low, high, word, x.halves, f"@{issue} ")}\
  % else:
    @${issue} mov.b32 {${low}, ${high}}, ${word};
  % endif
% endfor
</%def>

<%def name="start(addr, x, stage, guard, first=False)">
${load(addr, x, guard, first)}\
${store(addr, x, stage, guard)}\
</%def>

<%def name="prologue_load(addr, x, guard)">${load(addr, x, guard)}</%def>
<%def name="load_stage(addr, x, stage, guard)">${load(addr, x, guard)}</%def>
<%def name="store_stage(addr, x, stage, guard)">${store(addr, x, stage, guard)}</%def>
<%def name="store_then_load(addr, x, stage, guard, next_guard)">
${store(addr, x, stage, guard)}\
${load(addr, x, next_guard)}\
</%def>
