## mma.sync of dequantized weights and activations. The sums of a scale group are multiplied by its scales.
<%namespace name="dequantize" file="/${context['plan'].mainloop.dequantizer.template}"/>
<%namespace name="activations" file="/${context['plan'].a.template}"/>
<%namespace name="lanes" file="/ptx/lane_loads.mako"/>
<%def name="clear_accumulators()">
    .reg .f32 %zero;
    .reg .b16 %zero_half;
    mov.f32 %zero, 0f00000000;
    mov.b16 %zero_half, 0;
${dequantize.registers(plan.mainloop.dequantizer)}\
% for r in plan.mainloop.acc.all:
    mov.f32 ${r}, 0f00000000;
% endfor
${lanes.load(plan.mainloop.row_loads)}\
% for to, zero in plan.mainloop.row_zero_points:
${dequantize.zero_point(plan.mainloop.dequantizer, to, zero)}\
% endfor
</%def>

## The products of a step. last: of the remainder of K.
<%def name="multiply(step, last=False)">
% for to, zero in step.zero_points:
${dequantize.zero_point(plan.mainloop.dequantizer, to, zero)}\
% endfor
% for join in step.joins:
    mov.b32 ${join.word}, 0;
  % for piece, factor in join.parts:
    mad.lo.u32 ${join.word}, ${piece}, ${factor}, ${join.word};
  % endfor
% endfor
% for chunk in step.chunks:
${activations.load(chunk.loads, last)}\
  % for to, first, second, selector in plan.a.exchanges:
    prmt.b32 ${to}, ${first}, ${second}, ${selector};
  % endfor
  % for word, pairs, offsets in chunk.words:
${dequantize.word(plan.mainloop.dequantizer, pairs, word, offsets)}\
  % endfor
  % for line in chunk.products:
    ${line}
  % endfor
% endfor
% if step.scales:
    // the sums of the group times its scales
  % for line in step.scales:
    ${line}
  % endfor
  % for total, part, scale in plan.mainloop.scaled_sums:
    fma.rn.f32 ${total}, ${part}, ${scale}, ${total};
  % endfor
% endif
</%def>

## The sums of rows whose weights have one scale.
<%def name="scale_rows()">
% if not plan.mainloop.scaled:
  % for line in plan.mainloop.row_scales:
    ${line}
  % endfor
  % for total, scale in plan.mainloop.scaled_totals:
    mul.rn.f32 ${total}, ${total}, ${scale};
  % endfor
% endif
</%def>

<%def name="scaled_row(i)">
% for line in plan.scaled_rows[i]:
    ${line}
% endfor
</%def>
