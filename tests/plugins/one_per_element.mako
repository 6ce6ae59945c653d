## One thread per element of C: a loop over K, without shared memory.
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
    .reg .b64 %ptr_a, %ptr_b, %c_addr, %tmp64, %step_a, %step_b;
    .reg .b32 %element, %row, %col, %m, %n, %k, %ld, %block;
    .reg .f32 %sum, %elem_a, %elem_b, %alpha, %beta;
    .reg .pred %outside, %empty, %more, %has_beta;

    // ---- thread to element of C
    mov.u32 %block, %ctaid.x;
    mov.u32 %element, %tid.x;
    mad.lo.u32 %element, %block, ${plan.threads}, %element;
    ld.param.u32 %m, [M];  ld.param.u32 %n, [N];  ld.param.u32 %k, [K];
    div.u32 %row, %element, %n;
    mul.lo.u32 %col, %row, %n;
    sub.u32 %col, %element, %col;
    setp.ge.u32 %outside, %row, %m;
    @%outside bra DONE;
% for x, place, contiguous in (("a", "row", plan.a_kmajor), ("b", "col", plan.b_kmajor)):

    // ---- ${x.upper()}: the first element along K, and the distance to the next
    ld.param.u64 %ptr_${x}, [${x.upper()}];
    cvta.to.global.u64 %ptr_${x}, %ptr_${x};
    ld.param.u32 %ld, [ld${x}];
% if contiguous:
    mul.wide.u32 %tmp64, %${place}, %ld;
    mad.lo.u64 %ptr_${x}, %tmp64, 4, %ptr_${x};
    mov.u64 %step_${x}, 4;
% else:
    mad.wide.u32 %ptr_${x}, %${place}, 4, %ptr_${x};
    mul.wide.u32 %step_${x}, %ld, 4;
% endif
% endfor

    // ---- K loop
    mov.f32 %sum, 0f00000000;
    setp.eq.u32 %empty, %k, 0;
    @%empty bra STORE;
K_LOOP:
    ld.global.nc.f32 %elem_a, [%ptr_a];
    ld.global.nc.f32 %elem_b, [%ptr_b];
    fma.rn.f32 %sum, %elem_a, %elem_b, %sum;
    add.u64 %ptr_a, %ptr_a, %step_a;
    add.u64 %ptr_b, %ptr_b, %step_b;
    sub.u32 %k, %k, 1;
    setp.ne.u32 %more, %k, 0;
    @%more bra K_LOOP;

    // ---- epilogue: store C
STORE:
    ld.param.u64 %c_addr, [C];
    cvta.to.global.u64 %c_addr, %c_addr;
    ld.param.u32 %ld, [ldc];
    mul.wide.u32 %tmp64, %row, %ld;
    mad.lo.u64 %c_addr, %tmp64, 4, %c_addr;
    mad.wide.u32 %c_addr, %col, 4, %c_addr;
    ld.param.f32 %alpha, [alpha];  ld.param.f32 %beta, [beta];
    mul.rn.f32 %sum, %sum, %alpha;
    setp.neu.f32 %has_beta, %beta, 0f00000000;
    @%has_beta ld.global.f32 %elem_a, [%c_addr];
    @%has_beta fma.rn.f32 %sum, %elem_a, %beta, %sum;
    st.global.f32 [%c_addr], %sum;
DONE:
    ret;
}
