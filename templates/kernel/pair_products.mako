## For each pair (i, j) of a list, the sum over k of the step of A[i,k] and B[j,k], which the sink takes.
<%inherit file="/prepare/module.mako"/>\
<%namespace name="ptx" file="/ptx/banner.mako"/>\
<%namespace name="sink" file="/${context['plan'].problem.sink.template}"/>\
<% a, b, part = plan.tiles %>\
<% total = plan.epilogue.vector[0] %>\
.visible .entry ${plan.entry}(
% for line in plan.rows.declarations:
    ${line}
% endfor
)
.maxntid ${plan.threads}, 1, 1
{
    .reg .b64 %A, %B, %pairs_i, %pairs_j, %pairs, %room, %first, %next, %own, %row_a, %row_b, %tmp64;
    .reg .b32 %M, %N, %length, %whole, %lda, %ldb, %thread, %lane, %batch, %warp, %warps, %pair_lane, %pair_i, %pair_j, %k, %c_row, %c_col, %tmp0;
    .reg .f32 %partner;
    .reg .pred %p, %exists, %inside;
    ${a.declaration}
    ${b.declaration}
    ${part.declaration}
    ${plan.epilogue.vector.declaration}
% for line in plan.step_temporaries:
    ${line}
% endfor
${sink.declare_scalars()}\
    ld.param.u64 %A, [A];  ld.param.u64 %B, [B];
    ld.param.u64 %pairs_i, [pairs_i];  ld.param.u64 %pairs_j, [pairs_j];  ld.param.u64 %tmp64, [pair_count];
    ld.param.u64 %room, [pair_room];
    cvta.to.global.u64 %A, %A;  cvta.to.global.u64 %B, %B;
    cvta.to.global.u64 %pairs_i, %pairs_i;  cvta.to.global.u64 %pairs_j, %pairs_j;
    cvta.to.global.u64 %tmp64, %tmp64;
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];  ld.param.u32 %length, [K];
    ld.param.u32 %lda, [lda];  ld.param.u32 %ldb, [ldb];
${sink.load_scalars()}\
${sink.setup_slices()}\
${ptx.banner("%batch: pairs of a warp at once, as many as share the list among all warps, at most 32; %first: its first")}\
    ld.global.u64 %pairs, [%tmp64];
    setp.gt.u64 %p, %pairs, %room;
    @%p bra.uni DONE;
    mov.u32 %thread, %tid.x;
    and.b32 %lane, %thread, 31;
    mov.u32 %warps, %nctaid.x;
    mul.lo.u32 %warps, %warps, ${plan.warps};
    cvt.u64.u32 %next, %warps;
    add.u64 %tmp64, %pairs, %next;
    sub.u64 %tmp64, %tmp64, 1;
    div.u64 %tmp64, %tmp64, %next;
    min.u64 %tmp64, %tmp64, 32;
    max.u64 %tmp64, %tmp64, 1;
    cvt.u32.u64 %batch, %tmp64;
    mul.lo.u64 %next, %next, %tmp64;
    mov.u32 %tmp0, %ctaid.x;
    shr.u32 %warp, %thread, 5;
    mad.lo.u32 %tmp0, %tmp0, ${plan.warps}, %warp;
    mul.wide.u32 %first, %tmp0, %batch;
    and.b32 %whole, %length, ${-plan.vec};
${sink.begin_slices()}\
BATCH_LOOP:
    setp.ge.u64 %p, %first, %pairs;
    @%p bra.uni DONE;
${ptx.banner("%c_row, %c_col: the pair of this lane")}\
    cvt.u64.u32 %own, %lane;
    add.u64 %own, %own, %first;
    setp.lt.u64 %exists, %own, %pairs;
    setp.lt.and.u32 %exists, %lane, %batch, %exists;
    mov.u32 %c_row, 0;
    mov.u32 %c_col, 0;
    mov.f32 ${total}, 0f00000000;
    shl.b64 %own, %own, 2;
    add.u64 %tmp64, %pairs_i, %own;
    @%exists ld.global.u32 %c_row, [%tmp64];
    add.u64 %tmp64, %pairs_j, %own;
    @%exists ld.global.u32 %c_col, [%tmp64];
    mov.u32 %pair_lane, 0;
