## Global to shared memory through registers (ld.global, st.shared): any alignment; widens 16-bit types, or stores them twice, and transposes.
<%namespace name="convert" file="/ptx/convert.mako"/>
<%def name="title(x)"><% return "through registers" + (", transposed" if x.transposed else "") + (", widened to f32" if x.widens else ", each element twice" if x.twice else f", cast to {x.held}" if x.casts else ", widened to 32 bits" if x.extracts else "") %></%def>

<%def name="setup(x)">
    .reg .b32 ${", ".join(to for to, _ in x.store_ptrs)};
% if x.unpacks:
    ${x.converted.declaration}
    ${x.halves.declaration}
% endif
% if x.extracts and x.casts:
    ${x.extracted.declaration}
% endif
</%def>

<%def name="load(addr, x, guard, first=False)">
<% issue = f"%issue_{x.name}" if x.partial_copy else guard %>\
${addr.copy_guard(x, guard)}\
% for p in x.loads:
<%
    words = [x.staging[p.index, j] for j in range(x.staging.shape[1])]
    skip = plan.mainloop.skip(x, p, first)
%>\
  % if skip:
    % for word in words:
    mov.${x.staging.kind} ${word}, 0;
    % endfor
${addr.skip(x, p, first)}\
    % if skip != "%skip":
    mov.pred %skip, ${skip};
    % endif
    not.pred %skip, %skip;
    and.pred %skip, %skip, ${issue};
  % endif
${addr.address(x, p)}\
    @${"%skip" if skip else issue} ld.global.nc.${x.load_kind} ${x.staging.vector(p.index, 0, n=len(words))}, [${plan.mainloop.address_of(x, p)}];
% endfor
</%def>

<%def name="store(addr, x, stage, guard)">
<% issue = f"%issue_{x.name}" if x.partial_copy else guard %>\
${addr.copy_guard(x, guard)}\
% for to, offset in x.store_ptrs:
    add.u32 ${to}, ${stage}, ${offset};
% endfor
% for p in x.loads:
  % if x.extracts or x.casts:
${cast(x, p, issue)}\
  % elif x.unpacks:
${unpack(x, p, issue)}\
  % endif
  % for store in x.shared_stores[p.index]:
    @${issue} st.shared.${store.kind} [${x.store_ptr(p)}+${store.offset}], ${store.registers};
  % endfor
% endfor
</%def>

## Extracts integers of 8 or 16 bits from words, and casts elements to the type that shared memory holds.
<%def name="cast(x, p, issue)">
% for j in range(x.vec):
<% to = x.converted[p.index, j] %>\
  % if x.extracts:
<%
    word, bit = x.in_word(p.index, j)
    value = x.extracted[0] if x.casts else to
%>\
    @${issue} bfe.${x.read_type} ${value}, ${word}, ${bit}, ${x.dtype.bits};
  % else:
<% value = x.staging[p.index, j] %>\
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
% for j in range(0, x.vec, 2):
  % if x.twice and x.vec == 1:
    @${issue} mov.b32 ${x.converted[p.index, j]}, {${x.staging[p.index, 0]}, ${x.staging[p.index, 0]}};
  % elif x.twice:
    @${issue} prmt.b32 ${x.converted[p.index, j]}, ${x.staging[p.index, j // 2]}, 0, 0x1010;
    @${issue} prmt.b32 ${x.converted[p.index, j + 1]}, ${x.staging[p.index, j // 2]}, 0, 0x3232;
  % elif x.vec == 1:
${convert.widen(x.dtype.name, x.converted[p.index, j], x.staging[p.index, 0], f"@{issue} ")}\
  % elif x.widens:
${convert.widen_pair(x.dtype.name, x.converted[p.index, j], x.converted[p.index, j + 1], x.staging[p.index, j // 2], x.halves, f"@{issue} ")}\
  % else:
    @${issue} mov.b32 {${x.converted[p.index, j]}, ${x.converted[p.index, j + 1]}}, ${x.staging[p.index, j // 2]};
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
