"""``matmul``, ``addmm`` and the operators of linear maps. Their gradients are computed by the same operators, so that
products can be differentiated any number of times."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ptxgen.api import call_lock, gemm, launches
from ptxgen.errors import DeviceError, InputError, ShapeError
from ptxgen.torch import launching
from ptxgen.torch.backward_step import BackwardStep, Gradients
from ptxgen.torch.launching import allocation, check_dense, check_operands, in_place, key_of
from ptxgen.torch.operator import Operator, loop_over_batch

Shape = tuple[int, ...]


def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product of two tensors, as ``torch.matmul``: vectors, matrices, and batches of matrices that are broadcast.

    Dtypes are float16, bfloat16, float32 and float64; tensors on the CPU are computed by the emulated device. float32
    is multiplied as TF32 if ``torch.backends.cuda.matmul`` allows it. ``out`` receives a copy of the result; an ``out``
    without elements is resized.

    ShapeError, DtypeError, DeviceError, InputError: an argument breaks a rule.
    """
    result: Tensor = MATMUL(input, other)
    if out is None:
        return result
    check_dense("out", out)
    if torch.is_grad_enabled() and (result.requires_grad or out.requires_grad):
        raise InputError("out is given and a gradient is recorded; call it inside torch.no_grad(), or without out")
    if out.device != result.device:
        raise DeviceError(f"out is on {out.device}; it must be on {result.device}, as the operands")
    if out.numel() == 0 and out.dtype is result.dtype:
        out.resize_(result.shape)
    if out.shape != result.shape or out.dtype != result.dtype:
        raise ShapeError(
            f"out is {out.dtype} of {tuple(out.shape)}; it must be {result.dtype} of {tuple(result.shape)}"
        )
    return out.copy_(result)


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0) -> Tensor:
    """beta·input + alpha·mat1·mat2, as ``torch.addmm`` of matrices and ``torch.baddbmm`` of batches of matrices.

    ``mat1``: …×M×K. ``mat2``: …×K×N. ``input`` is broadcast to …×M×N; the kernel adds it. ``input`` is not read if
    ``beta`` is 0. Dtypes and errors: as for ``matmul``.
    """
    result: Tensor = ADDMM(mat1, mat2, input, float(beta), float(alpha))
    return result


# ---- kernels


def multiply(
    key: Any,
    a: Tensor,
    b: Tensor,
    out: Tensor,
    view: Shape,
    bias: Any,
    residual: Tensor | None = None,
    alpha: float = 1.0,
    activation: str | None = None,
    sums: Tensor | None = None,
    aux: Tensor | None = None,
    column_sums: Tensor | None = None,
    a_sums: Tensor | None = None,
) -> Tensor:
    """Computes alpha·a·b, of matrices or of batches of matrices, with the epilogue operands ``bias``, ``residual`` and
    ``aux`` and an activation, and stores it to ``out``, whose shape for the kernel is ``view``, the sums to ``sums``,
    those of the columns to ``column_sums``, and those of the rows of a to ``a_sums``. The launch is cached under
    ``key``."""
    tf32, deterministic = launching.settings(a, "matmul")
    if 0 not in out.shape:
        with call_lock.lock:
            epilogue = (None, None, bias, residual, activation, aux)
            gemm.launch_uncached(
                key,
                a,
                b,
                out.view(view),
                alpha,
                0.0,
                launching.compute(a, tf32),
                deterministic,
                epilogue,
                None,
                allocation(out),
                sums=None if sums is None else sums.view(view[0], -1),
                column_sums=column_sums,
                a_sums=a_sums,
            )
    return out


