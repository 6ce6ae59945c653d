## Packs images and filters with few channels: pixels are padded with zeros to a power of two of channels, rows to whole 16 bytes.
## A thread stores 16 bytes of the copy.
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%def name="entries()">
<% packing, t = plan.packing, plan.packing.operands[0] %>\

// im2col maps step by whole 16 bytes: a copy of A and B with padded pixels, ${t.pixels} in 16 bytes; columns of the padding are zeros
.visible .entry ${plan.entry}_pack_pixels(
% for line in packing.parameter_list.declarations:
    ${line}
% endfor
)
.maxntid ${t.THREADS}, 1, 1
{
    .reg .b64 %base, %workspace, %dst, %global_addr, %pixel_step, %channel_step, %channel_addr;
    .reg .b32 %chunk, ${", ".join(f"%{name}" for name in t.NAMES)};
    .reg .b32 %row, %outer_digit, %inner_digit, %pixel, %offset, %tmp0, %word<4>;
    .reg .pred %is_a, %in_rows, %in_pixels;
    ${t.loaded.declaration}
    ld.param.u64 %workspace, [W];
    cvta.to.global.u64 %workspace, %workspace;
    mov.u32 %chunk, %ctaid.x;
${pdl.trigger_and_wait()}\
    // the first blocks copy A, the others B
    ld.param.u32 %tmp0, [blocks_a];
    setp.lt.u32 %is_a, %chunk, %tmp0;
    @!%is_a sub.u32 %chunk, %chunk, %tmp0;
% for guard, x in zip(("@%is_a", "@!%is_a"), packing.operands):
    ${guard} ld.param.u64 %base, [${x.name.upper()}];
% for name in x.NAMES:
    ${guard} ld.param.u32 %${name}, [${name}_${x.name}];
% endfor
% endfor
    cvta.to.global.u64 %base, %base;
    // chunk %chunk of the copy: row %row, and the operand's pixel %pixel
    mov.u32 %tmp0, %tid.x;
    mad.lo.u32 %chunk, %chunk, ${t.THREADS}, %tmp0;
    div.u32 %row, %chunk, %row_chunks;
    mul.lo.u32 %tmp0, %row, %row_chunks;
    sub.u32 %pixel, %chunk, %tmp0;
    mul.lo.u32 %pixel, %pixel, ${t.pixels};
    sub.u32 %pixel, %pixel, %before;
    setp.lt.u32 %in_rows, %row, %rows;
    // the address of the pixel: a row has two digits
    div.u32 %outer_digit, %row, %inner_extent;
    mul.lo.u32 %tmp0, %outer_digit, %inner_extent;
    sub.u32 %inner_digit, %row, %tmp0;
    mul.lo.u32 %offset, %outer_digit, %outer_stride;
    mad.lo.u32 %offset, %inner_digit, %inner_stride, %offset;
    mad.lo.u32 %offset, %pixel, %pixel_stride, %offset;
    mul.wide.s32 %global_addr, %offset, ${t.size};
    add.u64 %global_addr, %base, %global_addr;
    mul.wide.u32 %pixel_step, %pixel_stride, ${t.size};
    mul.wide.u32 %channel_step, %channel_stride, ${t.size};
% for j in range(t.pixels):
    // the channels of the pixel, if it is inside the row
    setp.lt.and.u32 %in_pixels, %pixel, %pixels, %in_rows;
    mov.u64 %channel_addr, %global_addr;
% for c in range(t.loaded.shape[1]):
    mov.${t.loaded.kind} ${t.loaded[j, c]}, 0;
% if c < t.channels:
    @%in_pixels ld.global.nc.${t.loaded.kind} ${t.loaded[j, c]}, [%channel_addr];
    add.u64 %channel_addr, %channel_addr, %channel_step;
% endif
% endfor
% if j + 1 < t.pixels:
    add.u32 %pixel, %pixel, 1;
    add.u64 %global_addr, %global_addr, %pixel_step;
% endif
% endfor
% for n, word in enumerate(t.words):
    mov.b32 %word${n}, ${word};
% endfor
    mad.wide.u32 %dst, %copy_offset128, ${t.ROW}, %workspace;
    mad.wide.u32 %dst, %chunk, ${t.CHUNK}, %dst;
    @%in_rows st.global.v4.b32 [%dst], {%word0, %word1, %word2, %word3};
    ret;
}
</%def>
