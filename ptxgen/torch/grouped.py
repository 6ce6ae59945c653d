"""Grouped and jagged products: in one launch, many products of different shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ptxgen.api import grouped, jagged
from ptxgen.api.quantized_weight import QuantizedWeight
from ptxgen.errors import InputError, ShapeError
from ptxgen.torch import activations, quantized
from ptxgen.torch.launching import DTYPES, check_operands
from ptxgen.torch.operator import Operator, in_transform, is_grad_enabled, loop_over_batch, runs_directly
from ptxgen.torch.products import MATMUL


def gemm_grouped(
    a: Sequence[Tensor], b: Sequence[Tensor], *, activation: str | Callable[..., Any] | None = None
) -> list[Tensor]:
    """The products A_i·B_i of two lists of matrices, in one launch. Each item i has its own M, N and K: ``a[i]`` is
    M×K, ``b[i]`` is K×N.

    ``activation``: as for ``linear``; a gated one takes the columns of each ``b[i]`` in pairs, a gate and a value in
    turn, and the result is M×N/2. The kernel computes it, and stores the sums if a gradient is recorded; PyTorch
    computes it in transforms of ``torch.func``.

    Dtypes: as for ``matmul``; all items have the same. ShapeError, DtypeError, InputError: an argument breaks a rule.
    """
    text = None if activation is None else activations.given(activation)
    if not a and not b:  # the dispatcher takes no call without tensors
        return []
    if len(a) != len(b):
        _check_grouped(a, b)
    return _products(a, b) if text is None else _activated_products(a, b, text)


def _activated_products(a: Sequence[Tensor], b: Sequence[Tensor], text: str) -> list[Tensor]:
    if in_transform():
        _check_pairs(a, b, text)
        return [activations.ACTIVATION(sums, text, -1) for sums in _products(a, b)]
    keeps_sums = activations.records_gradient(*a, *b)
    if runs_directly(*a, *b):
        try:
            if keeps_sums:
                return list(_RecordActivated.apply(len(a), text, *a, *b)[: len(a)])
            if activations.has_kernel(text, a[0].dtype):
                return _grouped(a, b, text)
        except (AttributeError, RuntimeError, InputError):  # tensors of the device meta, and errors
            pass
    results: list[Tensor] = GROUPED_ACTIVATION(list(a), list(b), text, keeps_sums)[: len(a)]
    return results


def _products(a: Sequence[Tensor], b: Sequence[Tensor]) -> list[Tensor]:
    if in_transform():  # a torch.autograd.Function computes no gradients of tensors in lists
        _check_grouped(a, b)
        return [MATMUL(x, y) for x, y in zip(a, b, strict=True)]
    if runs_directly(*a, *b):
        try:
            return list(_Record.apply(len(a), *a, *b)) if is_grad_enabled() else _grouped(a, b)
        except (RuntimeError, InputError):  # tensors of the device meta, and errors
            pass
    results: list[Tensor] = GEMM_GROUPED(list(a), list(b))
    return results


def gemm_jagged(
    x: Tensor,
    w: Tensor | QuantizedWeight,
    offsets: Tensor,
    *,
    bias: Tensor | None = None,
    activation: str | Callable[..., Any] | None = None,
) -> Tensor:
    """Rows of ``x`` (T×K), grouped by expert, times the weights of their expert, plus its bias: T×N.

    ``w``: E×K×N. ``offsets``: E int32, for each expert the end of its rows (the index after its last row), as for
    ``torch._grouped_mm``; offsets on a GPU are read there, without synchronisation. Result rows after the last offset
    are zero. ``bias``: E×N, of the dtype of ``x``; its gradient is the sum of the rows of each expert. ``activation``:
    as for ``linear``; a gated one (swiglu, geglu, or an expression of ``x`` and ``up``) takes the columns of each
    weight in pairs, a gate and a value in turn, and the result is T×N/2. If a gradient is recorded, the kernel also
    stores the sums, of which PyTorch computes the gradient of the activation. Dtypes: as for ``matmul``. ``w`` may be a
    ``QuantizedWeight`` of E×N×K, which is transposed: ``x`` is then float16 or bfloat16 and has a gradient, the weight
    has none, and ``bias`` must be None.

    ShapeError, DtypeError, InputError: an argument breaks a rule.
    """
    if isinstance(w, QuantizedWeight):
        if bias is not None:
            raise InputError("bias is given and w is a QuantizedWeight; bias must then be None")
        return quantized.gemm_jagged(x, w, offsets, None if activation is None else activations.given(activation))
    if activation is not None:
        text, keeps_sums = activations.given(activation), activations.records_gradient(x, w, bias)
        rows: Tensor = JAGGED_ACTIVATION(x, w, offsets, bias, text, keeps_sums)[0]
        return rows
    return _sums(x, w, offsets, bias)


def _sums(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None) -> Tensor:
    """``gemm_jagged`` without an activation."""
    result: Tensor = GEMM_JAGGED(x, w, offsets) if bias is None else JAGGED_BIAS(x, w, offsets, bias)
    return result


def _weight_grad(x: Tensor, grad: Tensor, offsets: Tensor) -> Tensor:
    """The gradient of ``gemm_jagged`` with respect to ``w``."""
    result: Tensor = GEMM_JAGGED_WEIGHT_GRAD(x, grad, offsets)
    return result


# ---- kernels


class _Record(torch.autograd.Function):
    """``gemm_grouped`` as a function that records gradients. Its arguments are the number of items, then A of all
    items, then B of all items."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        _save_lists(ctx, (tensors[:count], tensors[count:]), None)
        return tuple(_grouped(tensors[:count], tensors[count:]))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        da, db = _gradients(ctx, grads, ctx.needs_input_grad[1 : 1 + ctx.count], ctx.needs_input_grad[1 + ctx.count :])
        return None, *da, *db


