"""``gemm_bias_grad``: a product with the sums of its columns, which are the gradient of a bias."""

from __future__ import annotations

from functools import cache
from typing import Any

from ptxgen.api import gemm, new_arrays
from ptxgen.api.arrays import tensor, view
from ptxgen.api.epilogue_args import activation_name, columns_of_c
from ptxgen.api.task import TaskFunction
from ptxgen.errors import DtypeError, ShapeError
from ptxgen.problem.base import OUT_DTYPES
from ptxgen.problem.dtypes import dtype


def gemm_bias_grad(a: Any, b: Any, *, bias_grad: Any = None, **options: Any) -> tuple[Any, Any]:
    """The pair (``gemm(a, b, **options)``, the sums of its columns): with ``activation="relu_grad"`` or another
    gradient, the gradient of the sums of a layer, and that of its bias.

    ``a``: M×K. ``b``: K×N. The result has one of the dtypes float16, bfloat16, float32 and float64. ``bias_grad``: N
    elements of float32, of float64 for a float64 result; allocated if None. A second kernel adds the elements of the
    result, as they are stored, in this dtype. ``options``: those of ``gemm``, except ``workspace``.

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
    out = gemm.gemm(a, b, **options)
    operands = {
        name: new_arrays.empty_array(a, shape, element)
        for name, shape in (("A", (out.shape[0], 0)), ("B", (0, columns)))
    }
    return out, _column_sums(element.name)(**operands, X=out, out=bias_grad)


@cache
def _column_sums(element_type: str) -> TaskFunction:
    """The task of the sums of the columns of an array; its operands A and B have no elements."""
    return TaskFunction(
        f"where (i, j) {{ reduce (k) {{ accum += A[i, k] * B[k, j]; }} C[j] += {element_type}(X[i, j]); }}"
    )
