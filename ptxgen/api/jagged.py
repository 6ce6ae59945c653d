"""``gemm_jagged`` and its gradients: the products of a mixture of experts, with group sizes that stay on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ptxgen.api import call_lock, drivers, new_arrays, quantized_jagged, streams
from ptxgen.api.arrays import (
    View,
    alignment_of,
    as_numpy,
    emptied,
    matrix_layout,
    require_disjoint,
    require_same_memory,
    view,
)
from ptxgen.api.block_scales import BlockScale, block_scales, item_block_scales, scales_in_f32
from ptxgen.api.epilogue_args import Activation, activation_name, alignment_like_c, columns_of_c
from ptxgen.api.gemm import check_same_dtype, number
from ptxgen.api.jagged_calls import (
    check_offset_values,
    check_out,
    checked_offsets,
    compute_on_host,
    epilogue_of,
    item_sizes,
    pitches,
    queue_product,
    stored_along,
    with_layout,
)
from ptxgen.api.quantized_weight import QuantizedWeight
from ptxgen.arguments import flag, word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.gemm.strided_arrays import C
from ptxgen.operations.grouped.problem import GroupedGemm, write_leading_dimensions
from ptxgen.problem.base import OUT_DTYPES
from ptxgen.problem.block_scales import DEPTH
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
    sums: Any = None,
) -> Any:
    """Multiplies the rows of ``x`` (T×K), grouped by expert, by the weights of their expert; the result is T×N.

    ``w``: E×K×N. ``offsets``: E int32, for each expert the index of the row after its last row, as in PyTorch's grouped
    product. Offsets on a GPU are read by the kernel, and the call does not synchronise. Rows after the last offset of
    ``out`` are not written. Offsets on the host that decrease or pass T are an error; on a GPU they give wrong results,
    but no access outside the arrays.

    ``w`` may be a ``QuantizedWeight`` of E×N×K integers: the rows of an expert are then multiplied by the transpose of
    its N rows of weights, ``x`` has dtype float16 or bfloat16, and sums are float32.

    ``bias``: E×N, or T×1 (one element per row). ``scale_a``, ``scale_b``: float32 or float8_e8m0fnu, E elements each,
    or T and E×N; for 8-bit floats also block scales along K: T×⌈K/128⌉, and E×⌈K/128⌉×N or E×⌈K/128⌉×⌈N/128⌉.
    ``residual``, ``aux``: as ``out``. ``sums``: as for ``gemm``, not with a ``QuantizedWeight``; T×N also with a gated
    activation; rows after the last offset are not written. The other arguments are those of ``gemm``. A captured CUDA
    graph can be replayed with other offsets.

    ShapeError, DtypeError, OverlapError, InputError: an argument breaks a rule.
    """
    arrays = {"bias": bias, "residual": residual, "aux": aux, "scale_a": scale_a, "scale_b": scale_b}
    if isinstance(w, QuantizedWeight):
        if sums is not None:
            raise InputError("sums is an array; with quantized weights it must be None")
        return quantized_jagged.multiply(x, w, offsets, out, alpha, beta, compute, deterministic, arrays, activation)
    arrays["sums"] = sums
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
    scale_a: Any = None,
    scale_b: Any = None,
) -> Any:
    """The gradient of ``gemm_jagged`` with respect to ``w``, E×K×N: for each expert, the transpose of its rows of ``x``
    (T×K) times its rows of ``dy`` (T×N). An expert without rows gives zeros. The arguments are those of
    ``gemm_jagged``, without an epilogue but for block scales.

    ``scale_a``, ``scale_b``: float32 or float8_e8m0fnu, B×K and B×N: for 8-bit floats, one scale of each column of
    ``x`` and of ``dy`` for each 128 rows of an expert. The first block of an expert begins at its first row, its last
    block may be shorter, and its scales follow those of the expert before. B is at least the number of blocks, and at
    least ⌈T/128⌉.

    ShapeError, DtypeError, OverlapError, InputError: an argument breaks a rule.
    """
    arrays = {"scale_a": _transposed(scale_a), "scale_b": scale_b}
    return _jagged(
        "k", (_transposed(x), "x"), (dy, "dy"), offsets, out, alpha, beta, compute, deterministic, arrays, None
    )


def _transposed(x: Any) -> Any:
    """The transpose of a matrix; other objects as they are."""
    return x.T if len(getattr(x, "shape", ())) == 2 else x


def _transposed_weights(w: Any) -> Any:
    """A view of ``w`` (E×K×N) with each matrix transposed. ShapeError: ``w`` has not three dimensions. InputError: it
    is quantized."""
    if isinstance(w, QuantizedWeight):
        raise InputError(
            "w is a QuantizedWeight; its input gradient takes w.dequantize().swapaxes(1, 2), in dy's dtype"
        )
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
        ends = checked_offsets(offsets, va)
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
        check_out(va, vc, shape)
        arrays |= {name: scales_in_f32(arrays[name], name) for name in ("scale_a", "scale_b")}
        scales = _block_scales(axis, va, vb, arrays, ends)
        blocks, scaled = (
            [word for word, _ in scales],
            dict(zip(("scale_a", "scale_b"), (v for _, v in scales), strict=False)),
        )
        arrays = {name: x for name, x in arrays.items() if name not in scaled}
        ops, operands = epilogue_of(axis, vc, items, arrays, activation)
        epilogue = ops, scaled | operands
        require_disjoint(vc, **{name_a: va, name_b: vb}, offsets=ends, **epilogue[1])
        if "sums" in epilogue[1]:
            others = {name: v for name, v in epilogue[1].items() if name != "sums"}
            require_disjoint(epilogue[1]["sums"], "sums", **{name_a: va, name_b: vb}, offsets=ends, **others)
        if va.host:
            check_offset_values(as_numpy(ends), va.shape[0] if axis == "m" else va.shape[1], axis)
        else:
            drivers.require_device(on, **{name_a: va, name_b: vb}, offsets=ends, out=vc, **epilogue[1])
        if 0 not in shape and items:
            if alpha == 0:
                va, vb = emptied(va, -1), emptied(vb, -2)
            problem: GroupedGemm | Gemm
            layout = ""
            if blocks and axis == "k":
                (va, letter_a), (vb, letter_b) = stored_along(va, name_a, 1), stored_along(vb, name_b, 0)
                layout = letter_a + letter_b
            else:
                va, vb = with_layout(va, name_a), with_layout(vb, name_b)
            group = _problem(axis, va, vb, vc, items, epilogue, compute, deterministic)
            if blocks:
                group = _with_blocks(group, layout, va, vb, blocks, epilogue[1]["scale_b"])
            problem = group
            views: tuple[View, ...] = (va, vb, vc, *epilogue[1].values(), ends)
            if alpha == 0 and axis == "k":  # the items differ in K alone
                problem, views = _without_items(group), (va, vb, vc)
            if va.host:
                compute_on_host(problem, views, alpha, beta)
            else:
                queue_product(on, problem, views, alpha, beta, streams.current_stream(a))
    return new_arrays.result_of(result, a) if out is None else result


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


def _block_scales(axis: str, a: View, b: View, arrays: dict[str, Any], ends: View) -> tuple[BlockScale, ...]:
    """The block scales of both operands; empty: there are none. ShapeError, DtypeError, InputError: they do not fit the
    operands."""
    shapes: list[tuple[int, ...]] = [getattr(arrays.get(name), "shape", ()) for name in ("scale_a", "scale_b")]
    if axis == "k":
        given = arrays["scale_a"] is not None and arrays["scale_b"] is not None
        return item_block_scales(a, b, arrays["scale_a"], arrays["scale_b"], _least_blocks(a, ends)) if given else ()
    if axis != "m" or [len(shape) for shape in shapes] != [2, 3]:
        return ()
    rows, columns = shapes[0]
    blocks = -(-a.shape[1] // DEPTH)
    if rows != a.shape[0]:
        raise ShapeError(f"scale_a is {rows}x{columns}; it must have {a.shape[0]} rows, one for each row of x")
    if columns != blocks:
        raise ShapeError(f"scale_a is {rows}x{columns}; it must have {blocks} columns, one for each {DEPTH} of K")
    return block_scales(a, b, arrays["scale_a"], arrays["scale_b"], always=True) or ()


def _least_blocks(a: View, ends: View) -> int:
    """The least number of blocks of K that scales must have: those of the whole K, and those of all items if their
    offsets are on the host."""
    lengths = np.maximum(np.diff(as_numpy(ends), prepend=0), 0) if ends.host else np.zeros(0, np.int64)
    return max(-(-a.shape[1] // DEPTH), int((-(-lengths // DEPTH)).sum()))


def _with_blocks(group: GroupedGemm, layout: str, a: View, b: View, blocks: list[str], scale_b: View) -> GroupedGemm:
    """The group with scales of ``blocks``. ``layout``: that of a group that is jagged along K."""
    if group.jagged != "k":
        return replace(group, block_a=blocks[0], block_b=blocks[1])
    rows = (v.shape["TN".index(letter)] for v, letter in zip((a, b), layout, strict=True))
    lds = [max(pitch, row, 1) for pitch, row in zip(pitches(layout, a, b), rows, strict=True)]
    ld = "" if a.host else write_leading_dimensions([[*lds, int(group.lds[0][C])]])
    count, items = scale_b.shape[0], group.items
    if group.first_blocks[-1] > count:  # the typical items have more blocks than the true ones: let them be whole
        (m, n, _), ends = items[0], np.minimum(-(-group.offsets // DEPTH) * DEPTH, a.shape[1])
        items = tuple((m, n, k) for k in np.diff(ends, prepend=0).tolist())
    return replace(group, items=items, layout=layout, ld=ld, block_a=blocks[0], block_b=blocks[1], scale_blocks=count)


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
    return GroupedGemm(
        shapes,
        layout_a + layout_b,
        a.dtype.name,
        compute,
        write_leading_dimensions([lds]) if not a.host else "",
        alignment_of(a.address) if not a.host else 16,
        alignment_of(b.address) if not a.host else 16,
        min(alignment_of(c.address), alignment_like_c(epilogue[1].items())) if not a.host else 16,
        deterministic,
        c.dtype.name,
        epilogue[0],
        axis,
        dtype_b=b.dtype.name,
    )


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
