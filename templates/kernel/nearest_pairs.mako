## For each pair (i, j) of a list, the sum over k of the step of A[i,k] and B[j,k]. For each row, the best of these sums.
<%inherit file="/prepare/module.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="values" file="/epilogue/result_values.mako"/>\
<% a, b = plan.tiles %>\
.visible .entry ${plan.entry}(
% for line in plan.rows.declarations:
    ${line}
% endfor
)
.maxntid ${plan.threads}, 1, 1
{
    .reg .b64 %A, %B, %pairs_i, %pairs_j, %pairs, %records, %room, %own, %next, %row_a, %row_b, %record, %tmp64;
    .reg .b32 %length, %whole, %lda, %ldb, %thread, %k, %c_row, %c_col, %key, %sign, %tmp0;
    .reg .f32 %total;
    .reg .pred %p, %nan;
    ${a.declaration}
    ${b.declaration}
% for line in plan.step_temporaries:
    ${line}
% endfor
${values.declare_scalars()}\
    ld.param.u64 %A, [A];  ld.param.u64 %B, [B];
    ld.param.u64 %pairs_i, [pairs_i];  ld.param.u64 %pairs_j, [pairs_j];  ld.param.u64 %tmp64, [pair_count];
    ld.param.u64 %records, [row_records];  ld.param.u64 %room, [pair_room];
    cvta.to.global.u64 %A, %A;  cvta.to.global.u64 %B, %B;
    cvta.to.global.u64 %pairs_i, %pairs_i;  cvta.to.global.u64 %pairs_j, %pairs_j;
    cvta.to.global.u64 %records, %records;  cvta.to.global.u64 %tmp64, %tmp64;
    ld.param.u32 %length, [K];  ld.param.u32 %lda, [lda];  ld.param.u32 %ldb, [ldb];
${values.load_scalars()}\
${values.setup()}\
    ld.global.u64 %pairs, [%tmp64];
    setp.gt.u64 %p, %pairs, %room;
    @%p bra.uni DONE;
    and.b32 %whole, %length, ${plan.step_mask};
    mov.u32 %thread, %tid.x;
    mov.u32 %tmp0, %ctaid.x;
    mad.lo.u32 %tmp0, %tmp0, ${plan.threads}, %thread;
    cvt.u64.u32 %own, %tmp0;
    mov.u32 %tmp0, %nctaid.x;
    mul.wide.u32 %next, %tmp0, ${plan.threads};
NEXT_PAIR:
    setp.ge.u64 %p, %own, %pairs;
    @%p bra DONE;
    shl.b64 %tmp64, %own, 2;
    add.u64 %row_a, %pairs_i, %tmp64;
    add.u64 %row_b, %pairs_j, %tmp64;
    ld.global.u32 %c_row, [%row_a];
    ld.global.u32 %c_col, [%row_b];
    mul.wide.u32 %row_a, %c_row, %lda;
    mad.lo.u64 %row_a, %row_a, 4, %A;
    mul.wide.u32 %row_b, %c_col, %ldb;
    mad.lo.u64 %row_b, %row_b, 4, %B;
    mov.f32 %total, 0f00000000;
    mov.u32 %k, 0;
WHOLE_STEPS:
    setp.ge.u32 %p, %k, %whole;
    @%p bra LAST_STEPS;
% for of_a, of_b, offset in plan.loads:
    ld.global.nc.${plan.access_type} ${of_a}, [%row_a+${offset}];
    ld.global.nc.${plan.access_type} ${of_b}, [%row_b+${offset}];
% endfor
% for line in plan.step_lines:
    ${line}
% endfor
    add.u64 %row_a, %row_a, ${plan.step_bytes};
    add.u64 %row_b, %row_b, ${plan.step_bytes};
    add.u32 %k, %k, ${plan.step_elements};
    bra WHOLE_STEPS;
LAST_STEPS:
    setp.ge.u32 %p, %k, %length;
    @%p bra REDUCED;
    ld.global.nc.f32 ${a[0, 0]}, [%row_a];
    ld.global.nc.f32 ${b[0, 0]}, [%row_b];
% for line in plan.last_step:
    ${line}
% endfor
    add.u64 %row_a, %row_a, 4;
    add.u64 %row_b, %row_b, 4;
    add.u32 %k, %k, 1;
    bra LAST_STEPS;
REDUCED:
${ptx.banner("%key: the value as an unsigned integer, greater ones are better, NaN is the best; zeros are equal")}\
    {
${values.declare()}\
${values.compute(["%total"], "", ("%c_row", 0), ("%c_col", 0))}\
    setp.nan.f32 %nan, ${plan.value}, ${plan.value};
    add.rn.f32 ${plan.value}, ${plan.value}, 0f00000000;
    mov.b32 %key, ${plan.value};
    }
    shr.s32 %sign, %key, 31;
    or.b32 %sign, %sign, 0x80000000;
    xor.b32 %key, %key, %sign;
% if plan.least:
    not.b32 %key, %key;
% endif
    @%nan mov.b32 %key, 0xffffffff;
    not.b32 %tmp0, %c_col;
    mov.b64 %record, {%tmp0, %key};
    mad.wide.u32 %tmp64, %c_row, 8, %records;
    red.global.max.u64 [%tmp64], %record;
    add.u64 %own, %own, %next;
    bra NEXT_PAIR;
DONE:
    ret;
}

.visible .entry best_rows(
% for line in plan.best_parameters.declarations:
    ${line}
% endfor
)
.maxntid ${plan.threads}, 1, 1
{
    .reg .b64 %C, %records, %tmp64;
    .reg .b32 %M, %thread, %row, %index, %key, %sign, %tmp0;
    .reg .pred %p;
    ld.param.u64 %records, [row_records];  ld.param.u64 %C, [C];  ld.param.u32 %M, [M];
    cvta.to.global.u64 %records, %records;  cvta.to.global.u64 %C, %C;
    mov.u32 %thread, %tid.x;
    mov.u32 %tmp0, %ctaid.x;
    mad.lo.u32 %row, %tmp0, ${plan.threads}, %thread;
    setp.ge.u32 %p, %row, %M;
    @%p bra DONE;
    mad.wide.u32 %tmp64, %row, 8, %records;
    ld.global.v2.u32 {%index, %key}, [%tmp64];
    mad.wide.u32 %tmp64, %row, 4, %C;
% if plan.stores_index:
    not.b32 %index, %index;
    st.global.u32 [%tmp64], %index;
% else:
  % if plan.least:
    not.b32 %key, %key;
  % endif
    // ---- the value of a key: its first bit is that of a number which is not negative
    shr.s32 %sign, %key, 31;
    not.b32 %sign, %sign;
    or.b32 %sign, %sign, 0x80000000;
    xor.b32 %key, %key, %sign;
    st.global.u32 [%tmp64], %key;
% endif
DONE:
    ret;
}
