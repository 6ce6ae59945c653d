"""Calls of ``gemm`` whose second operand is a ``QuantizedWeight``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.api import caller_workspace, drivers, launch_function, launches, new_arrays, on_host, runners, streams
from ptxgen.api.arrays import (
    View,
    alignment_of,
    as_numpy,
    matrix_layout,
    records_gradient,
    require_disjoint,
    require_same_memory,
    view,
)
from ptxgen.api.epilogue_args import activation_name, alignment_like_c, columns_of_c, epilogue_arguments
from ptxgen.api.quantized_weight import QuantizedWeight
from ptxgen.arguments import flag, word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.operations.quantized.problem import ACTIVATIONS, FAST, QuantizedGemm
from ptxgen.problem.base import OUT_DTYPES
from ptxgen.problem.dtypes import dtype


def multiply(
    a: Any,
    w: QuantizedWeight,
    out: Any,
    alpha: complex,
    beta: complex,
    compute: str | None,
    deterministic: bool,
    epilogue_args: tuple[Any, ...],
    workspace: Any,
) -> Any:
    """C = alpha·A·Wᵀ + beta·out. The arguments are those of ``gemm``, with its epilogue. The caller holds
    ``call_lock.lock``. ShapeError, DtypeError, OverlapError, InputError: an argument breaks a rule."""
    plain = all(x is None for x in (out, *epilogue_args[:2], *epilogue_args[3:], workspace))
    key = _key(a, w, epilogue_args[2], (alpha, beta, compute, deterministic)) if plain else None
    ready = launches.cached(key) if key is not None else None
    if ready is not None:
        launch, (shape, torch_dtype), _ = ready
        result = a.new_empty(shape, dtype=torch_dtype)
        launch(_addresses(w, a, result, epilogue_args[2]), streams.current_stream(a))
        return result
    va = view(a, "a")
    compute, deterministic = word("compute", "" if compute is None else compute), flag("deterministic", deterministic)
    if isinstance(alpha, complex) or isinstance(beta, complex):
        raise InputError(f"alpha is {alpha:g} and beta is {beta:g}; with quantized weights they must be real numbers")
    _check_operands(va, w)
    *others, activation, aux = epilogue_args
    activation = activation_name(activation)
    n, k = matrix_shape(w)
    shape = va.shape[0], columns_of_c(n, activation)
    gated = shape[1] != n
    if gated and beta != 0:
        raise InputError(f"beta is {beta:g}; with a gated activation it must be 0")
    if out is None and beta != 0:
        raise InputError(f"beta is {beta:g} and out is None; a beta other than 0 requires out")
    result = new_arrays.empty_array(a, shape, dtype(OUT_DTYPES[va.dtype.name][0])) if out is None else out
    vc = view(result, "out")
    _check_out(va, vc, shape)
    epilogue = epilogue_arguments(shape, vc, *others, activation, aux)
    views = w.views
    require_disjoint(vc, a=va, **views, **dict(epilogue.arrays))
    if va.host and (size := caller_workspace.refuse_host_workspace(workspace)) is not None:
        return size
    if 0 in shape:
        return 0 if workspace is caller_workspace.QUERY_SIZE else result
    options: dict[str, Any] = {
        "dtype": va.dtype.name,
        "compute": compute,
        "deterministic": deterministic,
        "out": vc.dtype.name,
        "epilogue": ",".join(epilogue.ops),
        "weights": w.format,
        "group": w.group,
        "zeros": w.zeros is not None,
        "scales": views["scales"].dtype.name,
        "precision": w.precision,
    }
    if alpha == 0:  # neither A nor the weights are read
        k, options["group"] = 0, 32
    if va.host:
        into = as_numpy(vc)
        arrays = {"A": np.ascontiguousarray(as_numpy(va)[:, :k]), "C": np.ascontiguousarray(into)}
        arrays |= {name: np.ascontiguousarray(x) for name, x in w.host_arrays().items()}
        arrays |= {name: np.ascontiguousarray(as_numpy(v)) for name, v in epilogue.arrays}
        problem = QuantizedGemm(shape[0], n, k, **options)
        arrays["B"] = arrays["B"][:, : problem.columns_b]
        into[...] = on_host.compute_on_host(problem, arrays, alpha, beta)["C"]
        return result
    on = drivers.driver_of(va)
    drivers.require_device(on, a=va, out=vc, **views, **dict(epilogue.arrays))
    read = va if _row_major(va) else view(a.contiguous() if hasattr(a, "contiguous") else a.copy(), "a")
    if not _row_major(vc):
        raise ShapeError(f"out has strides {vc.strides}; with quantized weights its rows must be contiguous")
    epilogue.check_strides(vc)
    problem = QuantizedGemm(
        shape[0],
        n,
        k,
        lda=read.strides[0] if k else 0,
        ldb=views["packed"].strides[0] if k else 0,
        ldc=vc.strides[0],
        aligned_a=alignment_of(read.address),
        aligned_b=alignment_of(views["packed"].address),
        aligned_c=min(alignment_of(vc.address), alignment_like_c(epilogue.arrays)),
        **options,
    )
    stream = streams.current_stream(a)
    runner = runners.runner_for(problem, stream, on)
    if workspace is caller_workspace.QUERY_SIZE:
        return runner.launch.workspace
    own = caller_workspace.workspace_address(workspace, runner, a=a, packed=w.packed, out=result)
    arrays_at = {"A": read, "B": views["packed"], "C": vc, **views, **dict(epilogue.arrays)}
    launch = launch_function.make_launch(runner, alpha, beta)
    addresses = tuple(arrays_at[name].address for name in problem.arrays)
    with streams.ordered(on, stream, tuple(arrays_at.values())):
        launch(addresses, stream, own)
    if key is not None and read is va:
        launches.store(key, launch, (shape, result.dtype), runner)
    return result


def _key(a: Any, w: QuantizedWeight, bias: Any, options: tuple[Any, ...]) -> Any:
    """The key of a cached launch on PyTorch tensors. None: other arrays, and tensors that need checks not covered by
    the key."""
    try:
        tensors = (a,) if bias is None else (a, bias)
        if any(not x.data_ptr() or x.is_neg() or (x.requires_grad and records_gradient(x)) for x in tensors):
            return None
        about = [(type(x), x.shape, x.stride(), x.dtype, x.data_ptr() & 15, x.get_device()) for x in tensors]
    except (AttributeError, TypeError, RuntimeError):  # RuntimeError: a sparse tensor
        return None
    return "quantized", w.key, options, *about


def _addresses(w: QuantizedWeight, a: Any, out: Any, bias: Any) -> tuple[int, ...]:
    """The addresses of a cached launch, in the order of the problem's arrays."""
    weights, *scales = w.addresses
    of_bias = () if bias is None else (bias.data_ptr(),)
    return a.data_ptr(), weights, out.data_ptr(), *of_bias, *scales