class _RecordActivated(torch.autograd.Function):
    """``_Record`` with an activation, the second argument. The results are the activations of all items, then their
    sums."""

    @staticmethod
    def forward(ctx: Any, count: int, text: str, *tensors: Tensor) -> tuple[Tensor, ...]:
        inputs = tensors[:count], tensors[count:], text, True
        results = _grouped_activation(*inputs)
        _save_grouped_activation(ctx, inputs, results)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        dy, needs = _gradients_of_sums(ctx, grads), ctx.needs_input_grad[2:]
        da, db = _gradients(ctx, dy, needs[: ctx.count], needs[ctx.count :])
        return None, None, *da, *db


def _grouped(
    a: Sequence[Tensor], b: Sequence[Tensor], text: str | None = None, sums: list[Tensor] | None = None
) -> list[Tensor]:
    dtype = a[0].dtype
    if len(a) != len(b) or dtype not in DTYPES or any(x.dtype is not dtype or x.dim() != 2 for x in (*a, *b)):
        _check_grouped(a, b)  # the messages; it takes microseconds for each item
    return grouped.gemm_grouped(list(a), list(b), activation=text, sums=sums)


def _grouped_activation(a: Sequence[Tensor], b: Sequence[Tensor], activation: str, keeps_sums: bool) -> list[Tensor]:
    """The results of all items, and, if ``keeps_sums``, their sums."""
    text = activations.checked(activation)
    _check_pairs(a, b, text)
    if not activations.has_kernel(text, a[0].dtype):
        sums = _grouped(a, b)
        return [*(activations.value(text, x) for x in sums), *(sums if keeps_sums else ())]
    sums = [x.new_empty(x.shape[0], y.shape[1]) for x, y in zip(a, b, strict=True)] if keeps_sums else []
    return [*_grouped(a, b, text, sums or None), *sums]


def _jagged(x: Tensor, w: Tensor, offsets: Tensor) -> Tensor:
    shape = _jagged_shape(x, w, offsets)
    out: Tensor = jagged.gemm_jagged(x.resolve_neg(), w.resolve_neg(), offsets, out=x.new_zeros(shape))
    return out


