"""What calls of jagged products share: the checks of their arguments, and launches."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.api import launch_function, on_host, runners, streams
from ptxgen.api.arrays import View, as_numpy, is_torch, matrix_layout, require_same_memory, tensor, view
from ptxgen.api.epilogue_args import Activation, checked_activation, checked_sums, columns_of_sums
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.problem.base import ELEMENTWISE_OPERANDS, OUT_DTYPES
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.epilogue_ops import arrays_of


def checked_offsets(offsets: Any, a: View) -> View:
    """``offsets`` as a View. InputError, DtypeError, ShapeError: it is not a vector of int32 in the memory of ``a``."""
    offset_type = str(getattr(offsets, "dtype", "int32")).removeprefix("torch.")
    if offset_type != "int32":
        raise DtypeError(f"offsets is {offset_type}; it must be int32")
    v = tensor(offsets, "offsets")
    if len(v.shape) != 1 or (not v.host and v.shape[0] > 1 and v.strides[0] != 1):
        raise ShapeError(f"offsets has shape {v.shape} and strides {v.strides}; it must be a contiguous vector")
    require_same_memory("offsets", v, "the first operand", a)
    return v


def check_out(a: View, c: View, shape: tuple[int, ...]) -> None:
    """ShapeError, DtypeError, InputError: out cannot store the result."""
    if c.shape != shape:
        raise ShapeError(f"out has shape {c.shape}; it must be {shape}")
    if c.dtype.name not in OUT_DTYPES[a.dtype.name]:
        raise DtypeError(f"out is {c.dtype}; it must be {' or '.join(OUT_DTYPES[a.dtype.name])}")
    require_same_memory("out", c, "the first operand", a)
    if not c.host and 0 not in shape and not _row_major(c):
        raise ShapeError(f"out has strides {c.strides}; its rows must be contiguous, without gaps between items")


def _row_major(v: View) -> bool:
    """True if rows are contiguous, and matrices follow each other in memory."""
    layout = matrix_layout(v)
    return layout is not None and layout[0] == "N" and _is_packed(v, layout[1])


def _is_packed(v: View, ld: int) -> bool:
    """True if matrices with the leading dimension ``ld`` follow each other without gaps."""
    rows, columns = v.shape[-2:]
    if len(v.shape) < 3 or v.shape[0] == 1:
        return True
    transposed = (matrix_layout(v) or ("N", 0))[0] == "T"
    length, count = (rows, columns) if transposed else (columns, rows)
    return v.strides[0] == count * (ld or length)


def with_layout(v: View, name: str) -> View:
    """The operand, or a copy of it with contiguous rows, and matrices without gaps between them."""
    layout = matrix_layout(v)
    if layout is not None and _is_packed(v, layout[1]):
        return v
    if v.host and not is_torch(v.origin):
        return view(np.ascontiguousarray(as_numpy(v)), name, batched=True)
    copy = getattr(v.origin, "contiguous", None) or v.origin.copy
    return view(copy(), name, batched=True)


def stored_along(v: View, name: str, axis: int) -> tuple[View, str]:
    """The matrix, or a copy of it if neither its rows nor its columns are contiguous; and its letter in a layout: N if
    rows are contiguous, T if columns are. If both are, and on the host, whose arrays are copied in any case, the
    elements along ``axis`` count as contiguous."""
    if v.host or _contiguous(v, axis):
        return v, "TN"[axis]
    if _contiguous(v, 1 - axis):
        return v, "NT"[axis]
    x = v.origin if axis else v.origin.T
    copy = x.contiguous() if hasattr(x, "contiguous") else x.copy()
    return view(copy if axis else copy.T, name), "TN"[axis]


def _contiguous(v: View, axis: int) -> bool:
    """True if elements are adjacent along ``axis``, and their lines do not overlap."""
    length, pitch = v.shape[axis], v.strides[1 - axis]
    return (v.strides[axis] == 1 or length <= 1) and (pitch >= length or v.shape[1 - axis] <= 1)


def pitches(layout: str, a: View, b: View) -> list[int]:
    """The leading dimensions of A and B in ``layout``; 0: there is one row."""
    axes = ("NT".index(letter) for letter in layout)
    return [v.strides[n] if v.shape[n] > 1 else 0 for v, n in zip((a, b), axes, strict=True)]


def check_offset_values(ends: np.ndarray[Any, Any], extent: int, axis: str) -> None:
    """InputError: an offset decreases, or passes the extent. The message names the item."""
    before = np.concatenate([[0], ends[:-1]])
    for i in np.flatnonzero((ends < before) | (ends > extent))[:1]:
        if ends[i] > extent:
            raise InputError(f"offset {ends[i]} of item {i} passes the end of the rows, {extent}")
        raise InputError(f"offset {ends[i]} of item {i} is less than {before[i]}, where the item begins")


def epilogue_of(
    axis: str, c: View, items: int, arrays: dict[str, Any], activation: Activation | None
) -> tuple[str, dict[str, View]]:
    """The pair (operations, their operands by name, in the order of the problem's arrays). ShapeError, InputError,
    DtypeError: an argument breaks a rule."""
    given = {
        name: view(x, name) if name in ELEMENTWISE_OPERANDS else tensor(x, name)
        for name, x in arrays.items()
        if x is not None and name != "sums"
    }
    activation = checked_activation(activation, given.get("aux"))
    rows, columns = c.shape[-2], columns_of_sums(c.shape[-1], activation)
    ops: list[str] = []
    views: dict[str, View] = {}
    epilogue_dtype = dtype("f32") if c.dtype.bytes == 1 else c.dtype
    if ("scale_a" in given) != ("scale_b" in given):
        raise InputError("one of scale_a and scale_b is None; pass both or neither")
    if "scale_a" in given:
        shapes = given["scale_a"].shape, given["scale_b"].shape
        if shapes == ((rows,), (items, columns)):
            ops.append("scale_rows")
        elif shapes == ((items,), (items,)):
            ops.append("scale")
        else:
            raise ShapeError(
                f"scale_a and scale_b have shapes {shapes[0]} and {shapes[1]}; they must be ({items},) and ({items},),"
                f" or ({rows},) and ({items}, {columns})"
            )
        views["scale_a"], views["scale_b"] = given["scale_a"], given["scale_b"]
    if "bias" in given:
        by_column, by_row = (items, columns), (rows, 1)
        if given["bias"].shape not in (by_column, by_row):
            raise ShapeError(f"bias has shape {given['bias'].shape}; it must be {by_column} or {by_row}")
        ops.append("bias_column" if given["bias"].shape == by_column else "bias_row")
        views["bias"] = given["bias"]
    for name in (name for name in ELEMENTWISE_OPERANDS if name in given):
        v = given[name]
        if v.shape != c.shape or (v.strides != c.strides and not c.host):  # host arrays are copied
            raise ShapeError(
                f"{name} has shape {v.shape} and strides {v.strides}; they must be those of out, {c.shape} and"
                f" {c.strides}"
            )
        views[name] = v
    for name, v in views.items():
        wanted = (
            dtype("f32") if name.startswith("scale") else c.dtype if name in ELEMENTWISE_OPERANDS else epilogue_dtype
        )
        if v.dtype is not wanted:
            raise DtypeError(f"{name} is {v.dtype}; it must be {wanted}")
        require_same_memory(name, v, "out", c)
        packed = tuple(int(np.prod(v.shape[i + 1 :])) for i in range(len(v.shape)))
        if (
            name not in ELEMENTWISE_OPERANDS
            and not v.host
            and any(s != p and n > 1 for s, p, n in zip(v.strides, packed, v.shape, strict=True))
        ):
            raise ShapeError(f"{name} has strides {v.strides}; its elements must be contiguous")
    if "residual" in given:
        ops.append("residual")
    if (sums := arrays.get("sums")) is not None:
        ops.append("store_sums")
        views["sums"] = checked_sums(sums, c, (*c.shape[:-1], columns), activation)
    if activation is not None:
        ops.append(activation)
    return ",".join(ops), {name: views[name] for op in ops for name in arrays_of(op)}


def item_sizes(extent: int, items: int) -> list[int]:
    """Typical sizes of ``items`` experts that have ``extent`` rows together: they grow evenly from 0.5 to 1.5 times the
    mean, because a tile chosen for equal sizes would be too small for many experts.
    """
    shares = np.arange(items + 1) / items
    return [int(n) for n in np.diff(np.rint(extent * shares * (1 + shares) / 2))]


def compute_on_host(problem: GroupedGemm | Gemm, views: tuple[View, ...], alpha: float, beta: float) -> None:
    """Copies host arrays to the device, computes there, and copies the results back."""
    arrays = []
    for place, v in enumerate(views):
        x = as_numpy(v)
        letter = problem.layout[place] if place < 2 else "N"
        arrays.append(np.ascontiguousarray(np.swapaxes(x, -1, -2) if letter == "T" else x))
    named = dict(zip(problem.arrays, arrays, strict=True))
    results = on_host.compute_on_host(problem, named, alpha, beta)
    for name, v in zip(problem.arrays, views, strict=True):
        if name in results:
            as_numpy(v)[...] = results[name]


def queue_product(
    on: Any, problem: GroupedGemm | Gemm, views: tuple[View, ...], alpha: float, beta: float, stream: int
) -> None:
    """Queues the product of arrays that are on the device of the driver ``on``."""
    runner = runners.runner_for(problem, stream, on)
    launch = launch_function.make_launch(runner, alpha, beta)
    with streams.ordered(on, stream, views):
        launch(tuple(v.address for v in views), stream)
