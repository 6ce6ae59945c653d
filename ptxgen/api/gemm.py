"""What users call from Python."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ptxgen.api import batch_views, launch_cache
from ptxgen.api.arrays import View, aligned, differentiated, on_host, require_no_gradient, stored, view
from ptxgen.api.epilogue_args import After, after
from ptxgen.api.launch_cache import driver
from ptxgen.arguments import flag, shown, word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.problem.base import OUT_DTYPES
from ptxgen.problem.dtypes import ALLOWED, dtype
from ptxgen.problem.gemm import PACKED, Gemm

NO_KEY = (None, 0, 0, 0)


def gemm(
    a: Any,
    b: Any,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out: Any = None,
    compute: str | None = None,
    deterministic: bool = False,
    bias: Any = None,
    residual: Any = None,
    activation: str | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    workspace: Any = None,
) -> Any:
    """activation(scale_a·scale_b·alpha·A·B + beta·out + bias + residual), as an array like A.

    ``a`` is M×K, ``b`` K×N, ``out`` (made if None) M×N: NumPy arrays, or PyTorch, CuPy arrays on the GPU, A and B
    of one dtype: float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2, int8. C is of that type, or bfloat16
    of 8-bit floats and int32 of int8; other types that there are, ``out`` asks for; in 8 bits, what is too large is
    clamped to what is finite. Sums of int8 are modulo 2³² in an int32 C, and undefined in another C once they leave
    that range. Transposes are read from strides (``a.T`` costs nothing); an operand that is contiguous along neither
    axis is copied first. ``beta`` other than 0 needs ``out``, which is then read. ``compute``: f16 for sums in f16,
    tf32 or f32_bf16x6 for products of float32 on tensor cores. ``deterministic``: the same inputs give the same bits.

    With items first (B×M×K, B×K×N, B×M×N) it is B such products. A matrix, a lone item, or a view with an item stride
    of 0 serves all items of the other operand.

    What follows is done by the kernel, before C is written. ``bias``: N elements, one a column, or M×1, one a row, of
    C's type, or float32 to 8 bits; ``residual``: like ``out``; ``activation``: relu, gelu (the form with tanh) or silu;
    ``scale_a``, ``scale_b``: f32, one element each, or M and N of them. Items share all of these but the residual.
    PyTorch's quickest way (a few microseconds a call) is that of plain products.

    ``out`` shares no memory with another argument. Results have no gradient: tensors that require one are refused while
    PyTorch records gradients. So are masked arrays.

    ``workspace``: a contiguous GPU array, at an address that is a multiple of 256, of at least
    ``workspace_size(gemm, a, b, …)`` bytes, whose contents do not matter. The kernels work in it instead of memory that
    ptxgen allocates, and no other call may use it until they end. Host arrays take none.

    ShapeError, DtypeError, OverlapError, InputError: an argument breaks a rule. GPU arrays are multiplied on their
    library's current stream, and the call returns at once.
    """
    if type(alpha) is not float or type(beta) is not float:  # a tensor would be remembered, not its value
        alpha, beta = _number(alpha, "alpha"), _number(beta, "beta")
    plain = activation is None and bias is None and residual is None and scale_a is None and scale_b is None
    key, at_a, at_b, at_c = _key(a, b, out, alpha, beta, compute, deterministic) if plain else NO_KEY
    ready = launch_cache.prepared(key) if key is not None else None
    if ready is not None and workspace is not launch_cache.SIZE:
        go, (shape, kind, size_a, size_b, size_c), bound = ready
        apart = out is None
        if apart:
            out = a.new_empty(shape, dtype=kind)
            at_c = out.data_ptr()
        else:
            end = at_c + size_c
            apart = (end <= at_a or at_a + size_a <= at_c) and (end <= at_b or at_b + size_b <= at_c)
        if apart and workspace is None:
            go(at_a, at_b, at_c, launch_cache.stream_of(a))
            return out
        if apart:
            own = launch_cache.workspace_of(workspace, bound, a=a, b=b, out=out)
            go(at_a, at_b, at_c, launch_cache.stream_of(a), own=own)
            return out
    with launch_cache.lock:
        more = (scale_a, scale_b, bias, residual, activation)
        return _first(key, a, b, out, alpha, beta, compute, deterministic, more, workspace)


def _number(value: Any, argument: str) -> float:
    require_no_gradient(value, argument)
    try:
        if not isinstance(value, str):
            return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: a tensor without a value
        pass
    raise InputError(f"{argument} is {shown(value)}; it must be a real number that a double holds")


def _key(a: Any, b: Any, out: Any, *rest: Any) -> tuple[Any, int, int, int]:
    """(what decides how PyTorch tensors are multiplied, cheap to make, or None; the addresses of a, b and out). None:
    other arrays, and tensors whose checks depend on more than that."""
    try:
        at_a, at_b, at_c, c = a.data_ptr(), b.data_ptr(), 0, None
        if not at_a or not at_b or a.is_neg() or b.is_neg():
            return NO_KEY
        if (a.requires_grad and differentiated(a)) or (b.requires_grad and differentiated(b)):
            return NO_KEY
        if out is not None:
            at_c = out.data_ptr()
            c = (out.shape, out.stride(), out.dtype, at_c & 15, out.get_device())
            if not at_c or out.is_neg() or (out.requires_grad and differentiated(out)):
                return NO_KEY
        made = (
            a.shape,
            a.stride(),
            a.dtype,
            at_a & 15,
            a.get_device(),
            b.shape,
            b.stride(),
            b.dtype,
            at_b & 15,
            b.get_device(),
            rest,
            c,
        )
    except (AttributeError, TypeError, RuntimeError):  # RuntimeError: a sparse tensor
        return NO_KEY
    return made, at_a, at_b, at_c


def _first(
    key: Any,
    a: Any,
    b: Any,
    out: Any,
    alpha: float,
    beta: float,
    compute: str | None,
    deterministic: bool,
    more: tuple[Any, ...],
    workspace: Any,
) -> Any:
    """The whole way: checks, selection, generation, launch; remembered under ``key`` where the next call can use it."""
    va, vb = view(a, "a", items=True), view(b, "b", items=True)
    compute, deterministic = word("compute", "" if compute is None else compute), flag("deterministic", deterministic)
    _agree(va, vb)
    shape = (*batch_views.items(va, vb), va.shape[-2], vb.shape[-1])
    launch_cache.require_driver(va)
    if out is None:
        if beta != 0:
            raise InputError(f"beta is {beta:g} and out is None; a beta other than 0 adds to an out that is given")
        result = launch_cache.empty(a, shape, dtype(OUT_DTYPES[va.dtype.name][0]))
    else:
        result = out
    vc = view(result, "out", items=True)
    _fits(va, vb, vc, shape)
    then = after(shape, vc, *more)
    launch_cache.require_own(vc, a=va, b=vb, **dict(then.arrays))
    if va.host and (size := launch_cache.host_workspace(workspace)) is not None:
        return size
    if va.host:
        _host(va, vb, vc, alpha, beta, compute, deterministic, then)
        return result
    launch_cache.require_device(a=va, b=vb, out=vc)
    swapped, problem, operands = _problem(*batch_views.folded(va, vb, vc, then.stages), compute, deterministic)
    if then.stages:
        then = then.turned() if swapped else then
        problem = replace(problem, epilogue=",".join(then.stages))
        for name, v in then.arrays:
            if name == "residual" and v.strides != vc.strides:
                raise ShapeError(f"residual has strides {v.strides}; they must be those of out, {vc.strides}")
            if name == "residual":  # it is read as C is written
                problem = replace(problem, aligned_c=min(problem.aligned_c, aligned(v.address)))
    if 0 in vc.shape:
        return result if workspace is not launch_cache.SIZE else 0
    bound = launch_cache.runner(problem)
    if workspace is launch_cache.SIZE:
        return bound.launch.workspace
    own = launch_cache.workspace_of(workspace, bound, a=a, b=b, out=result)
    go = launch_cache.launcher(
        bound, alpha, beta, swapped, tuple(v.address for v in then.ordered(problem.epilogue_operands))
    )
    first, second = (operands[1], operands[0]) if swapped else operands
    go(first.address, second.address, vc.address, launch_cache.stream_of(a), own=own)
    if key is not None and (first.address, second.address) == (va.address, vb.address):
        sizes = (v.span[1] - v.address for v in (va, vb, vc))  # strides of PyTorch are not negative
        launch_cache.remember(key, go, (shape, result.dtype, *sizes), bound)
    return result


def _agree(a: View, b: View) -> None:
    if a.dtype is not b.dtype:
        raise DtypeError(f"a is {a.dtype} and b is {b.dtype}; they must be the same")
    if a.dtype.name not in OUT_DTYPES:
        raise DtypeError(f"a and b have dtype {a.dtype.numpy}; it must be one of {ALLOWED}")
    if a.shape[-1] != b.shape[-2]:
        raise ShapeError(f"a is {_by(a.shape)} and b is {_by(b.shape)}; the columns of a must be the rows of b")
    if a.host != b.host:
        raise InputError("a and b must be in the same memory: both the host's, or both the GPU's")


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _fits(a: View, b: View, c: View, shape: tuple[int, ...]) -> None:
    if c.shape != shape:
        raise ShapeError(f"out is {_by(c.shape)}; it must be {_by(shape)}, the shape of a·b")
    if c.dtype.name not in OUT_DTYPES[a.dtype.name]:
        raise DtypeError(
            f"out is {c.dtype}; with a and b of {a.dtype} it must be {' or '.join(OUT_DTYPES[a.dtype.name])}"
        )
    if c.host != a.host:
        raise InputError("out must be in the same memory as a and b")


def _contiguous(v: View, argument: str) -> View:
    x = v.origin
    if isinstance(x, np.ndarray):
        return view(np.ascontiguousarray(x), argument, items=True)
    copy = getattr(x, "contiguous", None) or getattr(x, "copy", None)
    copied = view(copy(), argument, items=True) if copy is not None else v
    if stored(copied) is None:
        raise ShapeError(f"{argument} has strides {v.strides}; its rows or its columns must be contiguous")
    return copied


def _problem(a: View, b: View, c: View, compute: str, deterministic: bool) -> tuple[bool, Gemm, tuple[View, View]]:
    """(whether Cᵀ = BᵀAᵀ is what is computed, the problem, its A and B): C must be stored by rows."""
    place = stored(c)
    if place is None:
        raise ShapeError(f"out has strides {c.strides}; its rows or its columns must be contiguous")
    swapped = place[0] == "T"
    a = a if stored(a) and batch_views.between(a) >= 0 else _contiguous(a, "a")
    b = b if stored(b) and batch_views.between(b) >= 0 else _contiguous(b, "b")
    first, second = (batch_views.transposed(b), batch_views.transposed(a)) if swapped else (a, b)
    (la, lda), (lb, ldb) = stored(first) or ("N", 0), stored(second) or ("N", 0)
    problem = Gemm(
        first.shape[-2],
        second.shape[-1],
        first.shape[-1],
        la + lb,
        a.dtype.name,
        compute,
        lda,
        ldb,
        place[1],
        aligned(first.address),
        aligned(second.address),
        aligned(c.address),
        deterministic,
        c.dtype.name,
    )
    if len(c.shape) == 3 and c.shape[0] != 1:
        strides = [batch_views.between(v) for v in (first, second, c)]
        problem = replace(problem, batch=c.shape[0], stride_a=strides[0], stride_b=strides[1], stride_c=strides[2])
    return swapped, problem, (first, second)


def _host(a: View, b: View, c: View, alpha: float, beta: float, compute: str, deterministic: bool, then: After) -> None:
    """Host arrays: packed copies go to the device, and the result comes back."""
    into = on_host(c)
    if 0 in c.shape:
        return
    letters, arrays, strides = "", [], []
    for v in (a, b):
        letters += (stored(v) or ("N", 0))[0]
        shared = not batch_views.between(v)
        x = on_host(v)[0] if shared and len(v.shape) == 3 else on_host(v)
        arrays.append(np.ascontiguousarray(x if letters[-1] == "N" else np.swapaxes(x, -1, -2)))
        strides.append(0 if shared else PACKED)
    problem = Gemm(
        a.shape[-2],
        b.shape[-1],
        a.shape[-1],
        letters,
        a.dtype.name,
        compute,
        deterministic=deterministic,
        out=c.dtype.name,
        epilogue=",".join(then.stages),
        batch=c.shape[0] if len(c.shape) == 3 else 1,
        stride_a=strides[0],
        stride_b=strides[1],
    )
    before = np.ascontiguousarray(into) if beta != 0 else np.empty(c.shape, into.dtype)
    more = tuple(np.ascontiguousarray(on_host(v)) for v in then.ordered(problem.epilogue_operands))
    into[...] = launch_cache.runner(problem).compute(arrays[0], arrays[1], before, alpha, beta, more)


__all__ = ["driver", "gemm"]
