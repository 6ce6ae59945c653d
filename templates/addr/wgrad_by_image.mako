## im2col loads of weight gradients whose result gradients are contiguous along the pixels of an image: a stage has pixels of
## one image, from %position on. Result gradients past the last pixel are loaded as zeros.
<%namespace name="im2col" file="/addr/wgrad_im2col.mako"/>
<%namespace name="radix" file="/addr/mixed_radix.mako"/>
<%def name="setup()">
${im2col.setup()}\
    .reg .b32 %position, %stages_per_image, %image_pixels;
    .reg .pred %next_image;
    ld.param.u32 %stages_per_image, [stages_per_image];  ld.param.u32 %image_pixels, [image_pixels];
</%def>

<%def name="begin()">
    {
    .reg .b32 %stage_index, %quotient;
    div.u32 %stage_index, %k0, ${plan.config.u};
${radix.divide("%image", "%stage_index", "stages_per_image")}\
    mul.lo.u32 %quotient, %image, %stages_per_image;
    sub.u32 %position, %stage_index, %quotient;
    mul.lo.u32 %position, %position, ${plan.config.u};
    }
    {
    .reg .b32 %whole_images;
${im2col.digits("%position", "%k_digit", "%whole_images")}\
    }
${im2col.pixel()}\
${im2col.columns()}\
</%def>

## The next pixels of the image, or the first ones of the next image.
<%def name="step()">
    add.u32 %position, %position, ${plan.config.u};
    setp.ge.u32 %next_image, %position, %image_pixels;
% for a in plan.loads.axes:
    add.u32 %k_digit${a}, %k_digit${a}, %depth_digit${a};
  % if a:
    @%carry add.u32 %k_digit${a}, %k_digit${a}, 1;
  % endif
    setp.ge.u32 %carry, %k_digit${a}, %positions${a};
    @%carry sub.u32 %k_digit${a}, %k_digit${a}, %positions${a};
    @%next_image mov.u32 %k_digit${a}, 0;
% endfor
    @%next_image mov.u32 %position, 0;
    @%next_image add.u32 %image, %image, 1;
${im2col.pixel()}\
</%def>
