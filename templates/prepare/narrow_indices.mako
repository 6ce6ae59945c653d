## Converts row pointers or columns of 64 bits to 32 bits: one index per thread.
<%inherit file="module.mako"/>\
.visible .entry narrow_indices(
% for line in plan.preparation.parameters.declarations:
    ${line}
% endfor
)
.maxntid ${plan.preparation.threads}, 1, 1
{
    .reg .b64 %wide, %narrow, %count, %place, %pointer;
    .reg .b32 %thread, %block, %value;
    .reg .pred %p;
    ld.param.u64 %wide, [wide];  cvta.to.global.u64 %wide, %wide;
    ld.param.u64 %narrow, [narrow];  cvta.to.global.u64 %narrow, %narrow;
    ld.param.u64 %count, [count];
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    mul.wide.u32 %place, %block, ${plan.preparation.threads};
    cvt.u64.u32 %pointer, %thread;
    add.u64 %place, %place, %pointer;
    setp.ge.u64 %p, %place, %count;
    @%p bra DONE;
    mad.lo.u64 %pointer, %place, 8, %wide;
    ld.global.u32 %value, [%pointer];
    mad.lo.u64 %pointer, %place, 4, %narrow;
    st.global.u32 [%pointer], %value;
DONE:
    ret;
}
