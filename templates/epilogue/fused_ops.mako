## Fused operations on a vector of sums of one row: scales, bias, residual, activation or its gradient.
## row, column: (register, constant to add) of the first sum's row and column.
<%namespace name="c_elements" file="/epilogue/c_elements.mako"/>
<%namespace name="convert" file="/ptx/convert.mako"/>
<%def name="setup()">
% for name in plan.fused_ops.operands:
    .reg .b64 %${name};
    ld.param.u64 %${name}, [${name}];
    cvta.to.global.u64 %${name}, %${name};
% if plan.fused_ops.grouped:
    ld.global.u64 %tmp64, [%descriptor+${plan.scheduler.table.at(name)}];
    add.u64 %${name}, %${name}, %tmp64;
% endif
% endfor
% if plan.fused_ops.scalar_bias:
    .reg .b32 %zero_index;  mov.b32 %zero_index, 0;
% endif
% if plan.fused_ops.batched_bias:
    // one bias per batch item
    mul.wide.u32 %tmp64, %batch_index, ${1 if plan.fused_ops.scalar_bias else "%M" if "bias_row" in plan.problem.sink.ops else "%N"};
    mad.lo.u64 %bias, %tmp64, ${plan.fused_ops.operands["bias"][1]}, %bias;
% endif
% for name in plan.problem.sink.elementwise:
    // %${name}: bytes from an element of C to its ${"residual" if name == "residual" else "element of " + name}
    sub.u64 %${name}, %${name}, %C;
% endfor
</%def>

## Scales, before beta C is added.
<%def name="scale_product(registers, at, offset, guard, row, column)">
${run([s for s in plan.problem.sink.ops if s.startswith("scale")], registers, at, offset, guard, row, column)}\
</%def>

<%def name="finish(registers, at, offset, guard, row, column)">
${run([s for s in plan.problem.sink.ops if not s.startswith("scale")], registers, at, offset, guard, row, column)}\
</%def>

<%def name="run(chosen, registers, at, offset, guard, row, column)">
<%
    stages = dict(scale=scale, scale_rows=scale_rows, bias_row=bias_row, bias_column=bias_column, residual=residual,
                  relu=relu, gelu=gelu, silu=silu, relu_grad=relu_grad)
%>\
    {
    .reg .b64 %elem_addr;
    .reg .b32 %elem_index;
    .reg .b16 %elem16;
    .reg .f32 %elem32;
    .reg .${plan.arithmetic.type} %elem;
    .reg .pred %is_negative;
% if plan.c.preinitialised:
    mov.${plan.arithmetic.type} %elem, ${plan.arithmetic.zero};
    mov.b16 %elem16, 0;
    mov.f32 %elem32, 0f00000000;
% endif
% for stage in chosen:
${stages[stage](registers, at, offset, guard, row, column)}\
% endfor
    }
</%def>

## %elem = element ``index`` of an array, in the epilogue's type.
<%def name="element(name, index, guard)">
<% kind, size = plan.fused_ops.operands[name] %>\
    add.u32 %elem_index, ${index[0]}, ${index[1]};
    mad.wide.u32 %elem_addr, %elem_index, ${size}, %${name};
% if kind == "b16":
    ${guard}ld.global.nc.b16 %elem16, [%elem_addr];
${convert.widen(plan.problem.out, "%elem", "%elem16", guard)}\
% else:
${load(kind, "%elem_addr", guard)}\
% endif
</%def>

## %elem = the element at an address, in the epilogue's type.
<%def name="load(kind, at, guard)">
% if kind == plan.arithmetic.type:
    ${guard}ld.global.nc.${kind} %elem, [${at}];
% else:
    ${guard}ld.global.nc.${kind} %elem32, [${at}];
    ${guard}cvt.${plan.arithmetic.type}.${kind} %elem, %elem32;
% endif
</%def>

