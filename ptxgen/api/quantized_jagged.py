"""Calls of ``gemm_jagged`` whose weights are a ``QuantizedWeight``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.api import call_lock, drivers, new_arrays, on_host, streams
from ptxgen.api.arrays import View, alignment_of, as_numpy, emptied, matrix_layout, require_disjoint, view
from ptxgen.api.epilogue_args import Activation, activation_name, alignment_like_c, columns_of_c
from ptxgen.api.gemm import number
from ptxgen.api.jagged_calls import (
    check_offset_values,
    check_out,
    checked_offsets,
    epilogue_of,
    item_sizes,
    queue_product,
)
from ptxgen.api.quantized_calls import check_activations
from ptxgen.api.quantized_weight import QuantizedWeight
from ptxgen.arguments import flag, word
from ptxgen.errors import InputError, ShapeError
from ptxgen.operations.grouped.problem import write_leading_dimensions
from ptxgen.operations.quantized_jagged.problem import QuantizedJagged
from ptxgen.problem.base import OUT_DTYPES
from ptxgen.problem.dtypes import dtype


def multiply(
    x: Any,
    w: QuantizedWeight,
    offsets: Any,
    out: Any,
    alpha: Any,
    beta: Any,
    compute: str | None,
    deterministic: bool,
    arrays: dict[str, Any],
    activation: Activation | None,
) -> Any:
    """The rows of each expert times the transpose of its weights. The arguments are those of ``gemm_jagged``.
    ShapeError, DtypeError, OverlapError, InputError: an argument breaks a rule."""
    alpha, beta = number(alpha, "alpha"), number(beta, "beta")
    compute, deterministic = word("compute", "" if compute is None else compute), flag("deterministic", deterministic)
    with call_lock.lock:
        vx = view(x, "x")
        ends = checked_offsets(offsets, vx)
        items, n = _check_weights(vx, w, ends)
        activation = activation_name(activation)
        shape = vx.shape[0], columns_of_c(n, activation, "w")
        if shape[1] != n and beta != 0:
            raise InputError(f"beta is {beta:g}; with a gated activation it must be 0")
        if out is None and beta != 0:
            raise InputError(f"beta is {beta:g} and out is None; a beta other than 0 requires out")
        result = new_arrays.empty_array(x, shape, dtype(OUT_DTYPES[vx.dtype.name][0])) if out is None else out
        vc = view(result, "out")
        check_out(vx, vc, shape)
        ops, operands = epilogue_of("m", vc, items, arrays, activation)
        views = w.views
        require_disjoint(vc, x=vx, **views, offsets=ends, **operands)
        if vx.host:
            check_offset_values(as_numpy(ends), vx.shape[0], "m")
        else:
            on = drivers.driver_of(vx)
            drivers.require_device(on, x=vx, offsets=ends, out=vc, **views, **operands)
        if 0 in shape or not items:
            return new_arrays.result_of(result, x) if out is None else result
        if alpha == 0:  # neither x nor the weights are read
            vx = emptied(vx, -1)
        if not vx.host and (matrix_layout(vx) or ("T",))[0] != "N":
            vx = view(x.contiguous() if hasattr(x, "contiguous") else x.copy(), "x")
        problem = _problem(vx, w, vc, (ops, operands), compute, deterministic)
        named = {"A": vx, "B": views["packed"], "C": vc, "offsets": ends, **views, **operands}
        if vx.host:
            host = {name: np.ascontiguousarray(as_numpy(named[name])) for name in problem.arrays}
            host["B"] = host["B"][..., : problem.item(0).columns_b]
            as_numpy(vc)[...] = on_host.compute_on_host(problem, host, alpha, beta)["C"]
        else:
            ordered = tuple(named[name] for name in problem.arrays)
            queue_product(on, problem, ordered, alpha, beta, streams.current_stream(x))
    return new_arrays.result_of(result, x) if out is None else result


def _check_weights(x: View, w: QuantizedWeight, ends: View) -> tuple[int, int]:
    """E and N. DtypeError, ShapeError, InputError: the operands cannot be multiplied."""
    if len(w.shape) != 3 or w.shape[0] != ends.shape[0]:
        raise ShapeError(
            f"w has the shape {w.shape}; its weights must be E×N×K with E={ends.shape[0]}, the number of offsets"
        )
    items, n, k = w.shape
    check_activations(x, w, ("x", "w"))
    if x.shape[1] != k:
        raise ShapeError(f"x has {x.shape[1]} columns and w has K={k}; they must be the same")
    return items, n


def _problem(
    x: View, w: QuantizedWeight, c: View, epilogue: tuple[str, dict[str, View]], compute: str, deterministic: bool
) -> QuantizedJagged:
    """The problem of a call. Its item sizes are typical of experts, because the true sizes are on the device. For host
    arrays, the problem describes contiguous copies."""
    (items, n, _), (rows, k), packed = w.shape, x.shape, w.views["packed"]
    common: dict[str, Any] = (
        {}
        if x.host
        else {
            "ld": write_leading_dimensions([[v.strides[-2] if k or v is c else 0 for v in (x, packed, c)]]),
            "aligned_a": alignment_of(x.address),
            "aligned_b": alignment_of(packed.address),
            "aligned_c": min(alignment_of(c.address), alignment_like_c(epilogue[1].items())),
        }
    )
    return QuantizedJagged(
        tuple((m, n, k) for m in item_sizes(rows, items)),
        dtype=x.dtype.name,
        compute=compute,
        deterministic=deterministic,
        out=c.dtype.name,
        epilogue=epilogue[0],
        weights=w.format,
        group=w.group if k else 32,
        zeros=w.zeros is not None,
        scales=w.views["scales"].dtype.name,
        precision=w.precision,
        **common,
    )
