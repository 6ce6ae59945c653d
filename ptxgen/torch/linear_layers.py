"""``linear``: linear maps of rows, with a bias and an activation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ptxgen.api import launches
from ptxgen.api.quantized_weight import QuantizedWeight
from ptxgen.torch import activations, launching, products, quantized
from ptxgen.torch.launching import check_operands, in_place, key_of
from ptxgen.torch.operator import Operator
from ptxgen.torch.products import LINEAR, MATMUL, to_front

Shape = tuple[int, ...]


def linear(
    input: Tensor,
    weight: Tensor | QuantizedWeight,
    bias: Tensor | None = None,
    *,
    activation: str | Callable[..., Any] | None = None,
) -> Tensor:
    """activation(input · weightᵀ + bias), as ``torch.nn.functional.linear``; the kernel adds the bias and computes the
    activation.

    ``input``: …×K. ``weight``: N×K. ``bias``: N elements. The result is …×N. If ``weight`` has K elements and there is
    no bias, the last axis of the result is absent. With a ``QuantizedWeight``, ``input`` is float16 or bfloat16, and
    its gradient is the product with the dequantized weight; the weight has no gradient. Dtypes and errors: as for
    ``matmul``.

    ``activation``: as for ``gemm``, without ``aux``; in ``torch.compile`` a text. A gated activation (swiglu, geglu, or
    an expression of ``x`` and ``up``) takes the rows of ``weight`` in pairs, a gate and a value in turn: the result is
    …×N/2. If a gradient is recorded, the kernel also stores the sums, of which PyTorch computes the gradient of the
    activation. For float64, if PTX lacks the functions or the activation is gated, PyTorch computes the activation of
    the sums.
    """
    text = None if activation is None else activations.given(activation)
    if isinstance(weight, QuantizedWeight):
        return quantized.linear(input, weight, bias, text)
    if text is not None:
        keeps_sums = activations.records_gradient(input, weight, bias)
        activated: Tensor = LINEAR_ACTIVATION(input, weight, bias, text, keeps_sums)[0]
        return activated
    if bias is None and isinstance(weight, Tensor) and weight.dim() == 1:
        return products.matmul(input, weight)
    result: Tensor = LINEAR(input, weight, bias)
    return result


def _key(input: Tensor, weight: Tensor, bias: Tensor | None, text: str, keeps_sums: bool) -> Any:
    options = launching.settings(input, "matmul"), text, keeps_sums
    return key_of("linear_activation", options, input, weight, bias)


def linear_activation(
    input: Tensor, weight: Tensor, bias: Tensor | None, activation: str, keeps_sums: bool
) -> tuple[Tensor, Tensor]:
    """The activation of input · weightᵀ + bias, and the sums, which are empty unless ``keeps_sums``."""
    text = activations.checked(activation)
    key, at_input, at_weight, at_bias = _key(input, weight, bias, text, keeps_sums)
    launch = launches.cached(key)
    if launch is not None:
        sums = input.new_empty((*input.shape[:-1], weight.shape[0]) if keeps_sums else 0)
        addresses = (*at_bias, sums.data_ptr()) if keeps_sums else at_bias
        return launching.launch(*launch[:2], at_input, at_weight, addresses), sums
    shape = _shape(input, weight, bias, text)
    if not activations.has_kernel(text, input.dtype):
        sums = products.linear(input, weight, bias)
        return activations.value(text, sums), sums if keeps_sums else input.new_empty(0)
    sums = input.new_empty((*shape[:-1], weight.shape[0]) if keeps_sums else 0)
    rows, k = math.prod(shape[:-1]), weight.shape[1]
    a, b, c = input.resolve_neg().reshape(rows, k), weight.resolve_neg(), launching.vector(bias)
    key = key if in_place((a, input), (b, weight), (c, bias)) else None
    out, view = input.new_empty(shape), (rows, shape[-1])
    stored = sums if keeps_sums else None
    return products.multiply(key, a, b.t(), out, view, c, activation=text, sums=stored), sums


def _shape(input: Tensor, weight: Tensor, bias: Tensor | None, text: str) -> Shape:
    """The shape of the result. ShapeError, DtypeError, DeviceError, InputError: an argument breaks a rule."""
    check_operands(input=input, weight=weight, bias=bias)
    shape = products.linear_shape(input, weight, bias)
    return *shape[:-1], activations.columns(shape[-1], text)


def _fake(
    input: Tensor, weight: Tensor, bias: Tensor | None, activation: str, keeps_sums: bool
) -> tuple[Tensor, Tensor]:
    shape = _shape(input, weight, bias, activations.checked(activation))
    return input.new_empty(shape), input.new_empty((*shape[:-1], weight.shape[0]) if keeps_sums else (0,))


def _backward(ctx: Any, grad: Tensor | None, of_sums: Tensor | None) -> tuple[Tensor | None, ...]:
    input, weight, bias, _ = ctx.saved_tensors
    needs = ctx.needs_input_grad
    dy = activations.gradient_of_sums(ctx, grad, of_sums, lambda: LINEAR(input, weight, bias))
    if dy is None:
        return None, None, None, None, None
    of_input = MATMUL(dy, weight) if needs[0] else None
    return of_input, *products.weight_and_bias_grads(input, dy, needs[1:3]), None, None


def _call(*args: Any) -> tuple[Tensor, Tensor]:
    result: tuple[Tensor, Tensor] = LINEAR_ACTIVATION(*args)
    return result


def _batch(info: Any, dims: tuple[Any, ...], input: Tensor, weight: Tensor, bias: Any, *rest: Any) -> Any:
    if dims[1] is None and (bias is None or dims[2] is None):
        result = LINEAR_ACTIVATION(to_front(input, dims[0]), weight, bias, *rest)
        return tuple(result), (0, 0 if rest[1] else None)
    return activations.pairs_over_batch(_call)(info, dims, input, weight, bias, *rest)


LINEAR_ACTIVATION = Operator(
    "linear_activation(Tensor input, Tensor weight, Tensor? bias, str activation, bool keeps_sums) -> (Tensor, Tensor)",
    3,
    linear_activation,
    _fake,
    activations.save,
    _backward,
    _batch,
)
