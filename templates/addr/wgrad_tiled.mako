## Tiled loads of weight gradients: K is pixels of rows of results, and a column is a channel of one tap. The taps of a tile are
## the same in all its stages.
<%namespace name="constants" file="/ptx/constants.mako"/>
<%namespace name="radix" file="/addr/mixed_radix.mako"/>
<%def name="setup()">
    // a stage: the pixels of %image from %position0 on, of one row of results (%position1 ...), the innermost axis first;
% if plan.images.outer:
    // a box of images has channels from %channel0 (%channel1 ...) on of the row that its tap reads, %row0 ...
% else:
    // a box of images has channels from %channel0 (%channel1 ...) on
% endif
    .reg .b32 ${plan.images.place_registers};
    .reg .b32 ${plan.loads.count_registers};
    .reg .pred %carry;
    ld.param.u32 %channels, [channels];  ld.param.u32 %stages_per_row, [stages_per_row];
% if not plan.loads.one_tap:
    ld.param.u32 %taps, [taps];
% endif
${radix.parameters()}\
% for a in plan.loads.axes[1:]:
    mul.lo.u32 %all_steps${a}, %positions${a}, %stride${a};
% endfor
</%def>

<%def name="begin()">
${first_pixel()}\
    {
    .reg .b32 %column, %tap, %quotient, %tmp;
<% images = plan.images %>\
% if images.multicast:
    mad.lo.u32 %channel0, ${images.multicast.rank}, ${images.slice_extent}, %${images.role}0;
% else:
    mov.u32 %channel0, %${images.role}0;
% endif
% if plan.loads.one_tap:
    mov.u32 %tap, 0;
${rows(0)}\
% else:
    mov.u32 %column, %channel0;
  % for box, step in enumerate(images.column_steps):
    % if box:
    add.u32 %column, %column, ${step};
    % endif
${radix.divide("%tap", "%column", "channels")}\
    mul.lo.u32 %tmp, %tap, %channels;
    sub.u32 %channel${box}, %column, %tmp;
    // past the last tap channels are out of bounds: zeros
    setp.ge.u32 %carry, %tap, %taps;
    @%carry mov.u32 %channel${box}, %channels;
${rows(box)}\
  % endfor
% endif
    }
</%def>

## The pixels of the slice's first stage, from %k0.
<%def name="first_pixel()">
    {
    .reg .b32 %flat_index, %quotient, %tmp;
    div.u32 %flat_index, %k0, ${plan.config.u};
${radix.divide("%quotient", "%flat_index", "stages_per_row")}\
    mul.lo.u32 %tmp, %quotient, %stages_per_row;
    sub.u32 %tmp, %flat_index, %tmp;
    mul.lo.u32 %position0, %tmp, ${plan.config.u};
    mov.u32 %flat_index, %quotient;
% for a in plan.loads.axes[1:]:
${radix.divide("%quotient", "%flat_index", f"positions{a}")}\
    mul.lo.u32 %tmp, %quotient, %positions${a};
    sub.u32 %position${a}, %flat_index, %tmp;
    mov.u32 %flat_index, %quotient;
% endfor
    mov.u32 %image, %flat_index;
    }
</%def>

## The row of images that tap %tap reads, for a box.
<%def name="rows(box)">
% for a, row in plan.images.box_rows[box]:
  % if a != plan.loads.axes[-1]:
${radix.divide("%quotient", "%tap", f"taps{a}")}\
    mul.lo.u32 %tmp, %quotient, %taps${a};
    sub.u32 %tmp, %tap, %tmp;
    mov.u32 %tap, %quotient;
    mad.lo.u32 ${row}, %tmp, %dilation${a}, %lower_corner${a};
  % else:
    mad.lo.u32 ${row}, %tap, %dilation${a}, %lower_corner${a};
  % endif
    mad.lo.u32 ${row}, %position${a}, %stride${a}, ${row};
% endfor
</%def>

## The next pixels of the row, or the first ones of the next row.
<%def name="step()">
    add.u32 %position0, %position0, ${plan.config.u};
    setp.ge.u32 %carry, %position0, %positions0;
    @%carry mov.u32 %position0, 0;
% for a, rows in plan.images.axis_rows:
    @%carry add.u32 %position${a}, %position${a}, 1;
  % for row in rows:
    @%carry add.u32 ${row}, ${row}, %stride${a};
  % endfor
    setp.ge.and.u32 %carry, %position${a}, %positions${a}, %carry;
  % for row in rows:
    @%carry sub.u32 ${row}, ${row}, %all_steps${a};
  % endfor
    @%carry mov.u32 %position${a}, 0;
% endfor
    @%carry add.u32 %image, %image, 1;
</%def>
