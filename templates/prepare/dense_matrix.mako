## Stores the nonzeros of a sparse matrix into a dense matrix of zeros. Each row has one warp, a long row several.
<%inherit file="module.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<% dense = plan.preparation %>\
.visible .entry ${dense.entry}(
% for line in dense.parameters.declarations:
    ${line}
% endfor
)
.maxntid ${dense.threads}, 1, 1
{
    .reg .b64 %indptr, %indices, %values, %A, %ptr_index, %ptr_value, %ptr_a, %row_a;
    .reg .b32 %M, %lda, %thread, %row, %warp, %block_y, %step, %next, %end, %column;
    .reg .b${dense.bits} %value;
    .reg .pred %p;

    ld.param.u64 %indptr, [indptr];  cvta.to.global.u64 %indptr, %indptr;
    ld.param.u64 %indices, [indices];  cvta.to.global.u64 %indices, %indices;
    ld.param.u64 %values, [values];  cvta.to.global.u64 %values, %values;
    ld.param.u64 %A, [A];  cvta.to.global.u64 %A, %A;
    ld.param.u32 %M, [M];  ld.param.u32 %lda, [lda];
${ptx.banner("warp to row, lane to nonzeros; the blocks along y divide a row")}\
    mov.u32 %thread, %tid.x;
    mov.u32 %row, %ctaid.x;
    shr.u32 %warp, %thread, 5;
    mad.lo.u32 %row, %row, ${dense.warps}, %warp;
    setp.ge.u32 %p, %row, %M;
    @%p bra DONE;
    mad.wide.u32 %ptr_index, %row, 4, %indptr;
    ld.global.nc.u32 %next, [%ptr_index];
    ld.global.nc.u32 %end, [%ptr_index+4];
    and.b32 %thread, %thread, 31;
    add.u32 %next, %next, %thread;
    mov.u32 %block_y, %ctaid.y;
    mad.lo.u32 %next, %block_y, 32, %next;
    mov.u32 %step, %nctaid.y;
    shl.b32 %step, %step, 5;
    mul.wide.u32 %row_a, %row, %lda;
    mad.lo.u64 %row_a, %row_a, ${dense.size}, %A;
    setp.ge.u32 %p, %next, %end;
    @%p bra DONE;
${ptx.banner("loop over nonzeros")}\
STORE_LOOP:
    mad.wide.u32 %ptr_index, %next, 4, %indices;
    ld.global.nc.u32 %column, [%ptr_index];
    mad.wide.u32 %ptr_value, %next, ${dense.size}, %values;
    ld.global.nc.b${dense.bits} %value, [%ptr_value];
    mad.wide.u32 %ptr_a, %column, ${dense.size}, %row_a;
    st.global.b${dense.bits} [%ptr_a], %value;
    add.u32 %next, %next, %step;
    setp.lt.u32 %p, %next, %end;
    @%p bra STORE_LOOP;
DONE:
    ret;
}
