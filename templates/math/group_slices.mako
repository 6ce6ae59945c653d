## Each slice of the pairs has blocks of its own. Another kernel joins the slices' results and numbers of rejected keys in their
## order.
## %count: the number of rejected keys of the slice; %count_addr: the address at which they are counted.
<%def name="rejected(pairs)">
    .reg .b32 %slice_number;
    ld.param.u64 %count_addr, [W];
    cvta.to.global.u64 %count_addr, %count_addr;
    ld.param.u64 %count, [counts];
    add.u64 %count_addr, %count_addr, %count;
    mov.u32 %slice_number, %ctaid.y;
    mad.wide.u32 %count_addr, %slice_number, 8, %count_addr;
    cvt.u64.u32 %count, %rejected_keys;
</%def>

## %out: the result of the slice in the workspace.
<%def name="find_result()">
    {
    .reg .b64 %elements, %number;
    .reg .b32 %slice_number;
    ld.param.u64 %out, [W];
    cvta.to.global.u64 %out, %out;
    ld.param.u64 %elements, [elements];
    mov.u32 %slice_number, %ctaid.y;
    cvt.u64.u32 %number, %slice_number;
    mul.lo.u64 %elements, %elements, %number;
    mad.lo.u64 %out, %elements, ${plan.mainloop.held}, %out;
    }
</%def>

## The kernel that joins the results of slices.
<%def name="join_kernel()">
<% own = plan.mainloop %>\

// C = the results of all slices, joined in their order
.visible .entry ${plan.entry}_join(
% for line in plan.joins.rows.declarations:
    ${line}
% endfor
)
.maxntid ${plan.joins.THREADS}, 1, 1
{
    .reg .b64 %partials, %C, %rejected, %elements, %counts, %number, %step, %partial_addr, %total, %more;
    .reg .b32 %slices, %pairs, %left, %thread, %tmp0;
    .reg .${own.ptx_type} %sum, %addend<${plan.joins.AT_ONCE}>;
    .reg .pred %p;
% for line in plan.groups.declarations:
    ${line}
% endfor
    ld.param.u64 %partials, [W];  cvta.to.global.u64 %partials, %partials;
    ld.param.u64 %C, [C];  cvta.to.global.u64 %C, %C;
    ld.param.u64 %elements, [elements];
    ld.param.u32 %slices, [slices];
    mov.u32 %tmp0, %ctaid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %thread, %tmp0, ${plan.joins.THREADS}, %thread;
    cvt.u64.u32 %number, %thread;
    mov.u32 %tmp0, %nctaid.x;
    mul.wide.u32 %step, %tmp0, ${plan.joins.THREADS};
NEXT:
    setp.ge.u64 %p, %number, %elements;
    @%p bra JOINED;
    mad.lo.u64 %partial_addr, %number, ${own.held}, %partials;
    mov.${own.ptx_type} %sum, ${plan.groups.identity};
    mov.b32 %left, %slices;
ADD:
% for n in range(plan.joins.AT_ONCE):
    mov.${own.ptx_type} %addend${n}, ${plan.groups.identity};
    setp.gt.u32 %p, %left, ${n};
    @%p ld.global.${own.ptx_type} %addend${n}, [%partial_addr];
    mad.lo.u64 %partial_addr, %elements, ${own.held}, %partial_addr;
% endfor
% for n in range(plan.joins.AT_ONCE):
  % for line in plan.groups.join("%sum", f"%addend{n}"):
    ${line}
  % endfor
% endfor
    setp.gt.u32 %p, %left, ${plan.joins.AT_ONCE};
    sub.u32 %left, %left, ${plan.joins.AT_ONCE};
    @%p bra ADD;
    mad.lo.u64 %partial_addr, %number, ${own.held}, %C;
    st.global.${own.ptx_type} [%partial_addr], %sum;
    add.u64 %number, %number, %step;
    bra NEXT;
JOINED:
    setp.ne.u32 %p, %thread, 0;
    @%p bra DONE;
    ld.param.u64 %rejected, [rejected];  cvta.to.global.u64 %rejected, %rejected;
    ld.param.u64 %counts, [counts];
    ld.param.u32 %pairs, [pairs];
    add.u64 %partial_addr, %partials, %counts;
    mov.u64 %total, 0;
    mov.b32 %left, %slices;
COUNT:
    ld.global.u64 %more, [%partial_addr];
    add.u64 %total, %total, %more;
    add.u64 %partial_addr, %partial_addr, 8;
    sub.u32 %left, %left, 1;
    setp.gt.u32 %p, %left, 0;
    @%p bra COUNT;
    cvt.u64.u32 %more, %pairs;
    mul.lo.u64 %total, %total, %more;
    st.global.u64 [%rejected], %total;
DONE:
    ret;
}
</%def>