def _linear_key(input: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
    return key_of("linear", launching.settings(input, "matmul"), input, weight, bias)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    key, at_input, at_weight, at_bias = _linear_key(input, weight, bias)
    launch = launches.cached(key)
    if launch is not None:
        return launching.launch(*launch[:2], at_input, at_weight, at_bias)
    check_operands(input=input, weight=weight, bias=bias)
    shape = linear_shape(input, weight, bias)
    rows, (n, k) = math.prod(shape[:-1]), weight.shape
    a, b = input.resolve_neg().reshape(rows, k), weight.resolve_neg()
    c = launching.vector(bias)
    key = key if in_place((a, input), (b, weight), (c, bias)) else None
    return multiply(key, a, b.t(), input.new_empty(shape), (rows, n), c)


def _linear_weight_grad_key(input: Tensor, grad: Tensor) -> Any:
    """The key and the addresses of a weight gradient; the addresses are those of ``grad`` and ``input``, in the order
    of the kernel's operands."""
    return key_of("linear_weight_grad", launching.settings(input, "matmul"), grad, input)


def _linear_weight_grad(input: Tensor, grad: Tensor) -> Tensor:
    key, at_grad, at_input, _ = _linear_weight_grad_key(input, grad)
    launch = launches.cached(key)
    if launch is not None:
        return launching.launch(*launch[:2], at_grad, at_input)
    check_operands(input=input, grad=grad)
    shape = _linear_weight_grad_shape(input, grad)
    rows, (n, k) = math.prod(input.shape[:-1]), shape
    a, b = grad.resolve_neg().reshape(rows, n), input.resolve_neg().reshape(rows, k)
    key = key if in_place((a, grad), (b, input)) else None
    return multiply(key, a.t(), b, input.new_empty(shape), shape, None)


#: bytes of a gradient from which on the kernel of the weight gradient adds its rows. Smaller ones are still in the L2
#: cache, and a kernel that adds them costs no more than those that clear the sums and convert them
LARGE = 1 << 25


def weight_and_bias_grads(input: Tensor, grad: Tensor, needs: tuple[bool, bool]) -> Gradients:
    """The gradients of the weight and of the bias of a linear map that ``needs`` asks for."""
    if all(needs) and adds_in_kernel(grad):
        weight, bias = LINEAR_WEIGHT_BIAS_GRAD(input, grad)
        return weight, bias
    weight = LINEAR_WEIGHT_GRAD(input, grad) if needs[0] else None
    return weight, grad.sum_to_size(grad.shape[-1]) if needs[1] else None


def adds_in_kernel(grad: Tensor) -> bool:
    """True if the kernel of a weight gradient also adds the rows of ``grad``, which must be large."""
    return bool(grad.numel() * grad.element_size() >= LARGE)


def sums_like(x: Tensor) -> Tensor:
    """A new array for the sums of the columns of ``x``, in the type in which kernels add."""
    return x.new_empty(x.shape[-1], dtype=torch.promote_types(x.dtype, torch.float32))


def _linear_weight_bias_grad(input: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of the weight and of the bias of a linear map."""
    options = launching.settings(input, "matmul")
    key, at_grad, at_input, _ = key_of("linear_weight_bias_grad", options, grad, input)
    launch = launches.cached(key)
    if launch is not None:
        sums = sums_like(grad)
        return launching.launch(*launch[:2], at_grad, at_input, (sums.data_ptr(),)), sums.to(grad.dtype)
    check_operands(input=input, grad=grad)
    shape = _linear_weight_grad_shape(input, grad)
    rows, (n, k) = math.prod(input.shape[:-1]), shape
    if 0 in (rows, n, k):
        return _linear_weight_grad(input, grad), grad.sum_to_size(n)
    sums, a, b = sums_like(grad), grad.resolve_neg().reshape(rows, n), input.resolve_neg().reshape(rows, k)
    key = key if in_place((a, grad), (b, input)) else None
    return multiply(key, a.t(), b, input.new_empty(shape), shape, None, a_sums=sums), sums.to(grad.dtype)


def _matmul_key(a: Tensor, b: Tensor) -> Any:
    return key_of("matmul", launching.settings(a, "matmul"), a, b)


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    key, at_a, at_b, _ = _matmul_key(a, b)
    launch = launches.cached(key)
    if launch is not None:
        return launching.launch(*launch[:2], at_a, at_b)
    check_operands(input=a, other=b)
    shape, batch = _matmul_shape(a, b)
    (m, k), n = (a.shape[-2:] if a.dim() > 1 else (1, a.shape[0])), b.shape[-1] if b.dim() > 1 else 1
    first = _as_batch((a if a.dim() > 1 else a.unsqueeze(0)).resolve_neg(), batch, m, k)
    second = _as_batch((b if b.dim() > 1 else b.unsqueeze(1)).resolve_neg(), batch, k, n)
    out = a.new_empty(shape)
    view = (m, n) if first.dim() == second.dim() == 2 else (math.prod(batch), m, n)
    key = key if in_place((first, a), (second, b)) else None
    return multiply(key, first, second, out, view, None)


def _addmm_key(a: Tensor, b: Tensor, added: Tensor, beta: float, alpha: float) -> Any:
    return key_of("addmm", (launching.settings(a, "matmul"), beta, alpha), a, b, added)


def _addmm(a: Tensor, b: Tensor, added: Tensor, beta: float, alpha: float) -> Tensor:
    key, at_a, at_b, at_added = _addmm_key(a, b, added, beta, alpha)
    launch = launches.cached(key)
    if launch is not None:
        return launching.launch(*launch[:2], at_a, at_b, at_added)
    check_operands(mat1=a, mat2=b, input=added)
    shape = _addmm_shape(a, b, added)
    first, second, out = a.resolve_neg(), b.resolve_neg(), a.new_empty(shape)
    if beta == 0:
        return multiply(None, first, second, out, shape, None, None, alpha)
    third = added.resolve_neg() if beta == 1 else added * beta
    per_column = tuple(third.shape) == shape[-1:]
    third = third.contiguous() if per_column else third.expand(shape).contiguous()
    key = key if in_place((first, a), (second, b), (third, added)) else None
    bias, residual = (third, None) if per_column else (None, third)
    return multiply(key, first, second, out, shape, bias, residual, alpha)


def _as_batch(x: Tensor, batch: Shape, rows: int, columns: int) -> Tensor:
    """``x`` as an operand of a batched product: one matrix if all items share it, else one matrix for each item."""
    if math.prod(x.shape[:-2]) == 1:
        return x.reshape(rows, columns)
    return x.expand(*batch, rows, columns).reshape(math.prod(batch), rows, columns)


# ---- shapes


def linear_shape(
    input: Tensor, weight: Tensor, bias: Tensor | None, names: tuple[str, str, str] = ("input", "weight", "bias")
) -> Shape:
    """The shape of a linear map. ``names``: those of the arguments in errors. ShapeError: an argument breaks a rule."""
    rows, matrix, vector = names
    if weight.dim() != 2 or input.dim() == 0:
        raise ShapeError(
            f"{rows} has {input.dim()} dimensions and {matrix} {weight.dim()}; {rows} must have at least 1, and"
            f" {matrix} 2"
        )
    if input.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"{rows} has {input.shape[-1]} columns and {matrix} {weight.shape[1]}; they must have the same number"
        )
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise ShapeError(
            f"{vector} has shape {tuple(bias.shape)}; it must be ({weight.shape[0]},), the rows of {matrix}"
        )
    return *input.shape[:-1], weight.shape[0]


def _linear_weight_grad_shape(input: Tensor, grad: Tensor) -> tuple[int, int]:
    if input.dim() == 0 or input.shape[:-1] != grad.shape[:-1]:
        raise ShapeError(
            f"input has shape {tuple(input.shape)} and grad {tuple(grad.shape)}; all but the last axis must be the same"
        )
    return grad.shape[-1], input.shape[-1]


def _matmul_shape(a: Tensor, b: Tensor) -> tuple[Shape, Shape]:
    """The shape of the product, and the extents of its batch axes. ShapeError: the operands do not match."""
    if a.dim() == 0 or b.dim() == 0:
        raise ShapeError(f"input has {a.dim()} dimensions and other {b.dim()}; both must have at least 1")
    rows = b.shape[-2] if b.dim() > 1 else b.shape[0]
    if a.shape[-1] != rows:
        raise ShapeError(
            f"input has shape {tuple(a.shape)} and other {tuple(b.shape)}; the last axis of input,"
            f" {a.shape[-1]}, must be the rows of other, {rows}"
        )
    try:
        batch = tuple(torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    except RuntimeError:
        raise ShapeError(
            f"input has a batch of {tuple(a.shape[:-2])} and other one of {tuple(b.shape[:-2])};"
            " they cannot be broadcast"
        ) from None
    return (*batch, *a.shape[-2:-1], *(b.shape[-1:] if b.dim() > 1 else ())), batch


def _addmm_shape(a: Tensor, b: Tensor, added: Tensor) -> Shape:
    if a.dim() not in (2, 3) or a.dim() != b.dim() or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"mat1 has shape {tuple(a.shape)} and mat2 {tuple(b.shape)}; they must be M×K and K×N, or batches of as"
            " many such matrices"
        )
    shape = (*a.shape[:-1], b.shape[-1])
    fits = added.dim() <= len(shape) and all(
        n in (1, m) for n, m in zip(reversed(added.shape), reversed(shape), strict=False)
    )
    if not fits:
        raise ShapeError(f"input has shape {tuple(added.shape)}; it must broadcast to {shape}, the shape of the result")
    return shape


def _fake_addmm(a: Tensor, b: Tensor, added: Tensor, beta: float, alpha: float) -> Tensor:
    check_operands(mat1=a, mat2=b, input=added)
    return a.new_empty(_addmm_shape(a, b, added))


def _fake_linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    check_operands(input=input, weight=weight, bias=bias)
    return input.new_empty(linear_shape(input, weight, bias))


def _fake_linear_weight_grad(input: Tensor, grad: Tensor) -> Tensor:
    check_operands(input=input, grad=grad)
    return input.new_empty(_linear_weight_grad_shape(input, grad))


def _fake_linear_weight_bias_grad(input: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    return _fake_linear_weight_grad(input, grad), grad.new_empty(grad.shape[-1])


def _fake_matmul(a: Tensor, b: Tensor) -> Tensor:
    check_operands(input=a, other=b)
    return a.new_empty(_matmul_shape(a, b)[0])


# ---- gradients


def dense(x: Tensor) -> Tensor:
    """``x``, contiguous, so that all kernels of a backward step read it in place."""
    return x if x.is_contiguous() else x.contiguous()


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:2])


def _backward_keys(grad: Tensor, weight: Tensor, input: Tensor, options: None) -> tuple[Any, Any]:
    return _matmul_key(grad, weight), _linear_weight_grad_key(input, grad)


_BACKWARD = BackwardStep("matmul", _backward_keys, input_first=False)


def _linear_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (input, weight), needs = ctx.saved_tensors, ctx.needs_input_grad
    if needs[1] and needs[2] and adds_in_kernel(grad):
        grad = dense(grad)
        return MATMUL(grad, weight) if needs[0] else None, *LINEAR_WEIGHT_BIAS_GRAD(input, grad)
    operands = grad, weight, input
    step = _BACKWARD.get(operands, needs, None)
    if step is None:
        grad = dense(grad)
        step = MATMUL(grad, weight) if needs[0] else None, LINEAR_WEIGHT_GRAD(input, grad) if needs[1] else None
        if grad is operands[0]:
            _BACKWARD.missed(operands, needs, None)
    return *step, grad.sum_to_size(grad.shape[-1]) if needs[2] else None


def _linear_weight_grad_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    input, dy = ctx.saved_tensors
    needs = ctx.needs_input_grad
    return MATMUL(dy, grad) if needs[0] else None, LINEAR(input, grad, None) if needs[1] else None


def _save_weight_bias_grad(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)
    ctx.set_materialize_grads(False)


def _linear_weight_bias_grad_backward(
    ctx: Any, of_weight: Tensor | None, of_bias: Tensor | None
) -> tuple[Tensor | None, ...]:
    input, dy = ctx.saved_tensors
    needs = ctx.needs_input_grad
    of_input = MATMUL(dy, of_weight) if needs[0] and of_weight is not None else None
    of_grad = LINEAR(input, of_weight, of_bias) if needs[1] and of_weight is not None else None
    if needs[1] and of_weight is None and of_bias is not None:
        of_grad = of_bias.expand(dy.shape)
    return of_input, of_grad


def _matmul_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    a, b = ctx.saved_tensors
    return _matmul_gradients(a, b, grad, ctx.needs_input_grad)


def _matmul_gradients(
    a: Tensor, b: Tensor, grad: Tensor, needs: tuple[bool, ...]
) -> tuple[Tensor | None, Tensor | None]:
    if a.dim() > 1 and b.dim() == 2:  # a linear map of the rows of a
        grad = dense(grad)
        return LINEAR(grad, b, None) if needs[0] else None, LINEAR_WEIGHT_GRAD(grad, a) if needs[1] else None
    rows, columns = (a if a.dim() > 1 else a.unsqueeze(0)), (b if b.dim() > 1 else b.unsqueeze(1))
    grad = grad if a.dim() > 1 else grad.unsqueeze(-1 if b.dim() == 1 else -2)
    grad = dense(grad if b.dim() > 1 else grad.unsqueeze(-1))
    da = MATMUL(grad, columns.mT).sum_to_size(rows.shape).reshape(a.shape) if needs[0] else None
    db = MATMUL(rows.mT, grad).sum_to_size(columns.shape).reshape(b.shape) if needs[1] else None
    return da, db


def _save_addmm(ctx: Any, inputs: Any, output: Any) -> None:
    a, b, added, ctx.beta, ctx.alpha = inputs
    ctx.shape = added.shape
    ctx.save_for_backward(a, b)


def _addmm_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    a, b = ctx.saved_tensors
    needs = ctx.needs_input_grad
    of_product = grad if ctx.alpha == 1 else grad * ctx.alpha
    of_added = (grad if ctx.beta == 1 else grad * ctx.beta).sum_to_size(ctx.shape) if needs[2] else None
    return *_matmul_gradients(a, b, of_product, needs), of_added, None, None


# ---- torch.vmap


def to_front(x: Tensor | None, dim: int | None) -> Tensor | None:
    """``x`` with its batch axis ``dim`` moved to the front; ``x`` itself if it has none."""
    return x if x is None or dim is None else x.movedim(dim, 0)


def _batch_matmul(info: Any, dims: tuple[Any, ...], a: Tensor, b: Tensor) -> tuple[Tensor, int]:
    return _batched_product(to_front(a, dims[0]), to_front(b, dims[1]), dims), 0


def _batched_product(a: Any, b: Any, dims: tuple[Any, ...]) -> Tensor:
    """The product for each item of a batch. The batch is the first axis of the operands that have one (``dims`` not
    None)."""
    rank_a, rank_b = a.dim() - (dims[0] is not None), b.dim() - (dims[1] is not None)
    a = a.unsqueeze(-2) if rank_a == 1 else a
    b = b.unsqueeze(-1) if rank_b == 1 else b
    rank = max(rank_a, rank_b, 2)
    # axes of extent 1 between the batch and the axes of a tensor with fewer axes
    a = a.reshape(a.shape[0], *(1,) * (rank - max(rank_a, 2)), *a.shape[1:]) if dims[0] is not None else a
    b = b.reshape(b.shape[0], *(1,) * (rank - max(rank_b, 2)), *b.shape[1:]) if dims[1] is not None else b
    out: Tensor = MATMUL(a, b)
    out = out.squeeze(-2) if rank_a == 1 else out
    return out.squeeze(-1) if rank_b == 1 else out


def _batch_linear(
    info: Any, dims: tuple[Any, ...], input: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, int]:
    x, w, b = (to_front(t, dim) for t, dim in zip((input, weight, bias), dims, strict=True))
    assert x is not None and w is not None  # noqa: PT018 the bias alone may be None
    if dims[1] is None and (b is None or dims[2] is None):
        return LINEAR(x, w, b), 0
    rank = x.dim() - (dims[0] is not None)
    if dims[1] is None:  # only biases have a batch
        out = LINEAR(x, w, None)
        out = out if dims[0] is not None else out.unsqueeze(0)
    else:
        out = _batched_product(x, w.mT, dims[:2])
    if b is None:
        return out, 0
    b = b if dims[2] is None else b.reshape(b.shape[0], *(1,) * (rank - 1), b.shape[1])
    return out + b, 0


def _batch_linear_weight_grad(info: Any, dims: tuple[Any, ...], input: Tensor, grad: Tensor) -> tuple[Tensor, int]:
    x, dy = (
        torch.movedim(t, dim, 0) if dim is not None else t.expand(info.batch_size, *t.shape)
        for t, dim in ((input, dims[0]), (grad, dims[1]))
    )
    x, dy = x.reshape(x.shape[0], -1, x.shape[-1]), dy.reshape(dy.shape[0], -1, dy.shape[-1])
    return MATMUL(dy.mT, x), 0


def _batch_linear_weight_bias_grad(info: Any, dims: tuple[Any, ...], input: Tensor, grad: Tensor) -> Any:
    of_weight, _ = _batch_linear_weight_grad(info, dims, input, grad)
    dy = torch.movedim(grad, dims[1], 0) if dims[1] is not None else grad.expand(info.batch_size, *grad.shape)
    return (of_weight, dy.reshape(dy.shape[0], -1, dy.shape[-1]).sum(1)), (0, 0)


def _call_addmm(*args: Any) -> Tensor:
    result: Tensor = ADDMM(*args)
    return result


MATMUL = Operator(
    "matmul(Tensor input, Tensor other) -> Tensor",
    2,
    _matmul,
    _fake_matmul,
    _save,
    _matmul_backward,
    _batch_matmul,
    _matmul_key,
    "matmul",
)
ADDMM = Operator(
    "addmm(Tensor mat1, Tensor mat2, Tensor input, float beta, float alpha) -> Tensor",
    3,
    _addmm,
    _fake_addmm,
    _save_addmm,
    _addmm_backward,
    loop_over_batch(_call_addmm),
    _addmm_key,
    "matmul",
)
LINEAR = Operator(
    "linear(Tensor input, Tensor weight, Tensor? bias) -> Tensor",
    3,
    linear,
    _fake_linear,
    _save,
    _linear_backward,
    _batch_linear,
    _linear_key,
    "matmul",
)
LINEAR_WEIGHT_GRAD = Operator(
    "linear_weight_grad(Tensor input, Tensor grad) -> Tensor",
    2,
    _linear_weight_grad,
    _fake_linear_weight_grad,
    _save,
    _linear_weight_grad_backward,
    _batch_linear_weight_grad,
)
LINEAR_WEIGHT_BIAS_GRAD = Operator(
    "linear_weight_bias_grad(Tensor input, Tensor grad) -> (Tensor, Tensor)",
    2,
    _linear_weight_bias_grad,
    _fake_linear_weight_bias_grad,
    _save_weight_bias_grad,
    _linear_weight_bias_grad_backward,
    _batch_linear_weight_bias_grad,
)