def _row_major(v: View) -> bool:
    return (matrix_layout(v) or ("T",))[0] == "N"


def matrix_shape(w: QuantizedWeight) -> tuple[int, int]:
    """N and K of one matrix of weights. ShapeError: there are those of several experts."""
    if len(w.shape) != 2:
        raise ShapeError(f"b has the weights of {w.shape[0]} experts; gemm_jagged takes them, gemm one matrix")
    n, k = w.shape
    return n, k


def _check_operands(a: View, w: QuantizedWeight) -> None:
    """DtypeError, ShapeError, InputError: the operands cannot be multiplied."""
    check_activations(a, w, ("a", "b"))
    n, k = matrix_shape(w)
    if a.shape[1] != k:
        raise ShapeError(f"a is {a.shape[0]}x{a.shape[1]} and b has {n} rows of {k} quantized weights; K must be equal")


def check_activations(a: View, w: QuantizedWeight, names: tuple[str, str]) -> None:
    """DtypeError, InputError: ``a`` cannot be multiplied by quantized weights of this type, or in this memory.
    ``names``: the names of both arguments."""
    name, weights = names
    if a.dtype.name not in ACTIVATIONS:
        raise DtypeError(f"{name} is {a.dtype}; with quantized weights it must be float16 or bfloat16")
    scale = w.views["scales"].dtype
    if w.precision == FAST and w.group and scale is not a.dtype:
        raise DtypeError(
            f"{name} is {a.dtype} and {weights}.scales is {scale}; with precision {FAST} they must have one type"
        )
    require_same_memory(name, a, f"{weights}.packed", w.views["packed"])


def _check_out(a: View, c: View, shape: tuple[int, ...]) -> None:
    """ShapeError, DtypeError, InputError: out cannot store the product."""
    if c.shape != shape:
        raise ShapeError(f"out has shape {c.shape}; it must be {shape}")
    if c.dtype.name not in OUT_DTYPES[a.dtype.name]:
        raise DtypeError(f"out is {c.dtype}; it must be {' or '.join(OUT_DTYPES[a.dtype.name])}")
    require_same_memory("out", c, "a", a)
