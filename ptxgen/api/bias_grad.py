"""Gradients of biases. ``gemm_bias_grad``: a product with sums of its columns, or of an operand; and the sums of the
gradients of the results of convolutions, of lists of products and of jagged groups."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from inspect import signature
from typing import Any

import numpy as np

from ptxgen.api import call_lock, epilogue_calls, gemm, grouped, jagged, new_arrays
from ptxgen.api.arrays import View, is_cupy, is_torch, matrix_layout, require_disjoint, tensor, view
from ptxgen.api.conv_layouts import LAYOUTS
from ptxgen.api.epilogue_args import Activation, activation_name, columns_of_c, text_of
from ptxgen.api.quantized_weight import QuantizedWeight
from ptxgen.api.task import TaskFunction
from ptxgen.arguments import flag, word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.problem.base import OUT_DTYPES
from ptxgen.problem.dtypes import Dtype, dtype
from ptxgen.problem.epilogue_ops import epilogue_op

#: the types of operands whose elements the kernel of a product can add
SUMMED = ("f16", "bf16", "f32", "f64")
#: the options of ``gemm`` that are arrays
_ARRAYS = ("out", "bias", "residual", "aux", "sums", "scale_a", "scale_b")
_OPTIONS = signature(gemm.gemm).parameters.keys() - {"workspace"}


def gemm_bias_grad(a: Any, b: Any, *, bias_grad: Any = None, of: str = "out", **options: Any) -> tuple[Any, Any]:
    """The pair (``gemm(a, b, **options)``, sums that are the gradient of a bias).

    ``of``: out: the sums of the columns of the result: with ``activation="relu_grad"`` or another gradient, the result
    is the gradient of the sums of a layer, and these are that of its bias. a: the sums of the rows of ``a``, M
    elements; b: those of the columns of ``b``, N elements: if the product is the gradient of a weight, the gradients of
    results are one of its operands, and these are the gradient of the bias.

    ``a``: M×K. ``b``: K×N. The result has one of the dtypes float16, bfloat16, float32 and float64. ``bias_grad``: an
    array for the sums, of float32, of float64 for a float64 result; allocated if None. The kernel of the product adds,
    in this dtype, elements of the result before they are rounded. The order of additions does not depend on timing,
    except those of operands along K if blocks compute parts of K; with ``deterministic=True`` it never does. With b the
    result is column-major. A second kernel adds, the result as it is stored, if ``out`` has the other order, an extent
    or ``alpha`` is 0, sums are float16 (for a and b), the activation is gated (for out), or ``b`` is a
    ``QuantizedWeight``. ``options``: those of ``gemm``, except ``workspace``.

    ShapeError, DtypeError, OverlapError, InputError: an argument breaks a rule.
    """
    if type(options.get("deterministic", False)) is not bool:  # 1 equals True in a key
        options["deterministic"] = flag("deterministic", options["deterministic"])
    if callable(options.get("activation")):
        options["activation"] = text_of(options["activation"])
    arrays = {name: options.get(name) for name in _ARRAYS} | {"a": a, "b": b, "bias_grad": bias_grad}
    rest = tuple((name, x) for name, x in options.items() if name not in _ARRAYS)
    by_value = all(isinstance(options.get(name, 1), int | float | complex) for name in ("alpha", "beta"))
    call = epilogue_calls.call_of(arrays, (of, rest)) if by_value else None
    if (made := epilogue_calls.launched(call, a)) is not None:
        product = made["out"] if "out" in made else options["out"]
        return product.T if of == "b" and "out" in made else product, made.get("bias_grad", bias_grad)
    word("of", of, ("out", "a", "b"))
    for name, x in (("a", a), ("b", b)):
        if (rank := len(getattr(x, "shape", (0, 0)))) != 2:
            raise ShapeError(f"{name} has {rank} dimensions; it must have 2, because all rows have one bias")
    for name in options.keys() - _OPTIONS:
        if name != "workspace" or options[name] is not None:
            raise TypeError(f"gemm_bias_grad() got an unexpected keyword argument '{name}'")
    options.pop("workspace", None)
    result = options.get("out")
    name = view(a, "a").dtype.name if result is None else view(result, "out").dtype.name
    stored = dtype(OUT_DTYPES.get(name, (name,))[0] if result is None else name)
    if stored.integer or stored.part or stored.bytes == 1:
        raise DtypeError(f"out is {stored}; with the gradient of a bias it must be f16, bf16, f32 or f64")
    element = dtype("f64" if stored.name == "f64" else "f32")
    quantized = isinstance(b, QuantizedWeight)
    if of == "b" and quantized:
        raise InputError("of is b and b is a QuantizedWeight; b must then be an array")
    if of != "out" and (summed := view({"a": a, "b": b}[of], of).dtype).bytes == 1 and not summed.integer:
        raise DtypeError(f"{of} is {summed}; with of={of} it must be f16, bf16, f32 or f64")
    n = b.shape[0 if quantized else 1]
    length = {"out": columns_of_c(n, activation_name(options.get("activation"))), "a": a.shape[0], "b": n}[of]
    if bias_grad is not None:
        others = {"a": a, **{x: options.get(x) for x in _ARRAYS}}
        views = b.views if isinstance(b, QuantizedWeight) else {"b": view(b, "b")}
        views |= {name: tensor(x, name) for name, x in others.items() if x is not None}
        _check_sums(bias_grad, "bias_grad", (length,), element, views)
    if _adds_in_kernel(a, b, of, options):
        sums = new_arrays.empty_array(a, (length,), element) if bias_grad is None else bias_grad
        if call is not None and bias_grad is None:
            call = replace(call, made={"bias_grad": sums})
        out = _multiply(a, b, sums, of, call, **options)
        return out, sums if bias_grad is not None else new_arrays.result_of(sums, a)
    out = gemm.gemm(a, b, **options)
    return out, _sums_of_columns({"out": out, "a": a.T, "b": b}[of], element, bias_grad)


def _adds_in_kernel(a: Any, b: Any, of: str, options: dict[str, Any]) -> bool:
    """True if the kernel of a product can compute the sums."""
    out, name = options.get("out"), activation_name(options.get("activation"))
    gated = name is not None and epilogue_op(name).gated
    if isinstance(b, QuantizedWeight) or 0 in (*a.shape, *b.shape) or options.get("alpha", 1.0) == 0 or gated:
        return False
    if of == "out":
        return out is None or (matrix_layout(view(out, "out")) or "T")[0] == "N"
    x = view(a, "a")
    epilogue = {"bias", "residual", "aux", "activation", "sums", "scale_a", "scale_b"} & options.keys()
    if x.dtype.name not in SUMMED or options.get("compute") == "f16" or (of == "b" and epilogue):
        return False
    order = "N" if of == "a" else "T"
    return out is None or (matrix_layout(view(out, "out")) or "")[:1] == (order,)


def _multiply(
    a: Any,
    b: Any,
    bias_grad: Any,
    of: str,
    call: epilogue_calls.Call | None,
    *,
    alpha: complex = 1.0,
    beta: complex = 0.0,
    out: Any = None,
    compute: str | None = None,
    deterministic: bool = False,
    bias: Any = None,
    residual: Any = None,
    activation: Activation | None = None,
    aux: Any = None,
    sums: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    vendor: str | None = None,
) -> Any:
    """The product with the sums of ``of`` in ``bias_grad``, whose launch is stored for ``call``. The options are those
    of ``gemm``."""
    if of == "b":  # the rows of A in Cᵀ = BᵀAᵀ, which is stored by rows
        transposed = None if out is None else out.T
        options: dict[str, Any] = {"alpha": alpha, "beta": beta, "compute": compute}
        options |= {"deterministic": deterministic, "vendor": vendor}
        result = _multiply(b.T, a.T, bias_grad, "a", call, out=transposed, **options)
        return result.T if out is None else out
    sums_of = {"out": "column_sums", "a": "a_sums"}[of]
    epilogue = scale_a, scale_b, bias, residual, activation, aux
    settings = gemm.number(alpha, "alpha"), gemm.number(beta, "beta"), compute, deterministic
    with call_lock.lock:
        result = gemm.launch_uncached(
            None, a, b, out, *settings, epilogue, None, vendor=vendor, sums=sums, call=call, **{sums_of: bias_grad}
        )
    return new_arrays.result_of(result, a) if out is None else result


def conv2d_bias_grad(grads: Any, *, layout: str = "NCHW", out: Any = None) -> Any:
    """The gradient of ``conv2d`` with respect to its bias: for each filter the sum of ``grads``, the gradient with
    respect to the results, over images and pixels.

    ``grads``: float16, bfloat16, float32 or float64, with the axes that ``layout`` names, in any order in memory; an
    array with gaps is copied first. ``out``: one element for each filter, contiguous, of float32, of float64 for
    float64; allocated if None. The order of additions does not depend on timing.

    If ``grads`` is the result of ``conv2d_input_grad`` with ``activation="relu_grad"``, the sums are the gradient of
    the bias of the layer before.

    ShapeError, DtypeError, OverlapError, InputError: an argument breaks a rule.
    """
    word("layout", layout, LAYOUTS[2])
    v, element = _summed(grads, "grads")
    if len(v.shape) != len(layout):
        raise ShapeError(f"grads has {len(v.shape)} dimensions; it must have {len(layout)}, {layout}")
    filters = v.shape[layout.index("C")]
    if out is not None:
        _check_sums(out, "out", (filters,), element, {"grads": v})
    order = sorted(range(len(layout)), key=lambda axis: -v.strides[axis] * (v.shape[axis] != 1))
    x, at = _permuted(grads, order), order.index(layout.index("C"))
    extents = [v.shape[axis] for axis in order]
    before, after = math.prod(extents[:at]), math.prod(extents[at + 1 :])
    if after == 1:
        return _sums_of_columns(x.reshape(before, filters), element, out)
    rows = x.reshape(before * filters, after)
    if before == 1:
        return _sums_of_columns(_permuted(rows, (1, 0)), element, out)
    partial = _sums_of_columns(_permuted(rows, (1, 0)), element, None)
    return _sums_of_columns(partial.reshape(before, filters), element, out)


def gemm_jagged_bias_grad(dy: Any, offsets: Any, *, out: Any = None) -> Any:
    """The gradient of ``gemm_jagged`` with respect to its bias: E×N, the sum of the rows of ``dy`` of each expert.

    ``dy``: T×N, the gradient with respect to the results, of float16, bfloat16, float32 or float64. ``offsets``: as for
    ``gemm_jagged``. ``out``: E×N of float32, of float64 for float64; allocated if None. An expert without rows gives
    zeros.

    ShapeError, DtypeError, OverlapError, InputError: an argument breaks a rule.
    """
    v, element = _summed(dy, "dy")
    if len(v.shape) != 2:
        raise ShapeError(f"dy has {len(v.shape)} dimensions; it must have 2, T×N")
    items = tensor(offsets, "offsets").shape
    if out is not None and len(items) == 1:
        _check_sums(out, "out", (*items, v.shape[1]), element, {"dy": v}, contiguous=False)
    result = new_arrays.empty_array(dy, (*items, 1, v.shape[1]), element) if out is None else out[:, None]
    jagged.gemm_jagged_weight_grad(_ones(dy, (v.shape[0], 1)), dy, offsets, out=result)
    return new_arrays.result_of(result, dy)[:, 0] if out is None else out


def gemm_grouped_bias_grad(dys: Sequence[Any], *, outs: Sequence[Any] | None = None) -> list[Any]:
    """The gradients of ``gemm_grouped`` with respect to its biases: for each item the sums of the columns of its
    ``dys``, in one launch.

    ``dys``: a list of matrices of one dtype, the gradients with respect to the results, of float16, bfloat16, float32
    or float64. ``outs``: a list of arrays, each with as many elements as its item has columns, of float32, of float64
    for float64; allocated if None.

    ShapeError, DtypeError, OverlapError, InputError: an argument breaks a rule.
    """
    count = grouped.length_of("dys", dys)
    if outs is not None and grouped.length_of("outs", outs) != count:
        raise InputError(f"dys has {count} items and outs has {len(outs)}; they must have as many")
    results, ones, first = [], [], None
    for i, dy in enumerate(dys):
        v, element = _summed(dy, f"item {i}: dys")
        first = first or v.dtype
        if v.dtype is not first:
            raise DtypeError(f"item {i}: dys is {v.dtype}; it must be {first}, as in item 0")
        if len(v.shape) != 2:
            raise ShapeError(f"item {i}: dys has {len(v.shape)} dimensions; it must have 2")
        if outs is not None:
            _check_sums(outs[i], f"item {i}: outs", (v.shape[1],), element, {"dys": v})
        new = outs is None
        results.append(new_arrays.empty_array(dy, (1, v.shape[1]), element) if new else outs[i][None])  # type: ignore[index]
        ones.append(_ones(dy, (1, v.shape[0])))
    grouped.gemm_grouped(ones, list(dys), results)
    if outs is not None:
        return list(outs)
    return [new_arrays.result_of(x, dy)[0] for x, dy in zip(results, dys, strict=True)]


def _summed(x: Any, name: str) -> tuple[View, Dtype]:
    """The array ``x`` whose elements are added, and the type of their sums. DtypeError: its type has no sums."""
    v = tensor(x, name)
    if v.dtype.name not in SUMMED:
        raise DtypeError(f"{name} is {v.dtype}; it must be {', '.join(SUMMED[:-1])} or {SUMMED[-1]}")
    return v, dtype("f64" if v.dtype.name == "f64" else "f32")


def _check_sums(
    given: Any, name: str, shape: tuple[int, ...], element: Dtype, operands: dict[str, View], contiguous: bool = True
) -> None:
    """Checks the array for sums. ShapeError, OverlapError: it breaks a rule."""
    v = tensor(given, name)
    if v.shape != shape or v.dtype is not element:
        raise ShapeError(f"{name} is {v.dtype} of shape {v.shape}; it must be {element} of shape {shape}")
    require_disjoint(v, name, **operands)
    if contiguous and math.prod(shape) > 1 and v.strides[-1] != 1:
        raise ShapeError(f"{name} has a stride of {v.strides[-1]} elements; they must be contiguous")


def _sums_of_columns(x: Any, element: Dtype, out: Any) -> Any:
    """The sums of the columns of a matrix in a new array, or in ``out``."""
    operands = {
        name: new_arrays.empty_array(x, shape, element)
        for name, shape in (("A", (x.shape[0], 0)), ("B", (0, x.shape[1])))
    }
    return _column_sums(element.name)(**operands, X=x, out=out)


def _permuted(x: Any, axes: Sequence[int]) -> Any:
    """A view of ``x`` with its axes in another order."""
    return x.permute(*axes) if is_torch(x) else x.transpose(axes)


def _ones(x: Any, shape: tuple[int, ...]) -> Any:
    """A new array of ones, of the library, type and memory of ``x``."""
    if is_torch(x):
        return x.new_ones(shape)
    library = importlib.import_module("cupy") if is_cupy(x) else getattr(x, "__array_namespace__", lambda: np)()
    return library.ones(shape, x.dtype)


@cache
def _column_sums(element_type: str) -> TaskFunction:
    """The task of the sums of the columns of an array; its operands A and B have no elements."""
    return TaskFunction(
        f"where (i, j) {{ reduce (k) {{ accum += A[i, k] * B[k, j]; }} C[j] += {element_type}(X[i, j]); }}"
    )