def _jagged_bias(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor) -> Tensor:
    out = x.new_zeros(_shape_with_bias(x, w, offsets, bias))
    operands = x.resolve_neg(), w.resolve_neg(), offsets
    result: Tensor = jagged.gemm_jagged(*operands, out=out, bias=bias.resolve_neg().contiguous())
    return result


def _jagged_activation(
    x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, activation: str, keeps_sums: bool
) -> tuple[Tensor, Tensor]:
    """The result and the sums, which are empty unless ``keeps_sums``."""
    text = activations.checked(activation)
    shape = _activated_shape(x, w, offsets, bias, text)
    if activations.has_kernel(text, x.dtype):
        rows, sums = x.new_zeros(shape), x.new_zeros((shape[0], w.shape[2]) if keeps_sums else (0,))
        added, stored = None if bias is None else bias.resolve_neg().contiguous(), sums if keeps_sums else None
        operands = x.resolve_neg(), w.resolve_neg(), offsets
        jagged.gemm_jagged(*operands, out=rows, bias=added, activation=text, sums=stored)
        return rows, sums
    sums = _jagged(x, w, offsets) if bias is None else _jagged_bias(x, w, offsets, bias)
    values = activations.value(text, sums)
    if not activations.keeps_zero(text):
        values = activations.rows_of_experts(values, offsets)
    return values, sums if keeps_sums else x.new_empty(0)


def _jagged_weight_grad(x: Tensor, grad: Tensor, offsets: Tensor) -> Tensor:
    out = x.new_empty(_jagged_weight_grad_shape(x, grad, offsets))
    result: Tensor = jagged.gemm_jagged_weight_grad(x.resolve_neg(), grad.resolve_neg(), offsets, out=out)
    return result


# ---- shapes


def _check_grouped(a: Sequence[Tensor], b: Sequence[Tensor]) -> None:
    if len(a) != len(b):
        raise InputError(f"a has {len(a)} items and b has {len(b)}; they must have as many")
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        check_operands(**{f"a[{i}]": x, f"b[{i}]": y})
        if x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[0]:
            raise ShapeError(
                f"a[{i}] has shape {tuple(x.shape)} and b[{i}] {tuple(y.shape)}; they must be matrices, and the columns"
                " of a the rows of b"
            )


def _check_pairs(a: Sequence[Tensor], b: Sequence[Tensor], text: str) -> None:
    """``_check_grouped`` of products with an activation: a gated one takes an even number of columns."""
    _check_grouped(a, b)
    for i, y in enumerate(b):
        if activations.is_gated(text) and y.shape[1] % 2:
            raise ShapeError(
                f"b[{i}] has {y.shape[1]} columns; a gated activation takes an even number, a gate and a value in turn"
            )


def _fake_grouped(a: Sequence[Tensor], b: Sequence[Tensor]) -> list[Tensor]:
    _check_grouped(a, b)
    return [x.new_empty(x.shape[0], y.shape[1]) for x, y in zip(a, b, strict=True)]


def _fake_grouped_activation(
    a: Sequence[Tensor], b: Sequence[Tensor], activation: str, keeps_sums: bool
) -> list[Tensor]:
    text = activations.checked(activation)
    _check_pairs(a, b, text)
    sums = _fake_grouped(a, b)
    results = [x.new_empty(x.shape[0], activations.columns(x.shape[1], text)) for x in sums]
    return [*results, *(sums if keeps_sums else ())]


def _jagged_shape(x: Tensor, w: Tensor, offsets: Tensor) -> tuple[int, int]:
    check_operands(x=x, w=w)
    if x.dim() != 2 or w.dim() != 3 or x.shape[1] != w.shape[1] or offsets.shape != w.shape[:1]:
        raise ShapeError(
            f"x has shape {tuple(x.shape)}, w {tuple(w.shape)} and offsets {tuple(offsets.shape)}; they must be T×K,"
            " E×K×N and E"
        )
    return x.shape[0], w.shape[2]


def _shape_with_bias(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None) -> tuple[int, int]:
    shape = _jagged_shape(x, w, offsets)
    if bias is None:
        return shape
    check_operands(x=x, bias=bias)
    if tuple(bias.shape) != (w.shape[0], w.shape[2]):
        raise ShapeError(f"bias has shape {tuple(bias.shape)}; it must be ({w.shape[0]}, {w.shape[2]}), E×N of w")
    return shape


