"""``gemm_bias_grad``: a product with the sums of its columns, which are the gradient of a bias."""

from __future__ import annotations

from functools import cache
from typing import Any

from ptxgen.api import call_lock, gemm, new_arrays
from ptxgen.api.arrays import matrix_layout, require_disjoint, tensor, view
from ptxgen.api.epilogue_args import Activation, activation_name, columns_of_c
from ptxgen.api.quantized_weight import QuantizedWeight
from ptxgen.api.task import TaskFunction
from ptxgen.errors import DtypeError, ShapeError
from ptxgen.problem.base import OUT_DTYPES
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.epilogue_ops import epilogue_op


def gemm_bias_grad(a: Any, b: Any, *, bias_grad: Any = None, **options: Any) -> tuple[Any, Any]:
    """The pair (``gemm(a, b, **options)``, the sums of its columns): with ``activation="relu_grad"`` or another
    gradient, the gradient of the sums of a layer, and that of its bias.

    ``a``: M×K. ``b``: K×N. The result has one of the dtypes float16, bfloat16, float32 and float64. ``bias_grad``: N
    elements of float32, of float64 for a float64 result; allocated if None. The kernel of the product adds the elements
    of each column of the result in this dtype, before they are rounded, in an order that does not depend on timing. A
    second kernel adds the elements as they are stored if the result is column-major, K is 0, the activation is gated,
    or ``b`` is a ``QuantizedWeight``. ``options``: those of ``gemm``, except ``workspace``.

    ShapeError, DtypeError, OverlapError, InputError: an argument breaks a rule.
    """
    for name, x in (("a", a), ("b", b)):
        if (rank := len(getattr(x, "shape", (0, 0)))) != 2:
            raise ShapeError(f"{name} has {rank} dimensions; it must have 2, because all rows have one bias")
    if options.pop("workspace", None) is not None:
        raise TypeError("gemm_bias_grad() got an unexpected keyword argument 'workspace'")
    result = options.get("out")
    name = view(a, "a").dtype.name if result is None else view(result, "out").dtype.name
    stored = dtype(OUT_DTYPES.get(name, (name,))[0] if result is None else name)
    if stored.integer or stored.part or stored.bytes == 1:
        raise DtypeError(f"out is {stored}; with the gradient of a bias it must be f16, bf16, f32 or f64")
    element = dtype("f64" if stored.name == "f64" else "f32")
    columns = columns_of_c(b.shape[1], activation_name(options.get("activation")))
    if bias_grad is not None:
        given = tensor(bias_grad, "bias_grad")
        if given.shape != (columns,) or given.dtype is not element:
            raise ShapeError(
                f"bias_grad is {given.dtype} of shape {given.shape}; it must be {element} of {columns} elements"
            )
        others = {"a": a, "out": result, **{x: options.get(x) for x in ("bias", "residual", "aux", "sums")}}
        require_disjoint(given, "bias_grad", **{name: tensor(x, name) for name, x in others.items() if x is not None})
    if _adds_in_kernel(a, b, result, options.get("activation")):
        sums = new_arrays.empty_array(a, (columns,), element) if bias_grad is None else bias_grad
        out = _multiply(a, b, sums, **options)
        return out, sums if bias_grad is not None else new_arrays.result_of(sums, a)
    out = gemm.gemm(a, b, **options)
    operands = {
        name: new_arrays.empty_array(a, shape, element)
        for name, shape in (("A", (out.shape[0], 0)), ("B", (0, columns)))
    }
    return out, _column_sums(element.name)(**operands, X=out, out=bias_grad)


def _adds_in_kernel(a: Any, b: Any, out: Any, activation: Any) -> bool:
    """True if the kernel of a product can add the elements of each column of the result."""
    if isinstance(b, QuantizedWeight) or 0 in (*a.shape, *b.shape):
        return False
    name = activation_name(activation)
    row_major = out is None or (matrix_layout(view(out, "out")) or "T")[0] == "N"
    return row_major and (name is None or not epilogue_op(name).gated)


def _multiply(
    a: Any,
    b: Any,
    column_sums: Any,
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
    """The product with the sums of its columns in ``column_sums``. The options are those of ``gemm``."""
    epilogue = scale_a, scale_b, bias, residual, activation, aux
    options = gemm.number(alpha, "alpha"), gemm.number(beta, "beta"), compute, deterministic
    with call_lock.lock:
        result = gemm.launch_uncached(
            None, a, b, out, *options, epilogue, None, vendor=vendor, sums=sums, column_sums=column_sums
        )
    return new_arrays.result_of(result, a) if out is None else result


@cache
def _column_sums(element_type: str) -> TaskFunction:
    """The task of the sums of the columns of an array; its operands A and B have no elements."""
    return TaskFunction(
        f"where (i, j) {{ reduce (k) {{ accum += A[i, k] * B[k, j]; }} C[j] += {element_type}(X[i, j]); }}"
    )
