## The pixels that a warpgroup gathers: a thread has one pixel of each box, at any position. Coordinates outside the image are
## padding.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="radix" file="/addr/mixed_radix.mako"/>
<%def name="tap_registers()">
<% images, axes = plan.images, plan.loads.axes %>\
    // gathered elements: this thread's pixel of a box and its first channel of a unit, and their place in stage 0
    .reg .b64 %images, %pixel_addr<${len(images.boxes)}>;
    .reg .b32 %gather_pixel, %gather_channel, %gather_place<${len(images.inverted)}>;
    .reg .b32 %image_extent<${len(axes)}>, %image_pitch<${len(axes)}>, %channel_pitch, %channel_bytes, %round_bytes, %image_channels;
    .reg .pred %in_image<${len(images.boxes)}>;
    ld.param.u64 %images, [${images.name.upper()}];
    cvta.to.global.u64 %images, %images;
% for a in axes:
    ld.param.u32 %image_extent${a}, [image_extent${a}];  ld.param.u32 %image_pitch${a}, [image_pitch${a}];
% endfor
    ld.param.u32 %channel_pitch, [channel_pitch];  ld.param.u32 %image_channels, [image_channels];
    shl.b32 %channel_bytes, %channel_pitch, 1;
    mul.lo.u32 %round_bytes, %channel_bytes, ${images.round_rows};
    and.b32 %tmp0, %thread, 127;
    and.b32 %gather_pixel, %tmp0, ${images.pixel_mask};
    shr.u32 %gather_channel, %tmp0, ${images.log2_pixels};
    // the swizzled chunk of 16 bytes, and the pixel in the chunk
    shr.u32 %tmp1, %gather_pixel, 3;
${constants.shr("%tmp0", "%gather_channel", images.swizzle_shift)}\
    and.b32 %tmp0, %tmp0, ${images.swizzle_mask};
    xor.b32 %tmp1, %tmp1, %tmp0;
    and.b32 %tmp0, %gather_pixel, 7;
    mad.lo.u32 %tmp0, %tmp1, 8, %tmp0;
    mad.lo.u32 %gather_place0, %gather_channel, ${images.span}, %smem;
    mad.lo.u32 %gather_place0, %tmp0, 2, %gather_place0;
% for v, bits in enumerate(images.inverted):
  % if v:
    xor.b32 %gather_place${v}, %gather_place0, ${bits};
  % endif
% endfor
</%def>

## This thread's pixel of each box at the first tap. Rows after the last pixel are outside the image.
<%def name="first()">
    {
    .reg .b32 %gather_row, %flat_index, %quotient, %tmp;
<% images, axes = plan.images, plan.loads.axes %>\
    add.u32 %gather_row, %${images.role}0, %gather_pixel;
% for n, pixel in enumerate(images.first_pixels):
${constants.add("%flat_index", "%gather_row", pixel)}\
    setp.ge.u32 %p, %flat_index, ${plan.row_extent[images.role]};
${radix.digits("%flat_index", f"%box{n}_pixel")}\
  % for a in axes:
    mad.lo.u32 %box${n}_pixel${a}, %box${n}_pixel${a}, %stride${a}, %lower_corner${a};
  % endfor
    @%p mov.b32 %box${n}_pixel0, 0x80000000;
    // the pixel's image and this thread's first channel, in elements
    mad.lo.u32 %image_offset${n}, %flat_index, %image_channels, %gather_channel;
    mul.lo.u32 %image_offset${n}, %image_offset${n}, %channel_pitch;
% endfor
    }
</%def>

## The address of each pixel of a tap.
<%def name="tap_offsets(axes)">
    {
    .reg .b32 %position, %offset;
% for n, _ in enumerate(plan.images.boxes):
    mov.b32 %offset, %image_offset${n};
  % for a in axes:
    add.u32 %position, %box${n}_pixel${a}, %tap_pixel${a};
    mad.lo.u32 %offset, %position, %image_pitch${a}, %offset;
    % if a:
    setp.lt.and.u32 %in_image${n}, %position, %image_extent${a}, %in_image${n};
    % else:
    setp.lt.u32 %in_image${n}, %position, %image_extent${a};
    % endif
  % endfor
    mad.wide.u32 %pixel_addr${n}, %offset, 2, %images;
% endfor
    }
</%def>
