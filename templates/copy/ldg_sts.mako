## Global to shared memory through registers: any alignment, any target; widens 16 bits and transposes on the way.
<%namespace name="convert" file="/ptx/convert.mako"/>
<%def name="title(x)"><% return "through registers" + (", transposed" if x.transposed else "") + (", widened to f32" if x.widens else "") %></%def>

<%def name="setup(x)">
    .reg .b32 ${", ".join(to for to, _ in x.places)};
% if x.unpacks:
    ${x.staged.declaration}
    ${x.halves.declaration}
% endif
</%def>

<%def name="fetch(addr, x, go, first=False)">
<% guard = f"%issue_{x.name}" if x.partial else go %>\
${addr.narrow(x, go)}\
% for p in x.pieces:
<%
    words = [x.staging[p.index, j] for j in range(x.staging.shape[1])]
    skip = plan.skip(x, p, first)
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
    and.pred %skip, %skip, ${guard};
% endif
${addr.address(x, p)}\
    @${"%skip" if skip else guard} ld.global.nc.${x.load_kind} ${x.staging.vector(p.index, 0, n=len(words))}, [${plan.at(x, p)}];
% endfor
</%def>

<%def name="deliver(addr, x, slot, go)">
<% guard = f"%issue_{x.name}" if x.partial else go %>\
${addr.narrow(x, go)}\
% for to, place in x.places:
    add.u32 ${to}, ${slot}, ${place};
% endfor
% for p in x.pieces:
% if x.unpacks:
${unpack(x, p, guard)}\
% endif
% for put in x.puts[p.index]:
    @${guard} st.shared.${put.kind} [${x.to(p)}+${put.offset}], ${put.registers};
% endfor
% endfor
</%def>

## Words of two f16 (or one) into single elements, f32 where shared memory holds f32.
<%def name="unpack(x, p, guard)">
% for j in range(0, x.vec, 2):
% if x.vec == 1:
${convert.widen(plan.problem.dtype, x.staged[p.index, j], x.staging[p.index, 0], f"@{guard} ")}\
% elif x.widens:
${convert.widen_pair(plan.problem.dtype, x.staged[p.index, j], x.staged[p.index, j + 1], x.staging[p.index, j // 2], x.halves, f"@{guard} ")}\
% else:
    @${guard} mov.b32 {${x.staged[p.index, j]}, ${x.staged[p.index, j + 1]}}, ${x.staging[p.index, j // 2]};
% endif
% endfor
</%def>

<%def name="start(addr, x, slot, go, first=False)">
${fetch(addr, x, go, first)}\
${deliver(addr, x, slot, go)}\
</%def>

<%def name="ahead(addr, x, go)">${fetch(addr, x, go)}</%def>
<%def name="early(addr, x, slot, go)">${fetch(addr, x, go)}</%def>
<%def name="late(addr, x, slot, go)">${deliver(addr, x, slot, go)}</%def>
<%def name="held(addr, x, slot, go, load)">
${deliver(addr, x, slot, go)}\
${fetch(addr, x, load)}\
</%def>
