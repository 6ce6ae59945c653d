"""``linear`` and ``gemm_jagged`` with a ``QuantizedWeight``: 16-bit activations times integer weights with scales."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ptxgen.api import call_lock, quantized_calls, quantized_jagged
from ptxgen.api.epilogue_args import activation_name, columns_of_c
from ptxgen.api.quantized_weight import QuantizedWeight, dequantized
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.problem.weight_formats import WEIGHT_FORMATS
from ptxgen.torch import activations, launching
from ptxgen.torch.launching import check_operands
from ptxgen.torch.operator import Operator, loop_over_batch, runs_directly

ACTIVATIONS = (torch.float16, torch.bfloat16)  #: the dtypes of activations


def linear(input: Tensor, weight: QuantizedWeight, bias: Tensor | None, activation: str | None = None) -> Tensor:
    """activation(input · weightᵀ + bias). ``input`` and ``bias`` have gradients, and autocast converts both. PyTorch
    computes the activation if a gradient is recorded, or ``torch.compile`` traces the call."""
    _require_constant(weight)
    input, bias = _autocast(input, input), None if bias is None else _autocast(bias, input)
    tensors = input, weight.packed, weight.scales, weight.zeros, bias
    if runs_directly(*tensors) and not (
        torch.is_grad_enabled() and (input.requires_grad or (bias is not None and bias.requires_grad))
    ):
        return _product(input, weight, bias, activation)
    result: Tensor = QUANTIZED_LINEAR(*tensors, weight.format, weight.precision)
    return result if activation is None else activations.ACTIVATION(result, activation, -1)


def gemm_jagged(x: Tensor, weight: QuantizedWeight, offsets: Tensor, activation: str | None = None) -> Tensor:
    """Rows of ``x``, grouped by expert, times the transposed weights of their expert, and an activation. ``x`` has a
    gradient, and autocast converts it. PyTorch computes the activation where it does so for ``linear``."""
    _require_constant(weight)
    tensors = _autocast(x, x), weight.packed, weight.scales, weight.zeros, offsets
    if runs_directly(*tensors) and not (torch.is_grad_enabled() and tensors[0].requires_grad):
        return _jagged(*tensors, weight.format, weight.precision, activation)
    result: Tensor = QUANTIZED_JAGGED(*tensors, weight.format, weight.precision)
    if activation is None:
        return result
    return activations.rows_of_experts(activations.ACTIVATION(result, activation, -1), offsets)


def _require_constant(weight: QuantizedWeight) -> None:
    """InputError: gradients are recorded and the scales of ``weight`` require one."""
    if torch.is_grad_enabled() and weight.scales.requires_grad:
        raise InputError(
            "scales of weight requires a gradient, and a QuantizedWeight has none; pass scales.detach() to it, or call"
            " inside torch.no_grad()"
        )


def _autocast(x: Tensor, input: Tensor) -> Tensor:
    """``x`` in the dtype of autocast on the device of ``input``, if that is on."""
    device = input.device.type
    if device == "meta":
        return x
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


def _shape(input: Tensor, n: int, k: int, bias: Tensor | None) -> tuple[int, ...]:
    """The shape of the result. ShapeError, DtypeError: ``input`` or ``bias`` does not match a weight of ``n`` rows and
    ``k`` columns."""
    if input.dtype not in ACTIVATIONS:
        raise DtypeError(
            f"input is {input.dtype}; with a QuantizedWeight it must be {' or '.join(map(str, ACTIVATIONS))}"
        )
    if input.dim() == 0 or input.shape[-1] != k:
        raise ShapeError(f"input has shape {tuple(input.shape)}; its last axis must have {k} elements, K of weight")
    if bias is not None and tuple(bias.shape) != (n,):
        raise ShapeError(f"bias has shape {tuple(bias.shape)}; it must be ({n},), the rows of weight")
    return *input.shape[:-1], n


def _product(input: Tensor, weight: QuantizedWeight, bias: Tensor | None, activation: str | None = None) -> Tensor:
    check_operands(input=input, bias=bias)
    n, k = quantized_calls.matrix_shape(weight)
    shape = _shape(input, n, k, bias)
    a = input.resolve_neg().reshape(math.prod(shape[:-1]), k).detach()
    epilogue = None, None, launching.vector(bias), None, activation, None
    deterministic = torch.are_deterministic_algorithms_enabled()
    with call_lock.lock:
        result: Tensor = quantized_calls.multiply(a, weight, None, 1.0, 0.0, None, deterministic, epilogue, None)
    return result.view(*shape[:-1], result.shape[-1])


def _kernel(
    input: Tensor,
    packed: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    bias: Tensor | None,
    format: str,
    precision: str,
) -> Tensor:
    with torch.no_grad():
        return _product(input, QuantizedWeight(packed, scales, zeros, format=format, precision=precision), bias)


def _fake(
    input: Tensor,
    packed: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    bias: Tensor | None,
    format: str,
    precision: str,
) -> Tensor:
    check_operands(input=input, bias=bias)
    k = packed.shape[1] * WEIGHT_FORMATS[format].per_byte
    return input.new_empty(_shape(input, packed.shape[0], k, bias))


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    _, packed, scales, zeros, bias, ctx.format, _ = inputs
    ctx.bias_shape = None if bias is None else bias.shape
    ctx.save_for_backward(packed, scales, zeros)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    packed, scales, zeros = ctx.saved_tensors
    of_input = of_bias = None
    if ctx.needs_input_grad[0]:
        dense = dequantized(packed, scales, zeros, ctx.format).to(grad.dtype)
        of_input = torch.ops.ptxgen.matmul(grad, dense)  # that of products, which imports this module
    if ctx.bias_shape is not None and ctx.needs_input_grad[4]:
        of_bias = grad.sum_to_size(ctx.bias_shape)
    return of_input, None, None, None, of_bias, None, None


def _jagged(
    x: Tensor,
    packed: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    offsets: Tensor,
    format: str,
    precision: str,
    activation: str | None = None,
) -> Tensor:
    check_operands(x=x)
    weight = QuantizedWeight(packed, scales, zeros, format=format, precision=precision)
    activation = activation_name(activation)
    out = x.new_zeros((*x.shape[:-1], columns_of_c(packed.shape[-2], activation, "w")))
    deterministic = torch.are_deterministic_algorithms_enabled()
    with torch.no_grad():
        result: Tensor = quantized_jagged.multiply(
            x.resolve_neg(), weight, offsets, out, 1.0, 0.0, None, deterministic, {}, activation
        )
    return result


def _fake_jagged(
    x: Tensor, packed: Tensor, scales: Tensor, zeros: Tensor | None, offsets: Tensor, format: str, precision: str
) -> Tensor:
    check_operands(x=x)
    return x.new_empty((*x.shape[:-1], packed.shape[-2]))


def _save_jagged(ctx: Any, inputs: Any, output: Any) -> None:
    *_, ctx.format, _ = inputs
    ctx.save_for_backward(*inputs[1:5])


def _jagged_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    packed, scales, zeros, offsets = ctx.saved_tensors
    of_x = None
    if ctx.needs_input_grad[0]:
        dense = dequantized(packed, scales, zeros, ctx.format).to(grad.dtype)
        of_x = torch.ops.ptxgen.gemm_jagged(grad.contiguous(), dense, offsets)  # of grouped, which imports this module
    return of_x, None, None, None, None, None, None


def _call_jagged(*args: Any) -> Tensor:
    result: Tensor = QUANTIZED_JAGGED(*args)
    return result


def _call(*args: Any) -> Tensor:
    result: Tensor = QUANTIZED_LINEAR(*args)
    return result


QUANTIZED_LINEAR = Operator(
    "quantized_linear(Tensor input, Tensor packed, Tensor scales, Tensor? zeros, Tensor? bias, str format, "
    "str precision) -> Tensor",
    5,
    _kernel,
    _fake,
    _save,
    _backward,
    loop_over_batch(_call),
    autocasts=False,
)
QUANTIZED_JAGGED = Operator(
    "quantized_jagged(Tensor x, Tensor packed, Tensor scales, Tensor? zeros, Tensor offsets, str format, "
    "str precision) -> Tensor",
    5,
    _jagged,
    _fake_jagged,
    _save_jagged,
    _jagged_backward,
    loop_over_batch(_call_jagged),
    autocasts=False,
)
