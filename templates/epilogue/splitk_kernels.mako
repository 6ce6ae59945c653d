## Auxiliary kernels over C: scale C by beta before red.global, or reduce the partial sums of the workspace. Each thread
## computes vectors of a row. The sink stores them: it declares and loads its scalars, and completes each vector.
<%namespace name="sink" file="/${context['plan'].problem.sink.template}"/>
<%namespace name="batch" file="/${context['plan'].batch.items}"/>
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%namespace name="c_addr" file="/${context['plan'].c.addressing.template}"/>
<%def name="entries()">
% for name in plan.c_kernels.names:
${entry(name)}\
% endfor
</%def>

<%def name="entry(name)">

// C = beta C${plan.reduction.sum_text}
.visible .entry ${plan.entry}_${name}(
% for line in plan.c_kernels.parameter_list.declarations:
    ${line}
% endfor
)
.maxntid ${plan.c_kernels.THREADS}, 1, 1
{
    .reg .b64 %C, %workspace, %c_addr, %partial_ptr, %slice_bytes, %tmp64, %tmp64b;
    .reg .b32 %M, %N, %ldc, %shift, %thread, %c_row, %c_col, %block_rows, %row_step, %tmp0, %slices, %slice;
    .reg .pred %in_bounds, %has_beta, %p;
${sink.declare_scalars()}\
    ${plan.epilogue.vector.declaration}
    ${plan.c.addend.declaration}
    ${plan.c.declaration}
% for line in plan.reducer.temporaries:
    ${line}
% endfor
    ld.param.u64 %C, [C];  ld.param.u64 %workspace, [W];
    cvta.to.global.u64 %C, %C;  cvta.to.global.u64 %workspace, %workspace;
    ld.param.u32 %M, [M];  ld.param.u32 %N, [N];  ld.param.u32 %ldc, [ldc];  ld.param.u32 %shift, [shift];
${sink.load_scalars()}\
${batch.registers()}\
% if plan.batch.active:
    mov.u32 %item, %ctaid.z;
${batch.c_address()}\
% endif
${sink.setup_slices()}\
${pdl.trigger_and_wait()}\
    mov.u32 %thread, %tid.x;
    // 2^shift threads along a row; each block loops over rows
    mov.u32 %tmp0, %ctaid.x;
    shl.b32 %tmp0, %tmp0, %shift;
    mov.u32 %c_col, 1;
    shl.b32 %c_col, %c_col, %shift;
    sub.u32 %c_col, %c_col, 1;
    and.b32 %c_col, %thread, %c_col;
    add.u32 %c_col, %c_col, %tmp0;
    mul.lo.u32 %c_col, %c_col, ${plan.c.vec};
    setp.lt.u32 %in_bounds, %c_col, %N;
    mov.u32 %block_rows, ${plan.c_kernels.THREADS};
    shr.u32 %block_rows, %block_rows, %shift;
    shr.u32 %c_row, %thread, %shift;
    mov.u32 %tmp0, %ctaid.y;
    mad.lo.u32 %c_row, %tmp0, %block_rows, %c_row;
    mov.u32 %row_step, %nctaid.y;
    mul.lo.u32 %row_step, %row_step, %block_rows;
    setp.lt.and.u32 %in_bounds, %c_row, %M, %in_bounds;
    @!%in_bounds bra DONE;
${sink.begin_slices()}\
ROW_LOOP:
${c_addr.element("%c_addr", "%c_row", "%c_col", plan.batch.c_base, "%ldc", plan.c.bytes)}\
% for r in plan.epilogue.stored:
    mov.${plan.arithmetic.type} ${r}, ${plan.reducer.identity};
% endfor
% if plan.reduction.stores_partials:
    mul.wide.u32 %tmp64, %c_row, %N;
${c_addr.column("%c_col")}\
    add.u64 %tmp64, %tmp64, %tmp64b;
    mad.lo.u64 %partial_ptr, %tmp64, ${plan.arithmetic.bytes}, %workspace;
    mul.wide.u32 %slice_bytes, %M, %N;
    mul.lo.u64 %slice_bytes, %slice_bytes, ${plan.arithmetic.bytes};
  % if plan.batch.active:
    cvt.u64.u32 %tmp64b, %item;
    mad.lo.u64 %partial_ptr, %slice_bytes, %tmp64b, %partial_ptr;
    cvt.u64.u32 %tmp64b, %items;
    mul.lo.u64 %slice_bytes, %slice_bytes, %tmp64b;
  % endif
    ld.param.u32 %slices, [slices];
    mov.u32 %slice, 0;
ADD_SLICE:
    ld.global.${plan.c.sums_type} ${plan.c.addend[:]}, [%partial_ptr];
  % for line in plan.joined_partials:
    ${line}
  % endfor
    add.u64 %partial_ptr, %partial_ptr, %slice_bytes;
    add.u32 %slice, %slice, 1;
    setp.lt.u32 %p, %slice, %slices;
    @%p bra ADD_SLICE;
% endif
${sink.store_slices()}\
    add.u32 %c_row, %c_row, %row_step;
    setp.lt.u32 %p, %c_row, %M;
    @%p bra ROW_LOOP;
DONE:
    ret;
}
</%def>
