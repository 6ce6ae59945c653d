"""``mlp``: two linear maps of rows with an activation between them, as one operator, so that the backward step computes
the gradient of the activation in the kernel of a product."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ptxgen.api import launches
from ptxgen.api.epilogue_args import gradient_name
from ptxgen.problem.epilogue_ops import arrays_of
from ptxgen.torch import activations, launching, linear_layers, products
from ptxgen.torch.launching import check_operands, in_place, key_of
from ptxgen.torch.operator import Operator, loop_over_batch
from ptxgen.torch.products import LINEAR, MATMUL, dense, linear_shape, sums_like, to_front, weight_and_bias_grads

Shape = tuple[int, ...]

#: the activations whose gradient is the same at the sums and at the results, so that the sums need not be stored
_BY_RESULTS = frozenset({"relu"})


def mlp(
    input: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    bias1: Tensor | None = None,
    bias2: Tensor | None = None,
    *,
    activation: str | Callable[..., Any] = "gelu",
) -> Tensor:
    """linear(linear(input, weight1, bias1, activation), weight2, bias2): two linear maps with an activation between
    them, as one operator.

    ``input``: …×K. ``weight1``: H×K. ``weight2``: N×H. ``bias1``: H elements. ``bias2``: N elements. The result is …×N.
    ``activation``: as for ``linear``; gelu is the tanh form. A gated activation takes the rows of ``weight1`` in pairs,
    a gate and a value in turn: ``weight1`` is 2H×K, and ``bias1`` has 2H elements.

    The kernel of the first map adds the bias, computes the activation, and, if a gradient is recorded, also stores the
    sums (for relu it need not). In the backward step the kernel of the product with ``weight2`` multiplies by the slope
    of the activation, and adds the elements of each column, which gives the gradient of ``bias1``. PyTorch computes
    this gradient for gated activations, for float64 if PTX lacks the functions, and in gradients that are
    differentiated again. Dtypes and errors: as for ``matmul``.
    """
    text = activations.given(activation)
    tensors = input, weight1, weight2, bias1, bias2
    result: Tensor = MLP(*tensors, text, activations.records_gradient(*tensors))[0]
    return result


# ---- forward


def _kernel(
    input: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    bias1: Tensor | None,
    bias2: Tensor | None,
    activation: str,
    keeps: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The result, the results of the activation, and the sums; the last two are empty unless ``keeps``, the sums also
    if the gradient does not read them."""
    text = activations.checked(activation)
    _shapes(input, weight1, weight2, bias1, bias2, text)
    hidden, sums = linear_layers.linear_activation(input, weight1, bias1, text, keeps and text not in _BY_RESULTS)
    return products.linear(hidden, weight2, bias2), hidden if keeps else input.new_empty(0), sums


def _shapes(
    input: Tensor, weight1: Tensor, weight2: Tensor, bias1: Tensor | None, bias2: Tensor | None, text: str
) -> tuple[Shape, Shape, Shape]:
    """The shapes of the result, of the results of the activation, and of the sums. ShapeError, DtypeError, DeviceError,
    InputError: an argument breaks a rule."""
    check_operands(input=input, weight1=weight1, weight2=weight2, bias1=bias1, bias2=bias2)
    sums = linear_shape(input, weight1, bias1, ("input", "weight1", "bias1"))
    hidden = *sums[:-1], activations.columns(sums[-1], text)
    names = "the result of the activation", "weight2", "bias2"
    return linear_shape(input.new_empty(hidden, device="meta"), weight2, bias2, names), hidden, sums


