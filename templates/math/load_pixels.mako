## Loads of adjacent pixels of images or results, converted to the accumulators' type.
<%namespace name="convert" file="/ptx/convert.mako"/>
## %skip: the pixel with coordinates %pixel_coords is outside the image; %tmp64: the address of the pixel at offset %pixel_offset.
## (ptxas 13.0 crashes on a lop3 that setp.eq compares with 0; setp.ne is safe.)
<%def name="locate()">
    sub.u32 %tmp2, %max_coords, %pixel_coords;
    lop3.b32 %tmp1, %pixel_coords, %tmp2, %guard_bits, ${plan.mainloop.OUT_OF_IMAGE_LUT};
    setp.ne.u32 %skip, %tmp1, 0;
    mad.wide.s32 %tmp64, %pixel_offset, ${plan.mainloop.size}, ${plan.mainloop.images};
</%def>

<%def name="load(at, guard)">
<% loaded = plan.mainloop.loaded %>\
% for r in loaded.all:
    mov.${loaded.ptx_type} ${r}, ${plan.mainloop.loaded_zero};
% endfor
    ${guard}ld.global.nc.${plan.mainloop.load_type} ${plan.mainloop.load_vector}, [${at}];
% if plan.mainloop.size == 2 and plan.mainloop.vec == 1:
${convert.widen(plan.problem.dtype, plan.mainloop.pixels[0], plan.mainloop.words[0])}\
% elif plan.mainloop.size == 2:
  % for low, high, word in plan.mainloop.pixel_pairs:
${convert.widen_pair(plan.problem.dtype, low, high, word, plan.mainloop.halves)}\
  % endfor
% endif
</%def>
