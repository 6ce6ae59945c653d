## One warp lists the rows that are not empty.
% for line in header_lines:
// ${line}
% endfor
.version ${plan.ptx_version}
.target ${plan.target}
.address_size 64

.visible .entry list_rows(
% for line in plan.preparation.parameters.declarations:
    ${line}
% endfor
)
.maxntid 32, 1, 1
{
    .reg .b64 %list, %indptr, %sizes, %at;
    .reg .b32 %lane, %rows, %base, %row, %begin, %end, %found, %before, %place, %listed;
    .reg .pred %inside, %filled, %more, %first;

    ld.param.u64 %sizes, [sizes];  cvta.to.global.u64 %sizes, %sizes;
    ld.param.u64 %list, [listed];  ld.param.u64 %indptr, [indptr];  ld.param.u32 %rows, [rows];
    cvta.to.global.u64 %list, %list;
    cvta.to.global.u64 %indptr, %indptr;
    mov.u32 %lane, %tid.x;
    mov.b32 %base, 0;
    mov.b32 %listed, 0;

    // ---- loop over 32 rows
LIST_LOOP:
    add.u32 %row, %base, %lane;
    mov.b32 %begin, 0;
    mov.b32 %end, 0;
    setp.lt.u32 %inside, %row, %rows;
    mad.wide.u32 %at, %row, 4, %indptr;
    @%inside ld.global.u32 %begin, [%at];
    @%inside ld.global.u32 %end, [%at+4];
    setp.ne.u32 %filled, %begin, %end;
    vote.sync.ballot.b32 %found, %filled, 0xffffffff;
    mov.u32 %before, %lanemask_lt;
    and.b32 %before, %before, %found;
    popc.b32 %place, %before;
    add.u32 %place, %place, %listed;
    mad.wide.u32 %at, %place, 4, %list;
    @%filled st.global.u32 [%at+4], %row;
    popc.b32 %found, %found;
    add.u32 %listed, %listed, %found;
    add.u32 %base, %base, 32;
    setp.lt.u32 %more, %base, %rows;
    @%more bra LIST_LOOP;

    setp.eq.u32 %first, %lane, 0;
    @%first st.global.u32 [%list], %listed;
    @%first st.global.u32 [%sizes], %listed;
    ret;
}
