## Global to shared memory by cp.async, 4, 8 or 16 bytes per thread.
<%def name="title(x)"><% return "cp.async, transposed" if x.transposed else "cp.async" %></%def>

<%def name="setup(x)">
    .reg .b32 ${", ".join(to for to, _ in x.store_ptrs)};
</%def>

<%def name="start(addr, x, stage, guard, first=False)">
<% issue = f"%issue_{x.name}" if x.partial_copy else guard %>\
${addr.copy_guard(x, guard)}\
% for to, offset in x.store_ptrs:
    add.u32 ${to}, ${stage}, ${offset};
% endfor
% for p in x.loads:
${addr.skip(x, p, first)}\
${addr.address(x, p)}\
    @${issue} cp.async.${"cg" if x.copy_bytes == 16 else "ca"}.shared.global [${x.store_ptr(p)}+${p.offset}], [${plan.mainloop.address_of(x, p)}], ${", ".join(str(v) for v in (x.copy_bytes, plan.mainloop.skip(x, p, first)) if v)};
% endfor
</%def>

<%def name="prologue_load(addr, x, guard)"></%def>
<%def name="load_stage(addr, x, stage, guard)">${start(addr, x, stage, guard)}</%def>
<%def name="store_stage(addr, x, stage, guard)"></%def>
<%def name="store_then_load(addr, x, stage, guard, next_guard)">${start(addr, x, stage, guard)}</%def>
