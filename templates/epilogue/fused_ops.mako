## Fused operations on a vector of sums of one row: scales, bias, residual, activation or its gradient.
## row, column: (register, constant to add) of the first sum's row and column.
<%namespace name="c_elements" file="/epilogue/c_elements.mako"/>
<%namespace name="convert" file="/ptx/convert.mako"/>
<%namespace name="fused_step" file="/epilogue/fused_step.mako"/>
<%def name="setup()">
% for name in plan.fused_ops.operands:
    .reg .b64 %${name};
    ld.param.u64 %${name}, [${name}];
    cvta.to.global.u64 %${name}, %${name};
  % if plan.fused_ops.grouped:
    ld.global.u64 %tmp64, [%descriptor+${plan.scheduler.table.offsets[name]}];
    add.u64 %${name}, %${name}, %tmp64;
  % endif
% endfor
% if plan.fused_ops.scalar_bias:
    .reg .b32 %zero_index;  mov.b32 %zero_index, 0;
% endif
% for name in plan.fused_ops.of_items:
${bias_of_item(f"%{name}")}\
% endfor
% for name in plan.problem.sink.elementwise:
    // %${name}: bytes from an element of C to its ${plan.fused_ops.names[name]}
    sub.u64 %${name}, %${name}, %C;
% endfor
% for name in plan.problem.sink.stored:
    // %${name}: bytes from the place of an element of C to that of its sums
    sub.u64 %${name}, %${name}, %C;
  % if plan.c.pair_type:
    sub.u64 %${name}, %${name}, %C;
  % endif
% endfor
</%def>

## Moves the address of the bias to that of the batch item.
<%def name="bias_of_item(at)">
    // one bias per batch item
    mul.wide.u32 %tmp64, %batch_index, ${plan.fused_ops.bias_extent};
    mad.lo.u64 ${at}, %tmp64, ${plan.fused_ops.bias_bytes}, ${at};
</%def>

## Scales, before beta C is added.
<%def name="scale_product(registers, at, offset, guard, row, column)">
${run(plan.fused_ops.scales, registers, at, offset, guard, row, column)}\
</%def>

<%def name="finish(registers, at, offset, guard, row, column)">
${run(plan.fused_ops.others, registers, at, offset, guard, row, column)}\
</%def>

<%def name="run(chosen, registers, at, offset, guard, row, column)">
    {
    .reg .b64 %elem_addr;
    .reg .b32 %elem_index;
    .reg .b16 %elem16;
    .reg .f32 %elem32;
    .reg .${plan.arithmetic.type} %elem;
    .reg .pred %is_negative;
% for line in plan.fused_ops.declarations:
    ${line}
% endfor
% if plan.c.preinitialised:
    mov.${plan.arithmetic.type} %elem, ${plan.arithmetic.zero};
    mov.b16 %elem16, 0;
    mov.f32 %elem32, 0f00000000;
% endif
% for op in chosen:
  % for step in op.steps:
${applied(step, registers, at, offset, guard, row, column)}\
  % endfor
% endfor
    }
</%def>

## %elem = element ``index`` of an array, in the epilogue's type.
<%def name="element(name, index, guard)">
<% ptx_type, size = plan.fused_ops.operands[name] %>\
    add.u32 %elem_index, ${index[0]}, ${index[1]};
    mad.wide.u32 %elem_addr, %elem_index, ${size}, %${name};
% if ptx_type == "b16":
    ${guard}ld.global.nc.b16 %elem16, [%elem_addr];
${convert.widen(plan.fused_ops.out, "%elem", "%elem16", guard)}\
% else:
${load(ptx_type, "%elem_addr", guard)}\
% endif
</%def>

## %elem = the element at an address, in the epilogue's type.
<%def name="load(ptx_type, at, guard)">
% if ptx_type == plan.arithmetic.type:
    ${guard}ld.global.nc.${ptx_type} %elem, [${at}];
% else:
    ${guard}ld.global.nc.${ptx_type} %elem32, [${at}];
    ${guard}cvt.${plan.arithmetic.type}.${ptx_type} %elem, %elem32;
% endif
</%def>

## plan.c.values = the vector of an elementwise operand, in the epilogue's type.
<%def name="elementwise(name, at, offset, guard)">
    add.u64 %elem_addr, ${at}, %${name};
${c_elements.load("%elem_addr", offset, guard)}\
</%def>

## Stores the sums to an array, in the type of C. Two sums of a gated activation have twice the bytes of an element of C.
<%def name="stored(name, registers, at, offset, guard)">
% if plan.c.pair_type:
    add.u64 %elem_addr, ${at}, ${offset};
    mad.lo.u64 %elem_addr, %elem_addr, 2, %${name};
  % for n, (low, high) in enumerate(zip(registers[::2], registers[1::2])):
    % if plan.c.pair_type == "f32":
    ${guard}st.global.v2.f32 [%elem_addr+${plan.fused_ops.words[n]}], {${low}, ${high}};
    % else:
    cvt.rn.${plan.c.pair_type}.f32 ${plan.c.half[0]}, ${low};
    cvt.rn.${plan.c.pair_type}.f32 ${plan.c.half[1]}, ${high};
    mov.b32 %elem_index, ${plan.c.half[:]};
    ${guard}st.global.b32 [%elem_addr+${plan.fused_ops.words[n]}], %elem_index;
    % endif
  % endfor
% else:
    add.u64 %elem_addr, ${at}, %${name};
${c_elements.store(registers, "%elem_addr", offset, guard)}\
% endif
</%def>

## A step on all registers. An element of its array is loaded once, unless it differs between them.
<%def name="applied(step, registers, at, offset, guard, row, column)">
<% skipped = plan.fused_ops.is_skipped(step, guard) %>\
% if skipped:
    ${guard.replace("@", "@!")}bra STEP_DONE;
% endif
% if step.spans == "element":
${elementwise(step.array, at, offset, guard)}\
  % for q, r in enumerate(registers):
${fused_step.on(step, r, plan.c.values[q], guard)}\
  % endfor
% elif step.spans == "stored":
${stored(step.array, registers, at, offset, guard)}\
% elif step.spans == "summed":
  % for sum, r in zip(plan.states.from_column[column[1]], registers):
    ${guard}${plan.arithmetic.add} ${sum}, ${sum}, ${r};
  % endfor
% elif step.spans == "one":
${load(plan.fused_ops.operands[step.array][0], f"%{step.array}", guard)}\
${fused_step.on_all(step, registers, guard)}\
% elif step.spans == "row":
${each(step, registers, guard, row, column)}\
% elif plan.fused_ops.scalar_bias and step.array == "bias":
${each(step, registers, guard, ("%zero_index", 0), column)}\
% elif step.spans == "column":
${each(step, registers, guard, column, column)}\
% else:
${fused_step.on_all(step, registers, guard)}\
% endif
% if skipped:
STEP_DONE:
% endif
</%def>

<%def name="each(step, registers, guard, row, column)">
% if row is not column:
${element(step.array, row, guard)}\
% endif
% for q, r in enumerate(registers):
  % if row is column:
${element(step.array, (column[0], column[1] + q), guard)}\
  % endif
${fused_step.on(step, r, "%elem", guard)}\
% endfor
</%def>