PAIR_LOOP:
${ptx.banner("the pair of lane %pair_lane: each lane adds a part of k")}\
    shfl.sync.idx.b32 %pair_i, %c_row, %pair_lane, 31, 0xffffffff;
    shfl.sync.idx.b32 %pair_j, %c_col, %pair_lane, 31, 0xffffffff;
    mul.wide.u32 %row_a, %pair_i, %lda;
    mad.lo.u64 %row_a, %row_a, 4, %A;
    mul.wide.u32 %row_b, %pair_j, %ldb;
    mad.lo.u64 %row_b, %row_b, 4, %B;
    mul.lo.u32 %k, %lane, ${plan.vec};
% for n in range(plan.vec):
    mov.f32 ${part[n]}, 0f00000000;
% endfor
K_LOOP:
    setp.lt.u32 %inside, %k, %whole;
    @!%inside bra K_DONE;
% for u in range(plan.unrolled):
  % for n in range(plan.vec):
    mov.f32 ${a[u, n]}, 0f00000000;
    mov.f32 ${b[u, n]}, 0f00000000;
  % endfor
    mad.wide.u32 %tmp64, %k, 4, %row_a;
    @%inside ld.global.nc.${plan.access_type} ${a[u, :]}, [%tmp64];
    mad.wide.u32 %tmp64, %k, 4, %row_b;
    @%inside ld.global.nc.${plan.access_type} ${b[u, :]}, [%tmp64];
    add.u32 %k, %k, ${plan.warp_elements};
    setp.lt.u32 %inside, %k, %whole;
% endfor
% for lines in plan.step_lines:
  % for line in lines:
    ${line}
  % endfor
% endfor
    bra K_LOOP;
K_DONE:
% if plan.vec > 1:
    // the elements after the last whole vector
    add.u32 %k, %whole, %lane;
    setp.lt.u32 %inside, %k, %length;
    mov.f32 ${a[0, 0]}, 0f00000000;
    mov.f32 ${b[0, 0]}, 0f00000000;
    mad.wide.u32 %tmp64, %k, 4, %row_a;
    @%inside ld.global.nc.f32 ${a[0, 0]}, [%tmp64];
    mad.wide.u32 %tmp64, %k, 4, %row_b;
    @%inside ld.global.nc.f32 ${b[0, 0]}, [%tmp64];
  % for line in plan.last_step:
    ${line}
  % endfor
% endif
% for n in range(1, plan.vec):
    add.rn.f32 ${part[0]}, ${part[0]}, ${part[n]};
% endfor
% for distance in (16, 8, 4, 2, 1):
    shfl.sync.bfly.b32 %partner, ${part[0]}, ${distance}, 31, 0xffffffff;
    add.rn.f32 ${part[0]}, ${part[0]}, %partner;
% endfor
    setp.eq.u32 %p, %lane, %pair_lane;
    @%p mov.f32 ${total}, ${part[0]};
    add.u32 %pair_lane, %pair_lane, 1;
    cvt.u64.u32 %tmp64, %pair_lane;
    add.u64 %tmp64, %tmp64, %first;
    setp.lt.u64 %p, %tmp64, %pairs;
    setp.lt.and.u32 %p, %pair_lane, %batch, %p;
    @%p bra.uni PAIR_LOOP;
${ptx.banner("the lanes that have a pair give its sum to the sink")}\
    @!%exists bra NO_PAIR;
${sink.store_slices()}\
NO_PAIR:
    add.u64 %first, %first, %next;
    bra.uni BATCH_LOOP;
DONE:
    ret;
}
