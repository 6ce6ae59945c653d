## Auxiliary kernels for images of phases: one copies C to the images if beta is not zero, the other interleaves the images to
## rows of C. A thread has a segment of a row: pixels of each phase, and vectors of C.
<%namespace name="pdl" file="/ptx/pdl.mako"/>
<%namespace name="convert" file="/ptx/convert.mako"/>
<%namespace name="radix" file="/addr/mixed_radix.mako"/>
<%def name="entries()">
<% k = plan.c_kernels %>\

// copies C to images of its phases, which the product adds to, if beta is not zero
${begin(k, "copy_to_phases")}\
    ${plan.arithmetic.setp_ne} %has_beta, %beta, ${plan.arithmetic.zero};
    @!%has_beta bra DONE;
SEGMENT_LOOP:
${place(k)}\
${load_c(k)}\
% for x in k.image_accesses:
    and.pred %p, %has_image${x.phase}, %in_image${x.vector};
  % for word, pair in x.words:
    mov.b32 ${word}, ${pair};
  % endfor
    @%p st.global.${x.type} [%image_addr${x.phase}+${x.offset}], ${x.operand};
% endfor
    mov.u32 %tmp0, %nctaid.x;
    mad.lo.u32 %segment, %tmp0, ${k.THREADS}, %segment;
    setp.lt.u32 %p, %segment, %segments;
    @%p bra SEGMENT_LOOP;
DONE:
    ret;
}

// interleaves images of phases to rows of C: pixels of a phase without taps are zeros, or beta C
${begin(k, "interleave_phases")}\
${place(k)}\
    ${plan.arithmetic.setp_ne} %has_beta, %beta, ${plan.arithmetic.zero};
    @!%has_beta bra BETA_ZERO;
    // pixels without an image are beta C
${load_c(k)}\
% for register in k.pixel.all:
  % if k.size == 2:
${convert.widen(plan.problem.out, "%value", register)}\
    ${plan.arithmetic.mul} %value, %value, %beta;
    cvt.rn.${plan.problem.out}.f32 ${register}, %value;
  % else:
    ${plan.arithmetic.mul} ${register}, ${register}, %beta;
  % endif
% endfor
    bra.uni LOAD_IMAGES;
BETA_ZERO:
${zeros(k)}\
LOAD_IMAGES:
% for x in k.image_accesses:
    and.pred %p, %has_image${x.phase}, %in_image${x.vector};
  % if x.words:
    {
    .reg .b32 %loaded<${len(x.words)}>;
    % for loaded, (_, pair) in zip(x.loaded, x.words):
    mov.b32 ${loaded}, ${pair};
    % endfor
    @%p ld.global.${x.type} ${operand_list(x.loaded)}, [%image_addr${x.phase}+${x.offset}];
    % for loaded, (_, pair) in zip(x.loaded, x.words):
    mov.b32 ${pair}, ${loaded};
    % endfor
    }
  % else:
    @%p ld.global.${x.type} ${x.operand}, [%image_addr${x.phase}+${x.offset}];
  % endif
% endfor
% for x in k.c_accesses:
  % for word, pair in x.words:
    mov.b32 ${word}, ${pair};
  % endfor
    setp.gt.and.s32 %p, %columns_rem, ${x.first}, %in_rows;
    @%p st.global.${x.type} [%c_addr+${x.offset}], ${x.operand};
% endfor
DONE:
    ret;
}
</%def>

