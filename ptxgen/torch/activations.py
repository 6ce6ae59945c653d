"""Activations of sums, and their gradients, as functions of tensors: what PyTorch computes of the sums that a kernel
has stored."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.compiler import assume_constant_result, is_dynamo_compiling
from torch.nn.functional import gelu, relu, silu

from ptxgen.api.epilogue_args import activation_name, columns_of_c, text_of
from ptxgen.errors import InputError
from ptxgen.expr.derivative import derivatives
from ptxgen.expr.node import Node, constant, substituted, variable
from ptxgen.expr.python_text import TORCH, PythonText
from ptxgen.problem.dtypes import HALVES, canonical
from ptxgen.problem.epilogue_ops import epilogue_op
from ptxgen.torch.memory_formats import in_memory_format, memory_format
from ptxgen.torch.operator import Operator, loop_over_batch

_aten: Any = torch.ops.aten


def _silu_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of SiLU. PyTorch's kernel has no derivative of its own."""
    if not torch.is_grad_enabled():
        result: Tensor = _aten.silu_backward(grad, x)
        return result
    share = torch.sigmoid(x)
    return grad * share * (1 + x * (1 - share))


_tanh_gelu = functools.partial(gelu, approximate="tanh")
#: name of an activation -> (its value for sums, the gradient of the sums for the gradient of the result and the sums)
_NAMED: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "relu": (relu, lambda grad, x: _aten.threshold_backward(grad, x, 0)),
    "gelu": (_tanh_gelu, lambda grad, x: _aten.gelu_backward(grad, x, approximate="tanh")),
    "gelu_erf": (gelu, lambda grad, x: _aten.gelu_backward(grad, x)),
    "silu": (silu, _silu_gradient),
    "tanh": (torch.tanh, lambda grad, x: _aten.tanh_backward(grad, torch.tanh(x))),
    "sigmoid": (torch.sigmoid, lambda grad, x: _aten.sigmoid_backward(grad, torch.sigmoid(x))),
}
#: name of a gated activation -> the activation of the gate
_GATES = {"swiglu": "silu", "geglu": "gelu"}


def given(activation: Any) -> str:
    """The argument ``activation`` of a call as operators take it. InputError: it is unknown, breaks a rule or reads an
    array; in ``torch.compile``, it is no text."""
    if not is_dynamo_compiling():
        return checked(activation)
    if not isinstance(activation, str):
        raise InputError(f"activation is a {type(activation).__name__}; in torch.compile it must be a text")
    return _traced_check(activation)


def _check(activation: str) -> str:
    return checked(activation)


def _is_gated(text: str) -> bool:
    """True if the activation makes one element of two sums."""
    return epilogue_op(text).gated


# dynamo calls these functions instead of tracing them
_traced_check: Callable[[str], str] = assume_constant_result(_check)
is_gated: Callable[[str], bool] = assume_constant_result(_is_gated)


def given_elementwise(activation: Any) -> str:
    """``given`` for a transposed convolution, whose activation takes one sum. InputError: it takes two."""
    return require_elementwise(given(activation))


def require_elementwise(text: str) -> str:
    """The activation. InputError: it is gated."""
    if is_gated(text):
        raise InputError(
            f"activation is {text!r}, a gated activation, which takes two sums; that of a transposed convolution must"
            " be of x alone"
        )
    return text


def records_gradient(*tensors: Any) -> bool:
    """True if the gradient of a tensor is recorded."""
    return torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in tensors)


def gradient_of_sums(
    ctx: Any, grad: Tensor | None, of_sums: Tensor | None, compute: Callable[[], Tensor]
) -> Tensor | None:
    """The gradient of the sums in the backward step of an operator that returns the activation of sums, and the sums.
    ``grad``, ``of_sums``: the gradients of both; ``compute``: computes sums that ``save`` did not keep. None: there is
    no gradient."""
    if not ctx.keeps_sums:
        of_sums = None
    if grad is None:
        return of_sums
    sums = ctx.saved_tensors[-1] if ctx.keeps_sums else compute()
    through = gradient(checked(ctx.activation), grad, sums)
    return (through if of_sums is None else through + of_sums).contiguous()