def _activated_shape(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, text: str) -> tuple[int, int]:
    rows, columns = _shape_with_bias(x, w, offsets, bias)
    return rows, activations.columns(columns, text)


def _jagged_weight_grad_shape(x: Tensor, grad: Tensor, offsets: Tensor) -> tuple[int, int, int]:
    check_operands(x=x, grad=grad)
    if x.dim() != 2 or grad.dim() != 2 or x.shape[0] != grad.shape[0] or offsets.dim() != 1:
        raise ShapeError(
            f"x has shape {tuple(x.shape)}, grad {tuple(grad.shape)} and offsets {tuple(offsets.shape)}; they must be"
            " T×K, T×N and E"
        )
    return offsets.shape[0], x.shape[1], grad.shape[1]


def _fake_jagged(x: Tensor, w: Tensor, offsets: Tensor) -> Tensor:
    return x.new_empty(_jagged_shape(x, w, offsets))


def _fake_jagged_bias(x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(_shape_with_bias(x, w, offsets, bias))


def _fake_jagged_activation(
    x: Tensor, w: Tensor, offsets: Tensor, bias: Tensor | None, activation: str, keeps_sums: bool
) -> tuple[Tensor, Tensor]:
    shape = _activated_shape(x, w, offsets, bias, activations.checked(activation))
    return x.new_empty(shape), x.new_empty((shape[0], w.shape[2]) if keeps_sums else (0,))


def _fake_jagged_weight_grad(x: Tensor, grad: Tensor, offsets: Tensor) -> Tensor:
    return x.new_empty(_jagged_weight_grad_shape(x, grad, offsets))


# ---- gradients


def _save_lists(ctx: Any, inputs: Any, output: Any) -> None:
    a, b = inputs
    ctx.count = len(a)
    ctx.save_for_backward(*a, *b)


def _grouped_backward(ctx: Any, grads: Sequence[Tensor]) -> tuple[Any, Any]:
    return _gradients(ctx, grads, *ctx.needs_input_grad)


def _gradients(ctx: Any, grads: Sequence[Tensor], needs_a: Sequence[bool], needs_b: Sequence[bool]) -> tuple[Any, Any]:
    a, b = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count : 2 * ctx.count]
    dy = [g.contiguous() for g in grads]
    none = [None] * ctx.count
    return (
        gemm_grouped(dy, [y.mT for y in b]) if any(needs_a) else none,
        gemm_grouped([x.mT for x in a], dy) if any(needs_b) else none,
    )


def _save_grouped_activation(ctx: Any, inputs: Any, output: Any) -> None:
    a, b, ctx.activation, ctx.keeps_sums = inputs
    ctx.count = len(a)
    ctx.save_for_backward(*a, *b, *output[len(a) :])
    ctx.set_materialize_grads(False)


def _gradients_of_sums(ctx: Any, grads: Sequence[Tensor | None]) -> list[Tensor]:
    """The gradients of the sums of all items. ``grads``: those of the results, and of the sums that were kept."""
    count, text, tensors = ctx.count, activations.checked(ctx.activation), ctx.saved_tensors
    kept = tensors[2 * count :] if ctx.keeps_sums else gemm_grouped(tensors[:count], tensors[count:])
    dy = []
    for sums, grad, of_sums in zip(kept, grads[:count], grads[count:] or [None] * count, strict=True):
        through = torch.zeros_like(sums) if grad is None else activations.gradient(text, grad, sums)
        dy.append(through if of_sums is None else through + of_sums)
    return dy


def _grouped_activation_backward(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[Any, ...]:
    return *_gradients(ctx, _gradients_of_sums(ctx, grads), *ctx.needs_input_grad[:2]), None, None


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _jagged_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (x, w, offsets), needs, grad = ctx.saved_tensors, ctx.needs_input_grad, grad.contiguous()
    return (
        GEMM_JAGGED(grad, w.mT, offsets) if needs[0] else None,
        _weight_grad(x, grad, offsets) if needs[1] else None,
        None,
    )


def _save_without_bias(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:3])


