## Values in another order: one element per thread.
<%inherit file="module.mako"/>\
<% g = plan.preparation %>\
.visible .entry gather_values(
% for line in g.parameters.declarations:
    ${line}
% endfor
)
.maxntid ${g.threads}, 1, 1
{
    .reg .b64 %values, %places, %values_to, %ptr;
    .reg .b32 %count, %nonzero, %place;
    .reg .b${g.bits} %value;
    .reg .pred %p;
% for name in ("values", "places", "values_to"):
    ld.param.u64 %${name}, [${name}];  cvta.to.global.u64 %${name}, %${name};
% endfor
    ld.param.u32 %count, [nnz];
    mov.u32 %nonzero, %ctaid.x;
    mov.u32 %place, %tid.x;
    mad.lo.u32 %nonzero, %nonzero, ${g.threads}, %place;
    setp.ge.u32 %p, %nonzero, %count;
    @%p bra DONE;
    mad.wide.u32 %ptr, %nonzero, 4, %places;
    ld.global.u32 %place, [%ptr];
    mad.wide.u32 %ptr, %place, ${g.size}, %values;
    ld.global.b${g.bits} %value, [%ptr];
    mad.wide.u32 %ptr, %nonzero, ${g.size}, %values_to;
    st.global.b${g.bits} [%ptr], %value;
DONE:
    ret;
}