def _fake(
    input: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    bias1: Tensor | None,
    bias2: Tensor | None,
    activation: str,
    keeps: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    text = activations.checked(activation)
    result, hidden, sums = _shapes(input, weight1, weight2, bias1, bias2, text)
    kept = keeps and text not in _BY_RESULTS
    return input.new_empty(result), input.new_empty(hidden if keeps else (0,)), input.new_empty(sums if kept else (0,))


# ---- gradients


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    input, weight1, weight2, bias1, _, ctx.activation, ctx.keeps = inputs
    hidden, sums = output[1:] if ctx.keeps else (None, None)
    ctx.save_for_backward(input, weight1, weight2, bias1, hidden, sums)
    ctx.set_materialize_grads(False)


def _backward(
    ctx: Any, grad: Tensor | None, of_hidden: Tensor | None, of_sums: Tensor | None
) -> tuple[Tensor | None, ...]:
    input, weight1, weight2, bias1, hidden, sums = ctx.saved_tensors
    text, needs = activations.checked(ctx.activation), ctx.needs_input_grad
    if not ctx.keeps:  # the empty outputs have no gradient
        of_hidden = of_sums = None
        sums = LINEAR(input, weight1, bias1)
        hidden = activations.value(text, sums)
    elif text in _BY_RESULTS:
        of_sums, sums = None, hidden
    d_sums = d_bias = None
    if grad is not None:
        grad = dense(grad)
        if of_hidden is of_sums is None and not torch.is_grad_enabled() and _is_fused(text, grad.dtype):
            if any(needs[:2]) or needs[3]:
                d_sums, d_bias = MLP_HIDDEN_GRAD(grad, weight2, dense(sums), text, needs[3])
        else:
            through = MATMUL(grad, weight2)
            of_hidden = through if of_hidden is None else through + of_hidden
    if of_hidden is not None:
        through = activations.gradient(text, of_hidden, sums)
        d_sums = (through if of_sums is None else through + of_sums).contiguous()
    elif of_sums is not None:
        d_sums = of_sums.contiguous()
    of_input = of_weight1 = of_bias1 = of_weight2 = of_bias2 = None
    if d_sums is not None:
        of_input = MATMUL(d_sums, weight1) if needs[0] else None
        of_weight1, of_bias1 = weight_and_bias_grads(input, d_sums, (needs[1], needs[3] and d_bias is None))
    if grad is not None:
        of_weight2, of_bias2 = weight_and_bias_grads(hidden, grad, (needs[2], needs[4]))
    if needs[3] and d_bias is not None:
        of_bias1 = d_bias
    return of_input, of_weight1, of_weight2, of_bias1, of_bias2, None, None


def _is_fused(text: str, dtype: torch.dtype) -> bool:
    """True if the kernel of a product multiplies by the slope of the activation."""
    gradient = gradient_name(text)
    return gradient is not None and activations.has_kernel(gradient, dtype)


def _hidden_grad_kernel(
    grad: Tensor, weight: Tensor, aux: Tensor, activation: str, sums_columns: bool
) -> tuple[Tensor, Tensor]:
    """The product of ``grad`` and ``weight``, times the slope of the activation at ``aux``, and the sums of its
    columns, which are empty unless ``sums_columns``."""
    gradient = gradient_name(activations.checked(activation))
    assert gradient is not None
    options = launching.settings(grad, "matmul"), gradient, sums_columns
    key, at_grad, at_weight, at_aux = key_of("mlp_hidden_grad", options, grad, weight, aux)
    reads = "aux" in arrays_of(gradient)
    shape = _hidden_grad_shape(grad, weight, aux)
    rows, (n, h) = math.prod(shape[:-1]), weight.shape
    sums = sums_like(weight) if sums_columns and 0 not in (rows, n, h) else None
    launch = launches.cached(key)
    if launch is not None:
        addresses = *(at_aux if reads else ()), *(() if sums is None else (sums.data_ptr(),))
        result = launching.launch(*launch[:2], at_grad, at_weight, addresses)
    else:
        a, b, c = grad.resolve_neg().reshape(rows, n), weight.resolve_neg(), aux.resolve_neg().contiguous()
        key = key if in_place((a, grad), (b, weight), (c, aux)) else None
        kept, out = c.view(rows, h) if reads else None, grad.new_empty(shape)
        products.multiply(key, a, b, out, (rows, h), None, activation=gradient, aux=kept, column_sums=sums)
        result = out
    if not sums_columns:
        return result, grad.new_empty(0)
    return result, result.sum_to_size(h) if sums is None else sums.to(grad.dtype)


def _hidden_grad_shape(grad: Tensor, weight: Tensor, aux: Tensor) -> Shape:
    check_operands(grad=grad, weight=weight, aux=aux)
    return (*grad.shape[:-1], weight.shape[1])


def _fake_hidden_grad(
    grad: Tensor, weight: Tensor, aux: Tensor, activation: str, sums_columns: bool
) -> tuple[Tensor, Tensor]:
    shape = _hidden_grad_shape(grad, weight, aux)
    return grad.new_empty(shape), grad.new_empty(shape[-1:] if sums_columns else (0,))


def _without_gradient(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.mark_non_differentiable(*output)


# ---- torch.vmap


def _call(*args: Any) -> list[Tensor]:
    return list(MLP(*args))


def _call_hidden_grad(*args: Any) -> list[Tensor]:
    return list(MLP_HIDDEN_GRAD(*args))


def _batch(info: Any, dims: tuple[Any, ...], input: Tensor, *rest: Any) -> Any:
    if all(dim is None for dim in dims[1:5]):
        result = MLP(to_front(input, dims[0]), *rest)
        return tuple(result), tuple(0 if x.dim() > 1 else None for x in result)
    results, at = loop_over_batch(_call)(info, dims, input, *rest)
    return tuple(results), tuple(at)


def _batch_hidden_grad(info: Any, dims: tuple[Any, ...], *args: Any) -> Any:
    results, at = loop_over_batch(_call_hidden_grad)(info, dims, *args)
    return tuple(results), tuple(at)


MLP = Operator(
    "mlp(Tensor input, Tensor weight1, Tensor weight2, Tensor? bias1, Tensor? bias2, str activation, bool keeps) ->"
    " (Tensor, Tensor, Tensor)",
    5,
    _kernel,
    _fake,
    _save,
    _backward,
    _batch,
)
MLP_HIDDEN_GRAD = Operator(
    "mlp_hidden_grad(Tensor grad, Tensor weight, Tensor aux, str activation, bool sums_columns) -> (Tensor, Tensor)",
    3,
    _hidden_grad_kernel,
    _fake_hidden_grad,
    _without_gradient,
    lambda ctx, *grads: (None,) * 5,
    _batch_hidden_grad,
)
