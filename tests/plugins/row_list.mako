## ${plan.lanes} lanes of a warp multiply a row of the list.
% for line in header_lines:
// ${line}
% endfor
.version ${plan.ptx_version}
.target ${plan.target}
.address_size 64

.visible .entry ${plan.entry}(
% for line in plan.parameters.rows.declarations:
    ${line}
% endfor
)
.maxntid ${plan.threads}, 1, 1
{
    .reg .b64 %list, %values, %x, %sums, %indptr, %indices, %numbers, %count, %at;
    .reg .b32 %block, %thread, %lane, %place, %listed, %row, %begin, %end, %column;
    .reg .f32 %sum, %elem_a, %elem_x, %other;
    .reg .pred %inside, %more, %first, %stores;

% for name, register in (("listed", "list"), *((name, name) for name in plan.problem.arrays)):
    ld.param.u64 %${register}, [${name}];
    cvta.to.global.u64 %${register}, %${register};
% endfor

    // ---- thread to row of the list
    mov.u32 %block, %ctaid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %thread, %block, ${plan.threads}, %thread;
    div.u32 %place, %thread, ${plan.lanes};
    rem.u32 %lane, %thread, ${plan.lanes};
    ld.global.u32 %listed, [%list];
    setp.eq.u32 %first, %thread, 0;
    @%first st.global.u32 [%count], %listed;
    mov.b32 %row, 0;
    mov.b32 %begin, 0;
    mov.b32 %end, 0;
    setp.lt.u32 %inside, %place, %listed;
    mad.wide.u32 %at, %place, 4, %list;
    @%inside ld.global.u32 %row, [%at+4];
    mad.wide.u32 %at, %row, 4, %indptr;
    @%inside ld.global.u32 %begin, [%at];
    @%inside ld.global.u32 %end, [%at+4];

    // ---- loop over the nonzeros of the row
    mov.f32 %sum, 0f00000000;
    add.u32 %begin, %begin, %lane;
ROW_LOOP:
    setp.lt.u32 %more, %begin, %end;
    @!%more bra ADD_LANES;
    mad.wide.u32 %at, %begin, 4, %indices;
    ld.global.u32 %column, [%at];
    mad.wide.u32 %at, %column, 4, %x;
    ld.global.f32 %elem_x, [%at];
    mad.wide.u32 %at, %begin, 4, %values;
    ld.global.f32 %elem_a, [%at];
    fma.rn.f32 %sum, %elem_a, %elem_x, %sum;
    add.u32 %begin, %begin, ${plan.lanes};
    bra ROW_LOOP;
ADD_LANES:
% for distance in plan.distances:
    shfl.sync.bfly.b32 %other, %sum, ${distance}, 31, 0xffffffff;
    add.rn.f32 %sum, %sum, %other;
% endfor

    // ---- the first lane stores the row
    setp.eq.u32 %stores, %lane, 0;
    and.pred %stores, %stores, %inside;
    mad.wide.u32 %at, %place, 4, %numbers;
    @%stores st.global.u32 [%at], %row;
    mad.wide.u32 %at, %place, 4, %sums;
    @%stores st.global.f32 [%at], %sum;
    ret;
}