<%def name="begin(k, name)">
.visible .entry ${plan.entry}_${name}(
% for line in k.parameter_list.declarations:
    ${line}
% endfor
)
.maxntid ${k.THREADS}, 1, 1
.minnctapersm ${k.BLOCKS_PER_SM}
{
    .reg .b64 %C, %workspace, %image_table, %c_addr, %image_addr<${k.stride}>, %product;
    .reg .b32 %segment, %row, %plane, %image_row, %c_column, %image_column, %columns_rem, %image_offset, %tmp0, %tmp1;
    .reg .b32 ${k.number_registers};
    .reg .pred %p, %has_beta, %in_rows, %has_image<${k.stride}>, %in_image<${k.image_vectors}>;
    .reg .${plan.arithmetic.type} %beta, %value;
    ${k.pixel.declaration}
    ${k.word.declaration}
    ld.param.u64 %C, [C];  ld.param.u64 %workspace, [W];  ld.param.u64 %image_table, [image_table];
    cvta.to.global.u64 %C, %C;  cvta.to.global.u64 %workspace, %workspace;  cvta.to.global.u64 %image_table, %image_table;
    ld.param.${plan.arithmetic.type} %beta, [beta];
% for n in k.NUMBERS:
    ld.param.u32 %${n}, [${n}];
% endfor
${pdl.trigger_and_wait()}\
    mov.u32 %tmp0, %tid.x;
    mov.u32 %segment, %ctaid.x;
    mad.lo.u32 %segment, %segment, ${k.THREADS}, %tmp0;
    setp.ge.u32 %p, %segment, %segments;
    @%p bra DONE;
</%def>

<%def name="divide(to, rest, number, divisor)">
${radix.divide(to, number, divisor)}\
    mul.lo.u32 ${rest}, ${to}, %${divisor};
    sub.u32 ${rest}, ${number}, ${rest};
</%def>

## The segment in C and in the images: %c_addr and %image_addr, whether its row is in C, columns of C from there on, phases
## with an image, vectors in the row of an image.
<%def name="place(k)">
    // row %row of plane %plane of C, from column %c_column on
${divide("%row", "%c_column", "%segment", "row_segments")}\
    mul.lo.u32 %image_column, %c_column, ${k.pixels};
    mul.lo.u32 %c_column, %c_column, ${k.segment};
    mov.u32 %tmp0, %row;
${divide("%plane", "%row", "%tmp0", "plane_rows")}\
    setp.lt.u32 %in_rows, %row, %rows;
    sub.s32 %columns_rem, %columns, %c_column;
    mad.lo.u32 %tmp0, %plane, %rows, %row;
    mad.lo.u32 %tmp0, %tmp0, %columns, %c_column;
    mad.wide.u32 %c_addr, %tmp0, ${k.size}, %C;
    // row %image_row of the images of the phases that have pixels in it
${divide("%image_row", "%tmp1", "%row", "stride")}\
    mad.lo.u32 %image_offset, %plane, %image_rows, %image_row;
    mad.lo.u32 %image_offset, %image_offset, %image_columns, %image_column;
    mul.wide.u32 %product, %tmp1, ${k.table_bytes};
    add.u64 %product, %image_table, %product;
% for r, offset in enumerate(k.table_offsets):
    ld.global.nc.u32 %tmp0, [%product+${offset}];
    setp.ne.u32 %has_image${r}, %tmp0, ${k.NONE};
    add.u32 %tmp0, %tmp0, %image_offset;
    mad.wide.u32 %image_addr${r}, %tmp0, ${k.size}, %workspace;
% endfor
    sub.s32 %tmp0, %image_columns, %image_column;
% for x in k.image_accesses[: k.image_vectors]:
    setp.gt.s32 %in_image${x.vector}, %tmp0, ${x.first};
% endfor
</%def>

<%def name="zeros(k)">
% for register in k.pixel.all:
    mov.${k.pixel.ptx_type} ${register}, 0;
% endfor
</%def>

## The segment of C, zeros outside it.
<%def name="load_c(k)">
% for x in k.c_accesses:
    setp.gt.and.s32 %p, %columns_rem, ${x.first}, %in_rows;
  % for register in x.registers:
    mov.${x.ptx_type} ${register}, 0;
  % endfor
    @%p ld.global.${x.type} ${x.operand}, [%c_addr+${x.offset}];
  % for word, pair in x.words:
    mov.b32 ${pair}, ${word};
  % endfor
% endfor
</%def>