def save(ctx: Any, inputs: Any, output: Any) -> None:
    """``setup`` of such an operator, whose last arguments are the activation, and True if the sums are kept."""
    *tensors, ctx.activation, ctx.keeps_sums = inputs
    ctx.save_for_backward(*tensors, output[1] if ctx.keeps_sums else None)
    ctx.set_materialize_grads(False)


def pairs_over_batch(operator: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., Any]:
    """``loop_over_batch`` of an operator that returns a pair."""
    loop = loop_over_batch(lambda *args: list(operator(*args)))

    def batch(info: Any, dims: tuple[Any, ...], *args: Any) -> Any:
        results, at = loop(info, dims, *args)
        return tuple(results), tuple(at)

    return batch


def checked(activation: Any) -> str:
    """The name or the canonical text of an activation of sums. InputError: it is unknown, breaks a rule or reads an
    array."""
    return _checked(activation) if isinstance(activation, str) else _checked(text_of(activation))


@functools.lru_cache(maxsize=256)
def _checked(activation: Any) -> str:
    text = activation_name(activation, aux=False)
    if text is None:
        raise InputError("activation is None; it must be a name, an expression or a function of x, or of x and up")
    if epilogue_op(text).arrays:
        raise InputError(
            f"activation is {activation!r}, which reads aux; it must be an activation of x, or of x and up"
        )
    return text


@functools.lru_cache(maxsize=256)
def keeps_zero(text: str) -> bool:
    """True if the activation of sums that are 0 is 0."""
    numbers = torch.zeros(1, 2, dtype=torch.float64)
    return not value(text, numbers).count_nonzero().item()


def rows_of_experts(values: Tensor, offsets: Tensor) -> Tensor:
    """``values``, the activations of sums of experts, with zeros in the rows after the last offset."""
    if not len(offsets):
        return torch.zeros_like(values)
    after = torch.arange(len(values), device=values.device) >= offsets[-1]
    return values.masked_fill(after[:, None], 0)


def columns(sums: int, text: str) -> int:
    """The number of columns of the result for ``sums`` columns of sums: half of them for a gated activation, which
    takes the rows of a weight in pairs. ShapeError: they are odd."""
    return columns_of_c(sums, text, "the product")


def has_kernel(text: str, dtype: torch.dtype) -> bool:
    """True if kernels compute the activation of sums of tensors of this dtype."""
    op, name = epilogue_op(text), canonical(str(dtype))
    return op.computes("f64" if name == "f64" else "f32") and (not op.gated or name in HALVES)


def value(text: str, sums: Tensor, axis: int = -1) -> Tensor:
    """The activation of ``sums``, a new tensor. ``axis``: that of the pairs of sums of a gated activation, whose result
    has the memory format of ``sums``. Arithmetic is float64 for float64, else float32."""
    if text in _NAMED:
        return _NAMED[text][0](sums)
    if text in _GATES:
        gate, up = _pairs(sums, axis)
        return in_memory_format(_NAMED[_GATES[text]][0](gate) * up, memory_format(sums))
    [result] = _value(text, _type(sums))(*_operands(text, sums, axis))
    result = result.to(sums.dtype) if result.dtype is not sums.dtype else result.clone()
    return in_memory_format(result, memory_format(sums)) if epilogue_op(text).gated else result


def gradient(text: str, grad: Tensor, sums: Tensor, axis: int = -1) -> Tensor:
    """The gradient of ``sums`` for ``grad``, that of their activation. ``axis``: as for ``value``. TaskError: an
    operator of the activation has no derivative."""
    if text in _NAMED:
        return _NAMED[text][1](grad, sums)
    if text in _GATES:
        of_value, of_gradient = _NAMED[_GATES[text]]
        gate, up = _pairs(sums, axis)
        return _joined([of_gradient(grad * up, gate), grad * of_value(gate)], axis)
    slopes = _slopes(text, _type(sums))(*_operands(text, sums, axis))
    parts = [(grad * slope).to(sums.dtype) for slope in slopes]
    return _joined(parts, axis) if epilogue_op(text).gated else parts[0]