## plan.c.values = the vector of an elementwise operand, in the epilogue's type.
<%def name="elementwise(name, at, offset, guard)">
    add.u64 %elem_addr, ${at}, %${name};
${c_elements.load("%elem_addr", offset, guard)}\
</%def>

<%def name="each(name, operation, registers, guard, row, column)">
% if row is not column:
${element(name, row, guard)}\
% endif
% for q, r in enumerate(registers):
% if row is column:
${element(name, (column[0], column[1] + q), guard)}\
% endif
    ${guard}${operation} ${r}, ${r}, %elem;
% endfor
</%def>

<%def name="apply(operation, registers, guard='')">
% for r in registers:
    ${guard}${operation} ${r}, ${r}, %elem;
% endfor
</%def>

<%def name="scale(registers, at, offset, guard, row, column)">
% for name in ("scale_a", "scale_b"):
${load("f32", f"%{name}", guard)}\
${apply(plan.arithmetic.mul, registers, guard)}\
% endfor
</%def>
<%def name="scale_rows(registers, at, offset, guard, row, column)">
${each("scale_a", plan.arithmetic.mul, registers, guard, row, column)}\
${each("scale_b", plan.arithmetic.mul, registers, guard, column, column)}\
</%def>
<%def name="bias_row(registers, at, offset, guard, row, column)">
${each("bias", plan.arithmetic.add, registers, guard, row, column)}\
</%def>
<%def name="bias_column(registers, at, offset, guard, row, column)">
${each("bias", plan.arithmetic.add, registers, guard, ("%zero_index", 0) if plan.fused_ops.scalar_bias else column, column)}\
</%def>
<%def name="residual(registers, at, offset, guard, row, column)">
${elementwise("residual", at, offset, guard)}\
% for q, r in enumerate(registers):
    ${guard}${plan.arithmetic.add} ${r}, ${r}, ${plan.c.values[q]};
% endfor
</%def>
## The gradient of ReLU: 0 where aux <= 0; where aux is NaN, the sum stays.
<%def name="relu_grad(registers, at, offset, guard, row, column)">
${elementwise("aux", at, offset, guard)}\
% for q, r in enumerate(registers):
${mask(r, plan.c.values[q], guard)}\
% endfor
</%def>
<%def name="mask(r, aux, guard='')">
    ${guard}setp.le.${plan.arithmetic.type} %is_negative, ${aux}, ${plan.arithmetic.zero};
    ${guard}selp.${plan.arithmetic.type} ${r}, ${plan.arithmetic.zero}, ${r}, %is_negative;
</%def>
## ReLU; NaN stays NaN.
<%def name="relu(registers, at, offset, guard, row, column)">
% for r in registers:
${mask(r, r, guard)}\
% endfor
</%def>
## SiLU: x times the logistic function, by ex2.approx and rcp.approx (2 ulp each).
<%def name="silu(registers, at, offset, guard, row, column)">
% for r in registers:
    ${guard}mul.rn.f32 %elem, ${r}, ${plan.fused_ops.MINUS_LOG2E};
${logistic(r, guard)}\
% endfor
</%def>
## GELU in its tanh form, written as x times a logistic function.
<%def name="gelu(registers, at, offset, guard, row, column)">
% for r in registers:
    ${guard}mul.rn.f32 %elem, ${r}, ${r};
    ${guard}fma.rn.f32 %elem, %elem, ${plan.fused_ops.GELU_CUBIC}, ${plan.fused_ops.GELU_LINEAR};
    ${guard}mul.rn.f32 %elem, %elem, ${r};
${logistic(r, guard)}\
% endfor
</%def>
## r = r / (1 + 2^%elem).
<%def name="logistic(r, guard)">
    ${guard}ex2.approx.ftz.f32 %elem, %elem;
    ${guard}add.rn.f32 %elem, %elem, 0f3F800000;
    ${guard}rcp.approx.ftz.f32 %elem, %elem;
    ${guard}mul.rn.f32 ${r}, ${r}, %elem;
</%def>