def _jagged_bias_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    of_bias = _bias_grad(grad, ctx.saved_tensors[2]) if ctx.needs_input_grad[3] else None
    return *_jagged_backward(ctx, grad), of_bias


def _bias_grad(grad: Tensor, offsets: Tensor) -> Tensor:
    """The sums of the rows of each expert."""
    return _weight_grad(grad.new_ones(len(grad), 1), grad.contiguous(), offsets)[:, 0]


def _call_jagged_bias(*args: Any) -> Tensor:
    result: Tensor = JAGGED_BIAS(*args)
    return result


def _jagged_activation_backward(ctx: Any, grad: Tensor | None, of_sums: Tensor | None) -> tuple[Tensor | None, ...]:
    x, w, offsets, bias, _ = ctx.saved_tensors
    needs = ctx.needs_input_grad
    dy = activations.gradient_of_sums(ctx, grad, of_sums, lambda: _sums(x, w, offsets, bias))
    if dy is None:
        return (None,) * 6
    return (
        GEMM_JAGGED(dy, w.mT, offsets) if needs[0] else None,
        _weight_grad(x, dy, offsets) if needs[1] else None,
        None,
        _bias_grad(dy, offsets) if needs[3] else None,
        None,
        None,
    )


def _jagged_weight_grad_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (x, dy, offsets), needs, grad = ctx.saved_tensors, ctx.needs_input_grad, grad.contiguous()
    return (
        GEMM_JAGGED(dy, grad.mT, offsets) if needs[0] else None,
        GEMM_JAGGED(x, grad, offsets) if needs[1] else None,
        None,
    )


def _call_grouped_activation(*args: Any) -> list[Tensor]:
    results: list[Tensor] = GROUPED_ACTIVATION(*args)
    return results


def _call_activated(*args: Any) -> tuple[Tensor, Tensor]:
    result: tuple[Tensor, Tensor] = JAGGED_ACTIVATION(*args)
    return result


GEMM_GROUPED = Operator(
    "gemm_grouped(Tensor[] a, Tensor[] b) -> Tensor[]",
    2,
    _grouped,
    _fake_grouped,
    _save_lists,
    _grouped_backward,
    loop_over_batch(gemm_grouped),
)
GROUPED_ACTIVATION = Operator(
    "gemm_grouped_activation(Tensor[] a, Tensor[] b, str activation, bool keeps_sums) -> Tensor[]",
    2,
    _grouped_activation,
    _fake_grouped_activation,
    _save_grouped_activation,
    _grouped_activation_backward,
    loop_over_batch(_call_grouped_activation),
)
GEMM_JAGGED = Operator(
    "gemm_jagged(Tensor x, Tensor w, Tensor offsets) -> Tensor",
    3,
    _jagged,
    _fake_jagged,
    _save,
    _jagged_backward,
    loop_over_batch(gemm_jagged),
)
JAGGED_BIAS = Operator(
    "gemm_jagged_bias(Tensor x, Tensor w, Tensor offsets, Tensor bias) -> Tensor",
    4,
    _jagged_bias,
    _fake_jagged_bias,
    _save_without_bias,
    _jagged_bias_backward,
    loop_over_batch(_call_jagged_bias),
)
JAGGED_ACTIVATION = Operator(
    "gemm_jagged_activation(Tensor x, Tensor w, Tensor offsets, Tensor? bias, str activation, bool keeps_sums) ->"
    " (Tensor, Tensor)",
    4,
    _jagged_activation,
    _fake_jagged_activation,
    activations.save,
    _jagged_activation_backward,
    activations.pairs_over_batch(_call_activated),
)
GEMM_JAGGED_WEIGHT_GRAD = Operator(
    "gemm_jagged_weight_grad(Tensor x, Tensor grad, Tensor offsets) -> Tensor",
    3,
    _jagged_weight_grad,
    _fake_jagged_weight_grad,
    _save,
    _jagged_weight_grad_backward,
    loop_over_batch(_weight_grad),
)
