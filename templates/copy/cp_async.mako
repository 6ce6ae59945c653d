## Global to shared memory by cp.async: 4, 8 or 16 bytes a lane, past the registers.
<%namespace name="addr" file="/addr/strided.mako"/>
<%def name="title(x)"><% return "cp.async, transposed" if x.transposed else "cp.async" %></%def>

<%def name="setup(x)">
    .reg .b32 ${", ".join(to for to, _ in x.places)};
</%def>

<%def name="start(x, slot, go, first=False)">
<%
    guard = f"%go_{x.name}" if x.partial else go
    cut = first and plan.checked
%>\
${addr.narrow(x, go)}\
% for to, place in x.places:
    add.u32 ${to}, ${slot}, ${place};
% endfor
% for p in x.pieces:
% if cut:
${addr.skip(x, p)}\
% endif
${addr.address(x, p)}\
    @${guard} cp.async.${"cg" if x.copy_bytes == 16 else "ca"}.shared.global [${x.to(p)}+${p.offset}], [${"%t64" if x.many else f"%ptr_{x.name}{p.index}"}], ${x.copy_bytes}${", %skip" if cut else f", {p.out}" if plan.predicated else ""};
% endfor
</%def>

<%def name="ahead(x, go)"></%def>
<%def name="early(x, slot, go)">${start(x, slot, go)}</%def>
<%def name="late(x, slot, go)"></%def>
<%def name="held(x, slot, go, load)">${start(x, slot, go)}</%def>