def _pairs(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Every other element along an axis, the gates, and the elements between them."""
    before = (slice(None),) * (axis % x.dim())
    return x[(*before, slice(None, None, 2))], x[(*before, slice(1, None, 2))]


def _joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    """The inverse of ``_pairs``."""
    axis %= parts[0].dim()
    return torch.stack(tuple(parts), axis + 1).flatten(axis, axis + 1)


def _type(x: Tensor) -> str:
    return "f64" if x.dtype is torch.float64 else "f32"


def _operands(text: str, sums: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The variables ``x`` and ``up`` of an activation, in the type of its arithmetic."""
    wide = sums.to(torch.float64 if _type(sums) == "f64" else torch.float32)
    return _pairs(wide, axis) if epilogue_op(text).gated else (wide, wide)


@functools.cache
def _value(text: str, type: str) -> Callable[[Tensor, Tensor], list[Tensor]]:
    """The activation as a function of the tensors x and up; its result is a list of one tensor."""
    return _function([_expression(text, type)], type)


@functools.cache
def _slopes(text: str, type: str) -> Callable[[Tensor, Tensor], list[Tensor]]:
    """The derivatives with respect to x, and to up if the activation is gated, as a function of the tensors x and
    up."""
    names = ("x", "operand") if epilogue_op(text).gated else ("x",)
    slopes = derivatives(_expression(text, type), names)
    return _function([slopes.get(name, constant(0, type)) for name in names], type)


def _expression(text: str, type: str) -> Node:
    """The activation of the variables ``x``, and ``operand``, the sum of the next column."""
    root: Node = variable("x", type)
    for step in epilogue_op(text).steps:
        root = substituted(step.expression(type), {"x": root})
    return root


def _function(roots: Sequence[Node], type: str) -> Callable[[Tensor, Tensor], list[Tensor]]:
    """The values of expressions as a function of the tensors x and up."""
    text = PythonText(roots, {variable("x", type): "x", variable("operand", type): "up"}, TORCH)
    results = ", ".join(text(root) for root in roots)
    lines = ("def values(x, up):", *text.definitions, f"return [{results}]")
    scope: dict[str, Any] = {"torch": torch}
    exec("\n    ".join(lines), scope)  # the text has operators and numbers alone
    values: Callable[[Tensor, Tensor], list[Tensor]] = scope["values"]
    return values


# ---- the activation of results, where a kernel does not compute it


def _kernel(sums: Tensor, activation: str, axis: int) -> Tensor:
    text = checked(activation)
    columns(sums.shape[axis], text)
    return value(text, sums, axis)


def _fake(sums: Tensor, activation: str, axis: int) -> Tensor:
    text = checked(activation)
    if not is_gated(text):
        return torch.empty_like(sums)
    shape = list(sums.shape)
    shape[axis] = columns(shape[axis], text)
    return torch.empty(shape, dtype=sums.dtype, device=sums.device, memory_format=memory_format(sums))


def _save_sums(ctx: Any, inputs: Any, output: Any) -> None:
    sums, ctx.activation, ctx.axis = inputs
    ctx.save_for_backward(sums)


def _backward_of_sums(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    (sums,) = ctx.saved_tensors
    return gradient(checked(ctx.activation), grad, sums, ctx.axis), None, None


def _batch(info: Any, dims: tuple[Any, ...], sums: Tensor, activation: str, axis: int) -> tuple[Tensor, int]:
    result: Tensor = ACTIVATION(sums.movedim(dims[0], 0), activation, axis + (axis >= 0))
    return result, 0


ACTIVATION = Operator(
    "activation(Tensor sums, str activation, int axis) -> Tensor",
    1,
    _kernel,
    _fake,
    _save_sums,
    _backward_of_sums,
    _batch,
    autocasts=False,
)
