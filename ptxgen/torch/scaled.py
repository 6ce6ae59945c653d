"""``scaled_mm``: products of matrices of 8-bit floats with scales."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ptxgen.api import call_lock, gemm, launches
from ptxgen.api.block_scales import scales_in_f32
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.problem.block_scales import DEPTH
from ptxgen.torch import launching
from ptxgen.torch.launching import allocation, check_dense, key_of
from ptxgen.torch.operator import Operator, loop_over_batch

FLOATS_8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def scaled_mm(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """The product scale_a·scale_b·input·mat2 + bias of matrices, each of float8_e4m3fn or float8_e5m2, as
    ``torch._scaled_mm``; the kernel multiplies by the scales and adds the bias.

    ``input``: M×K. ``mat2``: K×N. ``scale_a``, ``scale_b``: float32 or float8_e8m0fnu; either one element each, or M×1
    and 1×N, or one element for each block of 128 along K: M×⌈K/128⌉ or ⌈M/128⌉×⌈K/128⌉ for ``scale_a``, ⌈K/128⌉×N or
    ⌈K/128⌉×⌈N/128⌉ for ``scale_b``. ``bias``: N elements of the type of the result. ``out_dtype``: bfloat16 by default.
    ``use_fast_accum``: sums stay in the accumulators of the tensor cores, which lose bits. The bias has a gradient.
    While gradients are recorded, other tensors that require one are rejected.

    ShapeError, DtypeError, DeviceError, InputError: an argument breaks a rule.
    """
    result: Tensor = SCALED_MM(input, mat2, scale_a, scale_b, bias, out_dtype, use_fast_accum)
    return result


def _kernel(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None,
    out_dtype: torch.dtype | None,
    use_fast_accum: bool,
) -> Tensor:
    scale_a, scale_b = scales_in_f32(scale_a, "scale_a"), scales_in_f32(scale_b, "scale_b")
    out_type = torch.bfloat16 if out_dtype is None else out_dtype
    deterministic = torch.are_deterministic_algorithms_enabled()
    shapes, strides = (scale_a.shape, scale_b.shape), (scale_a.stride(), scale_b.stride())
    about = out_type, use_fast_accum, deterministic, *shapes, *strides, scale_a.dtype, scale_b.dtype
    key, at_a, at_b, at_bias = key_of("scaled_mm", about, input, mat2, bias)
    launch = launches.cached(key)
    if launch is not None:
        addresses = scale_a.data_ptr(), scale_b.data_ptr(), *at_bias
        return launching.launch(*launch[:2], at_a, at_b, addresses)
    for name, x in (("input", input), ("mat2", mat2), ("scale_a", scale_a), ("scale_b", scale_b), ("bias", bias)):
        if x is not None:
            check_dense(name, x)
    if input.dtype not in FLOATS_8 or mat2.dtype not in FLOATS_8:
        raise DtypeError(
            f"input is {input.dtype} and mat2 is {mat2.dtype}; each must be {' or '.join(map(str, FLOATS_8))}"
        )
    if input.dim() != 2 or mat2.dim() != 2:
        raise ShapeError(f"input has {input.dim()} dimensions and mat2 {mat2.dim()}; both must have 2")
    _check_shapes(input, mat2, bias)
    m, n = input.shape[0], mat2.shape[1]
    along_k = -(-input.shape[1] // DEPTH)
    blocks = scale_a.shape[-1:] == (along_k,) and scale_b.shape[:1] == (along_k,) and scale_a.dim() == 2
    if (scale_a.numel() != 1 or scale_b.numel() != 1) and shapes != ((m, 1), (1, n)) and not blocks:
        raise ShapeError(
            f"scale_a has shape {tuple(shapes[0])} and scale_b {tuple(shapes[1])}; they must have one element each, or"
            f" the shapes {(m, 1)} and {(1, n)}, or those of blocks of 128: {(m, along_k)} or"
            f" {(-(-m // DEPTH), along_k)}, and {(along_k, n)} or {(along_k, -(-n // DEPTH))}"
        )
    out = torch.empty((m, n), dtype=out_type, device=input.device)
    scales = _in_order(scale_a), _in_order(scale_b)
    third = launching.vector(bias)
    in_place = launching.in_place((scales[0], scale_a), (scales[1], scale_b), (third, bias))
    with call_lock.lock:
        gemm.launch_uncached(
            key if in_place else None,
            input,
            mat2,
            out,
            1.0,
            0.0,
            "f32_fast_accum" if use_fast_accum else "",
            deterministic,
            (*scales, third, None, None, None),
            None,
            allocation(out),
        )
    return out


def _fake(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None,
    out_dtype: torch.dtype | None,
    use_fast_accum: bool,
) -> Tensor:
    if input.dim() != 2 or mat2.dim() != 2:
        raise ShapeError(f"input has {input.dim()} dimensions and mat2 {mat2.dim()}; both must have 2")
    _check_shapes(input, mat2, bias)
    return input.new_empty((input.shape[0], mat2.shape[1]), dtype=out_dtype or torch.bfloat16)


def _check_shapes(input: Tensor, mat2: Tensor, bias: Tensor | None) -> None:
    """ShapeError: the columns of ``input`` are not as many as the rows of ``mat2``, or ``bias`` is no vector of its
    columns."""
    if input.shape[1] != mat2.shape[0]:
        raise ShapeError(f"input has {input.shape[1]} columns and mat2 {mat2.shape[0]} rows; they must be equal")
    if bias is not None and tuple(bias.shape) != (mat2.shape[1],):
        raise ShapeError(f"bias has shape {tuple(bias.shape)}; it must be ({mat2.shape[1]},), the columns of mat2")


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    for name, requires_gradient in zip(("input", "mat2", "scale_a", "scale_b"), ctx.needs_input_grad, strict=False):
        if requires_gradient:
            raise InputError(
                f"{name} requires a gradient, and scaled_mm computes that of the bias alone; pass {name}.detach(), or"
                " call it inside torch.no_grad()"
            )
    ctx.bias_dtype = None if inputs[4] is None else inputs[4].dtype


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    of_bias = grad.sum(0, dtype=ctx.bias_dtype) if ctx.needs_input_grad[4] else None
    return None, None, None, None, of_bias, None, None


def _call(*args: Any) -> Tensor:
    result: Tensor = SCALED_MM(*args)
    return result


SCALED_MM = Operator(
    "scaled_mm(Tensor input, Tensor mat2, Tensor scale_a, Tensor scale_b, Tensor? bias, ScalarType? out_dtype, "
    "bool use_fast_accum) -> Tensor",
    5,
    _kernel,
    _fake,
    _save,
    _backward,
    loop_over_batch(_call),
    autocasts=False,
)


def _in_order(scales: Tensor) -> Tensor:
    """The scales in contiguous memory, row-major or column-major."""
    return scales if scales.dim() == 2 and scales.t().is_contiguous() else scales.contiguous()
