## For each nonzero (i, j) of a sparse matrix in CSR, the place of (j, i). The columns of every row must increase. One nonzero
## per thread.
<%inherit file="module.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="search" file="first_place.mako"/>\
<% s = plan.preparation %>\
.visible .entry symmetric_places(
% for line in s.parameters.declarations:
    ${line}
% endfor
)
.maxntid ${s.threads}, 1, 1
{
    .reg .b64 %indptr, %indices, %places, %fault, %ptr;
    .reg .b32 %M, %count, %nonzero, %wanted, %row, %column, %low, %high, %end, %middle, %found;
    .reg .pred %p, %below;
% for name in ("indptr", "indices", "places", "fault"):
    ld.param.u64 %${name}, [${name}];  cvta.to.global.u64 %${name}, %${name};
% endfor
    ld.param.u32 %M, [M];  ld.param.u32 %count, [nnz];
    mov.u32 %nonzero, %ctaid.x;
    mov.u32 %found, %tid.x;
    mad.lo.u32 %nonzero, %nonzero, ${s.threads}, %found;
    setp.ge.u32 %p, %nonzero, %count;
    @%p bra DONE;
${ptx.banner("%row: the one before the first that begins after the nonzero")}\
    mov.b32 %low, 0;
    mov.u32 %high, %M;
    mov.u32 %wanted, %nonzero;
${search.first_place("indptr", "ROW", "le")}\
    sub.u32 %row, %low, 1;
${ptx.banner("%low: the first nonzero of row j whose column is not below i")}\
    mad.wide.u32 %ptr, %nonzero, 4, %indices;
    ld.global.u32 %column, [%ptr];
    mad.wide.u32 %ptr, %column, 4, %indptr;
    ld.global.u32 %low, [%ptr];
    ld.global.u32 %end, [%ptr+4];
    mov.u32 %high, %end;
    mov.u32 %wanted, %row;
${search.first_place("indices", "PLACE", "lt")}\
    mov.u32 %found, 0xffffffff;
    setp.lt.u32 %p, %low, %end;
    mad.wide.u32 %ptr, %low, 4, %indices;
    @%p ld.global.u32 %found, [%ptr];
    mad.wide.u32 %ptr, %nonzero, 4, %places;
    st.global.u32 [%ptr], %low;
    // the least nonzero without its mirror image has the greatest number
    setp.ne.u32 %p, %found, %row;
    sub.u32 %found, %count, %nonzero;
    @%p red.global.max.u32 [%fault], %found;
DONE:
    ret;
}
