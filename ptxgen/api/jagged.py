"""``gemm_jagged`` and its gradients: the products of a mixture of experts, with group sizes that stay on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ptxgen.api import call_lock, drivers, launch_function, new_arrays, on_host, runners, streams
from ptxgen.api.arrays import (
    View,
    alignment_of,
    as_numpy,
    emptied,
    is_torch,
    matrix_layout,
    require_disjoint,
    require_same_memory,
    tensor,
    view,
)
from ptxgen.api.block_scales import BlockScale, block_scales
from ptxgen.api.epilogue_args import Activation, activation_name, checked_activation, columns_of_c, columns_of_sums
from ptxgen.api.gemm import check_same_dtype, number
from ptxgen.arguments import flag, word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.gemm.strided_arrays import C
from ptxgen.operations.grouped.problem import GroupedGemm, write_leading_dimensions
from ptxgen.problem.base import ELEMENTWISE_OPERANDS, OUT_DTYPES
from ptxgen.problem.dtypes import dtype


def gemm_jagged(
    x: Any,
    w: Any,
    offsets: Any,
    *,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    compute: str | None = None,
    deterministic: bool = False,
    bias: Any = None,
    residual: Any = None,
    activation: Activation | None = None,
    aux: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
) -> Any:
    """Multiplies the rows of ``x`` (T×K), grouped by expert, by the weights of their expert; the result is T×N.

    ``w``: E×K×N. ``offsets``: E int32, for each expert the index of the row after its last row, as in PyTorch's grouped
    product. Offsets on a GPU are read by the kernel, and the call does not synchronise. Rows after the last offset of
    ``out`` are not written. Offsets on the host that decrease or pass T are an error; on a GPU they give wrong results,
    but no access outside the arrays.

    ``bias``: E×N, or T×1 (one element per row). ``scale_a``, ``scale_b``: float32, E elements each, or T and E×N; for
    8-bit floats also block scales along K: T×⌈K/128⌉, and E×⌈K/128⌉×N or E×⌈K/128⌉×⌈N/128⌉. ``residual``, ``aux``: as
    ``out``. The other arguments are those of ``gemm``. A captured CUDA graph can be replayed with other offsets.

    ShapeError, DtypeError, OverlapError, InputError: an argument breaks a rule.
    """
    arrays = {"bias": bias, "residual": residual, "aux": aux, "scale_a": scale_a, "scale_b": scale_b}
    return _jagged("m", (x, "x"), (w, "w"), offsets, out, alpha, beta, compute, deterministic, arrays, activation)


def gemm_jagged_input_grad(dy: Any, w: Any, offsets: Any, **options: Any) -> Any:
    """The gradient of ``gemm_jagged`` with respect to ``x``: the rows of ``dy`` (T×N) are multiplied by the transposed
    weights of their expert; the result is T×K. ``options``: those of ``gemm_jagged``."""
    return gemm_jagged(dy, _transposed_weights(w), offsets, **options)


def gemm_jagged_weight_grad(
    x: Any,
    dy: Any,
    offsets: Any,
    *,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    compute: str | None = None,
    deterministic: bool = False,
) -> Any:
    """The gradient of ``gemm_jagged`` with respect to ``w``, E×K×N: for each expert, the transpose of its rows of ``x``
    (T×K) times its rows of ``dy`` (T×N). An expert without rows gives zeros. The arguments are those of
    ``gemm_jagged``."""
    transposed = x.T if len(getattr(x, "shape", ())) == 2 else x
    return _jagged("k", (transposed, "x"), (dy, "dy"), offsets, out, alpha, beta, compute, deterministic, {}, None)


def _transposed_weights(w: Any) -> Any:
    """A view of ``w`` (E×K×N) with each matrix transposed. ShapeError: ``w`` has not three dimensions."""
    if len(getattr(w, "shape", ())) != 3:
        raise ShapeError(f"w has shape {tuple(getattr(w, 'shape', ()))}; it must be E×K×N")
    return w.swapaxes(1, 2)


def _jagged(
    axis: str,
    first: tuple[Any, str],
    second: tuple[Any, str],
    offsets: Any,
    out: Any,
    alpha: Any,
    beta: Any,
    compute: str | None,
    deterministic: bool,
    arrays: dict[str, Any],
    activation: Activation | None,
) -> Any:
    """The product of items along ``axis``, in ``out`` or a new array. ``first``, ``second``: the operands, each with
    its argument name."""
    alpha, beta = number(alpha, "alpha"), number(beta, "beta")
    compute, deterministic = word("compute", "" if compute is None else compute), flag("deterministic", deterministic)
    with call_lock.lock:
        (a, name_a), (b, name_b) = first, second
        va, vb = view(a, name_a), view(b, name_b, batched=axis == "m")
        ends = _offsets(offsets, va)
        items = ends.shape[0]
        activation = activation_name(activation)
        shape = _check_operands(axis, va, vb, name_a, name_b, items)
        columns = columns_of_c(shape[-1], activation, name_b)
        if columns != shape[-1] and beta != 0:
            raise InputError(f"beta is {beta:g}; with a gated activation it must be 0")
        shape = (*shape[:-1], columns)
        on = drivers.driver_of(va)
        if out is None and beta != 0:
            raise InputError(f"beta is {beta:g} and out is None; a beta other than 0 requires out")
        result = new_arrays.empty_array(a, shape, dtype(OUT_DTYPES[va.dtype.name][0])) if out is None else out
        vc = view(result, "out", batched=True)
        _check_out(va, vc, shape)
        scales = _block_scales(axis, va, vb, arrays)
        blocks, scaled = (
            [word for word, _ in scales],
            dict(zip(("scale_a", "scale_b"), (v for _, v in scales), strict=False)),
        )
        arrays = {name: x for name, x in arrays.items() if name not in scaled}
        ops, operands = _epilogue(axis, vc, items, arrays, activation)
        epilogue = ops, scaled | operands
        require_disjoint(vc, **{name_a: va, name_b: vb}, offsets=ends, **epilogue[1])
        if va.host:
            _check_offsets(as_numpy(ends), va.shape[0] if axis == "m" else va.shape[1], axis)
        else:
            drivers.require_device(on, **{name_a: va, name_b: vb}, offsets=ends, out=vc, **epilogue[1])
        if 0 not in shape and items:
            if alpha == 0:
                va, vb = emptied(va, -1), emptied(vb, -2)
            va, vb = _with_layout(va, name_a), _with_layout(vb, name_b)
            problem: GroupedGemm | Gemm
            group = _problem(axis, va, vb, vc, items, epilogue, compute, deterministic)
            problem = group = replace(group, block_a=blocks[0], block_b=blocks[1]) if blocks else group
            views: tuple[View, ...] = (va, vb, vc, *epilogue[1].values(), ends)
            if alpha == 0 and axis == "k":  # the items differ in K alone
                problem, views = _without_items(group), (va, vb, vc)
            if va.host:
                _compute_on_host(problem, views, alpha, beta)
            else:
                _launch(on, problem, views, alpha, beta, streams.current_stream(a))
    return new_arrays.result_of(result, a) if out is None else result


def _offsets(offsets: Any, a: View) -> View:
    """``offsets`` as a View. InputError, DtypeError, ShapeError: it is not a vector of int32 in the memory of ``a``."""
    offset_type = str(getattr(offsets, "dtype", "int32")).removeprefix("torch.")
    if offset_type != "int32":
        raise DtypeError(f"offsets is {offset_type}; it must be int32")
    v = tensor(offsets, "offsets")
    if len(v.shape) != 1 or (not v.host and v.shape[0] > 1 and v.strides[0] != 1):
        raise ShapeError(f"offsets has shape {v.shape} and strides {v.strides}; it must be a contiguous vector")
    require_same_memory("offsets", v, "the first operand", a)
    return v


def _check_operands(axis: str, a: View, b: View, name_a: str, name_b: str, items: int) -> tuple[int, ...]:
    """The shape of the result. DtypeError, ShapeError, InputError: the operands cannot be multiplied."""
    check_same_dtype(a, b, (name_a, name_b), floats_8=True)
    if a.dtype.name not in OUT_DTYPES:
        raise DtypeError(f"{name_a} and {name_b} have dtype {a.dtype}; no kernel multiplies them")
    require_same_memory(name_a, a, name_b, b)
    if axis == "m":
        if len(b.shape) != 3 or b.shape[0] != items:
            raise ShapeError(f"{name_b} has shape {b.shape}; it must be E×K×N with E={items}, the number of offsets")
        if a.shape[1] != b.shape[1]:
            raise ShapeError(
                f"{name_a} has {a.shape[1]} columns and {name_b} has K={b.shape[1]}; they must be the same"
            )
        return a.shape[0], b.shape[2]
    if a.shape[1] != b.shape[0]:
        raise ShapeError(f"{name_a} has {a.shape[1]} rows and {name_b} has {b.shape[0]}; they must be the same")
    return items, a.shape[0], b.shape[1]


def _check_out(a: View, c: View, shape: tuple[int, ...]) -> None:
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


def _with_layout(v: View, name: str) -> View:
    """The operand, or a copy of it with contiguous rows, and matrices without gaps between them."""
    layout = matrix_layout(v)
    if layout is not None and _is_packed(v, layout[1]):
        return v
    if v.host and not is_torch(v.origin):
        return view(np.ascontiguousarray(as_numpy(v)), name, batched=True)
    copy = getattr(v.origin, "contiguous", None) or v.origin.copy
    return view(copy(), name, batched=True)


def _check_offsets(ends: np.ndarray[Any, Any], extent: int, axis: str) -> None:
    """InputError: an offset decreases, or passes the extent. The message names the item."""
    before = np.concatenate([[0], ends[:-1]])
    for i in np.flatnonzero((ends < before) | (ends > extent))[:1]:
        if ends[i] > extent:
            raise InputError(f"offset {ends[i]} of item {i} passes the end of the rows, {extent}")
        raise InputError(f"offset {ends[i]} of item {i} is less than {before[i]}, where the item begins")


def _block_scales(axis: str, a: View, b: View, arrays: dict[str, Any]) -> tuple[BlockScale, ...]:
    """The block scales of both operands; empty: there are none. ShapeError, DtypeError, InputError: they do not fit the
    operands."""
    shapes: list[tuple[int, ...]] = [getattr(arrays.get(name), "shape", ()) for name in ("scale_a", "scale_b")]
    if axis != "m" or [len(shape) for shape in shapes] != [2, 3]:
        return ()
    scales = block_scales(a, b, arrays["scale_a"], arrays["scale_b"], always=True)
    if a.shape[0] != shapes[0][0]:
        raise ShapeError(f"scale_a is {shapes[0][0]}x{shapes[0][1]}; it must have {a.shape[0]} rows, one for each of a")
    return scales or ()


def _epilogue(
    axis: str, c: View, items: int, arrays: dict[str, Any], activation: Activation | None
) -> tuple[str, dict[str, View]]:
    """The pair (operations, their operands by name). ShapeError, InputError, DtypeError: an argument breaks a rule."""
    given = {
        name: view(x, name) if name in ELEMENTWISE_OPERANDS else tensor(x, name)
        for name, x in arrays.items()
        if x is not None
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
    if activation is not None:
        ops.append(activation)
    return ",".join(ops), views


def _problem(
    axis: str,
    a: View,
    b: View,
    c: View,
    items: int,
    epilogue: tuple[str, dict[str, View]],
    compute: str,
    deterministic: bool,
) -> GroupedGemm:
    """The problem of a call. Its item sizes are typical of experts, because the true sizes are on the device. For host
    arrays, the problem describes contiguous copies."""
    (layout_a, lda), (layout_b, ldb) = matrix_layout(a) or ("N", 0), matrix_layout(b) or ("N", 0)
    ldc = (matrix_layout(c) or ("N", 0))[1]
    extent = a.shape[0] if axis == "m" else a.shape[1]
    sizes = item_sizes(extent, items)
    m, n, k = a.shape[0], b.shape[-1], a.shape[1]
    shapes = tuple((s, n, k) if axis == "m" else (m, n, s) for s in sizes)
    packed = (m if layout_a == "T" else k, k if layout_b == "T" else n, c.shape[-1])
    lds = [ld or max(row, 1) for ld, row in zip((lda, ldb, ldc), packed, strict=True)]
    aligned_c = [alignment_of(v.address) for name, v in epilogue[1].items() if name in ELEMENTWISE_OPERANDS]
    return GroupedGemm(
        shapes,
        layout_a + layout_b,
        a.dtype.name,
        compute,
        write_leading_dimensions([lds]) if not a.host else "",
        alignment_of(a.address) if not a.host else 16,
        alignment_of(b.address) if not a.host else 16,
        min([alignment_of(c.address), *aligned_c]) if not a.host else 16,
        deterministic,
        c.dtype.name,
        epilogue[0],
        axis,
        dtype_b=b.dtype.name,
    )


def item_sizes(extent: int, items: int) -> list[int]:
    """Typical sizes of ``items`` experts that have ``extent`` rows together: they grow evenly from 0.5 to 1.5 times the
    mean, because a tile chosen for equal sizes would be too small for many experts.
    """
    shares = np.arange(items + 1) / items
    return [int(n) for n in np.diff(np.rint(extent * shares * (1 + shares) / 2))]


def _without_items(p: GroupedGemm) -> Gemm:
    """A batch of products with K = 0. It replaces a group that is jagged along K if ``alpha`` is 0, so that no offset
    matters."""
    (m, n, _), ldc = p.items[0], int(p.lds[0][C])
    return Gemm(
        m,
        n,
        0,
        dtype=p.dtype,
        dtype_b=p.dtype_b,
        compute=p.compute,
        ldc=ldc,
        aligned_c=p.aligned_c,
        deterministic=p.deterministic,
        out=p.out,
        batch=len(p.items),
        stride_a=0,
        stride_b=0,
        stride_c=m * ldc,
    )


def _compute_on_host(problem: GroupedGemm | Gemm, views: tuple[View, ...], alpha: float, beta: float) -> None:
    """Copies host arrays to the device, computes there, and copies the result back."""
    arrays = []
    for place, v in enumerate(views):
        x = as_numpy(v)
        letter = problem.layout[place] if place < 2 else "N"
        arrays.append(np.ascontiguousarray(np.swapaxes(x, -1, -2) if letter == "T" else x))
    named = dict(zip(problem.arrays, arrays, strict=True))
    as_numpy(views[2])[...] = on_host.compute_on_host(problem, named, alpha, beta)["C"]


def _launch(
    on: Any, problem: GroupedGemm | Gemm, views: tuple[View, ...], alpha: float, beta: float, stream: int
) -> None:
    """Queues the product of arrays that are on the device of the driver ``on``."""
    runner = runners.runner_for(problem, stream, on)
    launch = launch_function.make_launch(runner, alpha, beta)
    with streams.ordered(on, stream, views):
        launch(tuple(v.address for v in views), stream)
