## Packs operands whose rows are too unaligned for wide accesses: an auxiliary kernel copies them to the workspace, to rows
## that are padded with zeros to multiples of 128 bytes.
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%def name="operand_addresses()">
% for x in plan.packing.names:
    // ${x.upper()}: the address of its packed copy
    ld.param.u32 %tmp0, [copy_offset128_${x}];
    mad.wide.u32 %${x.upper()}, %tmp0, 128, %workspace;
% endfor
</%def>

<%def name="entries()">

// C = A B needs ${" and ".join(x.upper() for x in plan.packing.names)} with rows of a multiple of 128 bytes: each thread copies 16 bytes
.visible .entry ${plan.entry}_repack(
% for line in plan.packing.parameter_list.declarations:
    ${line}
% endfor
)
.maxntid ${plan.packing.THREADS}, 1, 1
{
    .reg .b64 %src, %dst, %workspace, %tmp64, %tmp64b;
    .reg .b32 %rows, %columns, %ld, %pitch, %padded_rows, %dst_row128, %operand, %chunk, %row, %col, %tmp0, %tmp1;
    .reg .pred %is_operand, %in_rows, %in_bounds;
% if plan.batch.active:
    .reg .b64 %batch_stride;
    .reg .b32 %copy_rows128, %items;
% endif
    ${plan.packing.elements.declaration}
    ${plan.packing.words.declaration}
    ld.param.u64 %workspace, [W];
    cvta.to.global.u64 %workspace, %workspace;
${pdl.trigger_and_wait()}\
    mov.u32 %operand, %ctaid.y;
% for n, x in enumerate(plan.packing.names):
    setp.eq.u32 %is_operand, %operand, ${n};
    @%is_operand ld.param.u64 %src, [${x.upper()}];
    @%is_operand ld.param.u32 %rows, [rows_${x}];
    @%is_operand ld.param.u32 %columns, [columns_${x}];
    @%is_operand ld.param.u32 %ld, [ld_${x}];
    @%is_operand ld.param.u32 %pitch, [pitch_${x}];
    @%is_operand ld.param.u32 %padded_rows, [padded_rows_${x}];
    @%is_operand ld.param.u32 %dst_row128, [copy_offset128_${x}];
% if plan.batch.active:
    @%is_operand ld.param.u64 %batch_stride, [batch_stride_${x}];
    @%is_operand ld.param.u32 %copy_rows128, [copy_item128_${x}];
    @%is_operand ld.param.u32 %items, [items_${x}];
% endif
% endfor
    cvta.to.global.u64 %src, %src;
% if plan.batch.active:
    // the batch item; exit if all items share one matrix
    mov.u32 %tmp0, %ctaid.z;
    setp.ge.u32 %in_bounds, %tmp0, %items;
    @%in_bounds bra DONE;
    mul.wide.u32 %tmp64, %copy_rows128, %tmp0;
    mad.lo.u64 %workspace, %tmp64, 128, %workspace;
    ld.param.u32 %tmp1, [first_item];
    add.u32 %tmp0, %tmp0, %tmp1;
    cvt.u64.u32 %tmp64, %tmp0;
    mad.lo.u64 %src, %tmp64, %batch_stride, %src;
% endif
    // chunk %chunk of 16 bytes of the copy: its row and column
    mov.u32 %chunk, %ctaid.x;
    mov.u32 %tmp0, %tid.x;
    mad.lo.u32 %chunk, %chunk, ${plan.packing.THREADS}, %tmp0;
    div.u32 %tmp1, %pitch, ${plan.packing.chunk};
    div.u32 %row, %chunk, %tmp1;
    mul.lo.u32 %tmp0, %row, %tmp1;
    sub.u32 %col, %chunk, %tmp0;
    mul.lo.u32 %col, %col, ${plan.packing.chunk};
    setp.ge.u32 %in_bounds, %row, %padded_rows;
    @%in_bounds bra DONE;
    mul.wide.u32 %tmp64, %row, %ld;
    cvt.u64.u32 %tmp64b, %col;
    add.u64 %tmp64, %tmp64, %tmp64b;
    mad.lo.u64 %src, %tmp64, ${plan.packing.element_bytes}, %src;
    setp.lt.u32 %in_rows, %row, %rows;
% for j in range(plan.packing.chunk):
    mov.${plan.packing.elements.kind} ${plan.packing.elements[j]}, 0;
    add.u32 %tmp0, %col, ${j};
    setp.lt.and.u32 %in_bounds, %tmp0, %columns, %in_rows;
    @%in_bounds ld.global.nc.b${8 * plan.packing.element_bytes} ${plan.packing.elements[j]}, [%src+${j * plan.packing.element_bytes}];
% endfor
% if plan.packing.element_bytes == 1:
% for j in range(0, plan.packing.chunk, 2):
    shl.b16 ${plan.packing.elements[j + 1]}, ${plan.packing.elements[j + 1]}, 8;
    or.b16 ${plan.packing.elements[j]}, ${plan.packing.elements[j]}, ${plan.packing.elements[j + 1]};
% endfor
% endif
% for word, pair in plan.packing.pairs:
    mov.b32 ${word}, ${pair};
% endfor
    mul.wide.u32 %tmp64, %row, %pitch;
    add.u64 %tmp64, %tmp64, %tmp64b;
    mad.lo.u64 %dst, %tmp64, ${plan.packing.element_bytes}, %workspace;
    mad.wide.u32 %dst, %dst_row128, 128, %dst;
    st.global.${plan.packing.store_type} [%dst], ${plan.packing.vector};
DONE:
    ret;
}
</%def>
