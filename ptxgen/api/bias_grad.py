"""``gemm_bias_grad``: a product with sums that are the gradient of a bias: those of its columns, or of an operand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from inspect import signature
from typing import Any

from ptxgen.api import call_lock, epilogue_calls, gemm, new_arrays
from ptxgen.api.arrays import matrix_layout, require_disjoint, tensor, view
from ptxgen.api.epilogue_args import Activation, activation_name, columns_of_c
from ptxgen.api.quantized_weight import QuantizedWeight
from ptxgen.api.task import TaskFunction
from ptxgen.arguments import word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.problem.base import OUT_DTYPES
from ptxgen.problem.dtypes import dtype
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
    arrays = {name: options.get(name) for name in _ARRAYS} | {"a": a, "b": b, "bias_grad": bias_grad}
    rest = tuple((name, x) for name, x in options.items() if name not in _ARRAYS)
    by_value = all(isinstance(options.get(name, 1), int | float | complex) for name in ("alpha", "beta"))
    call = epilogue_calls.call_of(arrays, (of, rest)) if by_value and not callable(options.get("activation")) else None
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
        given = tensor(bias_grad, "bias_grad")
        if given.shape != (length,) or given.dtype is not element:
            raise ShapeError(
                f"bias_grad is {given.dtype} of shape {given.shape}; it must be {element} of {length} elements"
            )
        others = {"a": a, "out": result, **{x: options.get(x) for x in ("bias", "residual", "aux", "sums")}}
        views = b.views if isinstance(b, QuantizedWeight) else {"b": view(b, "b")}
        views |= {name: tensor(x, name) for name, x in others.items() if x is not None}
        require_disjoint(given, "bias_grad", **views)
        if length > 1 and given.strides != (1,):
            raise ShapeError(f"bias_grad has a stride of {given.strides[0]} elements; they must be contiguous")
    if _adds_in_kernel(a, b, of, options):
        sums = new_arrays.empty_array(a, (length,), element) if bias_grad is None else bias_grad
        if call is not None and bias_grad is None:
            call = replace(call, made={"bias_grad": sums})
        out = _multiply(a, b, sums, of, call, **options)
        return out, sums if bias_grad is not None else new_arrays.result_of(sums, a)
    out = gemm.gemm(a, b, **options)
    summed = {"out": out, "a": a.T, "b": b}[of]
    operands = {
        name: new_arrays.empty_array(a, shape, element)
        for name, shape in (("A", (summed.shape[0], 0)), ("B", (0, length)))
    }
    return out, _column_sums(element.name)(**operands, X=summed, out=bias_grad)


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


@cache
def _column_sums(element_type: str) -> TaskFunction:
    """The task of the sums of the columns of an array; its operands A and B have no elements."""
    return TaskFunction(
        f"where (i, j) {{ reduce (k) {{ accum += A[i, k] * B[k, j]; }} C[j] += {element_type}(X[i, j]); }}"
    )
