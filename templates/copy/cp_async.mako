## Global to shared memory by cp.async, 4, 8 or 16 bytes per thread.
<%def name="setup(x)">
    .reg .b32 ${x.store_registers};
</%def>

<%def name="start(addr, x, stage, guard, first=False)">
<% operands = plan.mainloop.copy_operands[x.name, first] %>\
${addr.copy_guard(x, guard)}\
% for to, offset in x.store_ptrs:
    add.u32 ${to}, ${stage}, ${offset};
% endfor
% for p in x.loads:
${addr.skip(x, p, first)}\
${addr.address(x, p)}\
    @${x.issues[p.index] or guard} cp.async.${x.cache}.shared.global [${x.copy_targets[p.index]}+${p.offset}], [${x.load_addresses[p.index]}], ${operands[p.index]};
% endfor
</%def>

<%def name="prologue_load(addr, x, guard)"></%def>
<%def name="load_stage(addr, x, stage, guard)">${start(addr, x, stage, guard)}</%def>
<%def name="store_stage(addr, x, stage, guard)"></%def>
<%def name="store_then_load(addr, x, stage, guard, next_guard)">${start(addr, x, stage, guard)}</%def>
