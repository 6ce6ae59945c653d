## Joins the states of each row, or column, that blocks have stored in the workspace [part][result]. A warp has 8 results. The
## lanes and warps that share a result each have every 32nd part, so the order of reduction depends on nothing else.
<%namespace name="rows" file="/epilogue/row_reduce.mako"/>
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%def name="entries()">
% if plan.sink_kernels.fills:
${fill()}\
% endif
${join("join", finish, "C = the results of the states of all parts", plan.sink_kernels.declarations)}\
% if plan.sink_kernels.keeps:
${join("keep", keep, "kept states join the states of all parts of a range of results", plan.sink_kernels.keep_declarations)}\
% endif
</%def>

<%def name="fill()">

// the states of no value, which tiles without a pair do not store
.visible .entry ${plan.entry}_fill(
% for line in plan.sink_kernels.declarations:
    ${line}
% endfor
)
.maxntid ${plan.sink_kernels.THREADS}, 1, 1
{
    .reg .b64 %workspace, %states, %states_end, %step;
    .reg .b32 %results, %parts, %thread, %half<2>, %tmp0;
    .reg .pred %p;
${rows.declare()}\
    ld.param.u64 %workspace, [W];  ld.param.u64 %states, [sink_offset];
    cvta.to.global.u64 %workspace, %workspace;
    ld.param.u32 %results, [results];  ld.param.u32 %parts, [parts];
${pdl.trigger_and_wait()}\
    add.u64 %states, %states, %workspace;
    mul.wide.u32 %states_end, %results, %parts;
    mad.lo.u64 %states_end, %states_end, ${plan.states.entry_bytes}, %states;
    mov.u32 %tmp0, %ctaid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %thread, %tmp0, ${plan.sink_kernels.THREADS}, %thread;
    mad.wide.u32 %state_addr, %thread, ${plan.states.entry_bytes}, %states;
    mov.u32 %tmp0, %nctaid.x;
    mul.wide.u32 %step, %tmp0, ${plan.sink_kernels.fill_bytes};
${rows.clear(1)}\
FILL:
    setp.ge.u64 %p, %state_addr, %states_end;
    @%p bra DONE;
${store()}\
    add.u64 %state_addr, %state_addr, %step;
    bra FILL;
DONE:
    ret;
}
</%def>

<%def name="join(name, end, text, declarations)">
<% lanes = plan.sink_kernels.RESULTS %>\

// ${text}
.visible .entry ${plan.entry}_${name}(
% for line in declarations:
    ${line}
% endfor
)
.maxntid ${plan.sink_kernels.THREADS}, 1, 1
{
    .shared .align 16 .b8 joined[${plan.sink_kernels.joined_bytes}];
    .reg .b64 %C, %workspace, %states, %tmp64, %part_step;
    .reg .b32 %results, %parts, %thread, %result, %state_part, %warp, %half<2>, %joined, %tmp0;
    .reg .pred %in_bounds, %p;
${rows.declare()}\
    ld.param.u64 %C, [C];  ld.param.u64 %workspace, [W];  ld.param.u64 %states, [sink_offset];
    cvta.to.global.u64 %C, %C;  cvta.to.global.u64 %workspace, %workspace;
    ld.param.u32 %results, [results];  ld.param.u32 %parts, [parts];
${pdl.trigger_and_wait()}\
    add.u64 %states, %states, %workspace;
    mov.u32 %thread, %tid.x;
    mov.u32 %joined, joined;
    shr.u32 %warp, %thread, 5;
    mov.u32 %tmp0, %ctaid.x;
    and.b32 %result, %thread, ${plan.sink_kernels.result_mask};
    mad.lo.u32 %result, %tmp0, ${lanes}, %result;
    shr.u32 %state_part, %thread, 3;
    setp.lt.u32 %in_bounds, %result, %results;
${rows.clear(1)}\
    setp.lt.and.u32 %p, %state_part, %parts, %in_bounds;
    @!%p bra JOIN_LANES;
    mul.wide.u32 %state_addr, %state_part, %results;
    cvt.u64.u32 %tmp64, %result;
    add.u64 %state_addr, %state_addr, %tmp64;
    mad.lo.u64 %state_addr, %state_addr, ${plan.states.entry_bytes}, %states;
    mul.wide.u32 %part_step, %results, ${plan.sink_kernels.part_bytes};
JOIN_PARTS:
${join_stored()}\
    add.u64 %state_addr, %state_addr, %part_step;
    add.u32 %state_part, %state_part, 32;
    setp.lt.u32 %p, %state_part, %parts;
    @%p bra JOIN_PARTS;
JOIN_LANES:
    // ---- wait: all lanes have joined their parts
    bar.warp.sync 0xffffffff;
${rows.join_lanes(16)}\
${rows.join_lanes(8)}\
    // the first lanes of each warp pass their states to the first warp
    and.b32 %tmp0, %thread, 31;
    setp.lt.u32 %p, %tmp0, ${lanes};
    mad.lo.u32 %tmp0, %warp, ${lanes}, %tmp0;
    mad.lo.u32 %tmp0, %tmp0, ${plan.states.entry_bytes}, %joined;
% for n, (ptx_type, offset) in enumerate(plan.states.components):
    @%p st.shared.${ptx_type} [%tmp0+${offset}], ${plan.states.state[n][0]};
% endfor
    // ---- wait: the states of all warps are in shared memory
    bar.sync 0;
    setp.lt.and.u32 %p, %thread, ${lanes}, %in_bounds;
    @!%p bra DONE;
    mad.lo.u32 %tmp0, %thread, ${plan.states.entry_bytes}, %joined;
% for loads in plan.sink_kernels.other_states:
  % for ptx_type, register, offset in loads:
    ld.shared.${ptx_type} ${register}, [%tmp0+${offset}];
  % endfor
  % for line in plan.states.join(0):
    ${line}
  % endfor
% endfor
${end()}\
DONE:
    ret;
}
</%def>

<%def name="finish()">
    .reg .${plan.states.result_type} %reduced;
% for line in plan.states.finish("%reduced"):
    ${line}
% endfor
    mad.wide.u32 %state_addr, %result, ${plan.states.result_bytes}, %C;
    st.global.${plan.states.reduction.result} [%state_addr], %reduced;
</%def>

## Joins the state with the kept one; without a part, it is the first one that is kept. Positions are those of the whole result.
<%def name="keep()">
    .reg .b32 %first;
    ld.param.u64 %states, [kept];
    ld.param.u32 %first, [first];
    add.u64 %states, %states, %workspace;
% for line in plan.states.moved:
    ${line}
% endfor
    mad.wide.u32 %state_addr, %result, ${plan.states.entry_bytes}, %states;
    setp.eq.u32 %p, %parts, 0;
    @%p bra KEEP;
${join_stored()}\
KEEP:
${store()}\
</%def>

## Joins the state with the one at %state_addr.
<%def name="join_stored()">
% for n, (ptx_type, offset) in enumerate(plan.states.components):
    ld.global.${ptx_type} ${plan.states.other[n][0]}, [%state_addr+${offset}];
% endfor
% for line in plan.states.join(0):
    ${line}
% endfor
</%def>

<%def name="store()">
% for n, (ptx_type, offset) in enumerate(plan.states.components):
    st.global.${ptx_type} [%state_addr+${offset}], ${plan.states.state[n][0]};
% endfor
</%def>
