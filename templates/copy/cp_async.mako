## Global to shared memory by cp.async: 4, 8 or 16 bytes a lane, past the registers.
<%def name="title(x)"><% return "cp.async, transposed" if x.transposed else "cp.async" %></%def>

<%def name="setup(x)">
    .reg .b32 ${", ".join(to for to, _ in x.places)};
</%def>

<%def name="start(addr, x, slot, go, first=False)">
<% guard = f"%issue_{x.name}" if x.partial else go %>\
${addr.narrow(x, go)}\
% for to, place in x.places:
    add.u32 ${to}, ${slot}, ${place};
% endfor
% for p in x.pieces:
${addr.skip(x, p, first)}\
${addr.address(x, p)}\
    @${guard} cp.async.${"cg" if x.copy_bytes == 16 else "ca"}.shared.global [${x.to(p)}+${p.offset}], [${plan.at(x, p)}], ${", ".join(str(v) for v in (x.copy_bytes, plan.skip(x, p, first)) if v)};
% endfor
</%def>

<%def name="ahead(addr, x, go)"></%def>
<%def name="early(addr, x, slot, go)">${start(addr, x, slot, go)}</%def>
<%def name="late(addr, x, slot, go)"></%def>
<%def name="held(addr, x, slot, go, load)">${start(addr, x, slot, go)}</%def>
