"""The names with which functions of tasks are written: axes, functions of expressions, reductions and outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.errors import TaskError
from ptxgen.operations.task.tracing import outputs
from ptxgen.operations.task.tracing.operands import Axis, Reduced, Traced, computed
from ptxgen.operations.task.tracing.places import error
from ptxgen.operations.task.typed import CAST_TYPES, call, choice
from ptxgen.operations.task.typed import cast as typed_cast

__all__ = [
    "abs",
    "all",
    "any",
    "argmax",
    "argmin",
    "axes",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bottom",
    "cast",
    "clamp",
    "count_by",
    "distinct",
    "erf",
    "exp",
    "exp2",
    "fma",
    "fmax",
    "fmin",
    "log",
    "log2",
    "logsumexp",
    "max",
    "max_by",
    "maximum",
    "mean",
    "min",
    "min_by",
    "minimum",
    "popcount",
    "pow",
    "prod",
    "prod_by",
    "rsqrt",
    "sigmoid",
    "sqrt",
    "sum",
    "sum_by",
    "tanh",
    "top",
    "when",
    "where",
]


def axes(names: str) -> tuple[Axis, ...]:
    """Axes with these names, which spaces or commas separate. Of the two axes that are not reduced, the first is i."""
    given = tuple(names.replace(",", " ").split())
    for name in given:
        if not name.isidentifier() or given.count(name) > 1:
            raise TaskError(f"names is {names!r}; it must be different names, as in 'i j k'")
    return tuple(Axis(name, n) for n, name in enumerate(given))


def where(condition: Any, a: Any, b: Any) -> Traced:
    """``a`` where the condition holds, else ``b``."""
    return computed(choice, condition, a, b)


def cast(x: Any, dtype: Any) -> Traced:
    """The value converted to another type: f64, f32, f16, bf16, s64, …, u8, or NumPy's name of a type. Conversion to an
    integer truncates."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", str(dtype))
    if name not in CAST_TYPES:
        try:
            known = np.dtype(dtype)
            name = f"{'s' if known.kind == 'i' else known.kind}{known.itemsize * 8}"
        except TypeError:
            name = {"bfloat16": "bf16"}.get(name, name)
    if name not in CAST_TYPES:
        raise error(f"the type of a cast is {dtype}; it must be one of {', '.join(CAST_TYPES)}")
    return computed(lambda value: typed_cast(value, name), x)


def _function(name: str, *arguments: Any) -> Traced:
    return computed(lambda *values: call(name, values), *arguments)


def exp(x: Any) -> Traced:
    """e to the power of x."""
    return _function("exp", x)


def exp2(x: Any) -> Traced:
    """2 to the power of x."""
    return _function("exp2", x)


def log(x: Any) -> Traced:
    """The natural logarithm of x."""
    return _function("log", x)


def log2(x: Any) -> Traced:
    """The logarithm of x to base 2."""
    return _function("log2", x)


def erf(x: Any) -> Traced:
    """The error function of x."""
    return _function("erf", x)


def tanh(x: Any) -> Traced:
    """The hyperbolic tangent of x."""
    return _function("tanh", x)


def sigmoid(x: Any) -> Traced:
    """The logistic function, 1 / (1 + exp(-x))."""
    return _function("sigmoid", x)


def pow(x: Any, y: Any) -> Traced:
    """x to the power y, NaN if x is negative and y is no integer. ``x ** y`` is the same. Products if y is an integer
    in the function from -64 to 64, a root if it is 1/2."""
    return _function("pow", x, y)


def clamp(x: Any, low: Any, high: Any) -> Traced:
    """x, at least low and at most high; NaN if x is NaN."""
    return _function("clamp", x, low, high)


def sqrt(x: Any) -> Traced:
    """The square root of x."""
    return _function("sqrt", x)


def rsqrt(x: Any) -> Traced:
    """1 divided by the square root of x."""
    return _function("rsqrt", x)


def abs(x: Any) -> Traced:
    """The absolute value of x."""
    return _function("abs", x)


def popcount(x: Any) -> Traced:
    """The number of one bits of an unsigned integer."""
    return _function("popcount", x)


def minimum(x: Any, *others: Any) -> Traced:
    """The least of the operands, NaN if one is NaN."""
    return _function("min", x, *others)


def maximum(x: Any, *others: Any) -> Traced:
    """The greatest of the operands, NaN if one is NaN."""
    return _function("max", x, *others)


def fmin(x: Any, *others: Any) -> Traced:
    """The least of the operands that are not NaN."""
    return _function("fmin", x, *others)


def fmax(x: Any, *others: Any) -> Traced:
    """The greatest of the operands that are not NaN."""
    return _function("fmax", x, *others)


def fma(a: Any, b: Any, c: Any) -> Traced:
    """a·b + c with one rounding."""
    return _function("fma", a, b, c)


def sum(axis: Axis, x: Any, *, accum: str | None = None, initial: Any = None) -> Any:
    """The sum over an axis. Over the reduced axis, it is an expression; over a spatial axis, it is an output.
    ``accum``: the type of the sum; ``initial``: a value that is added once. The other reductions have the same
    parameters."""
    return outputs.reduce("+", axis, x, accum, initial)


def prod(axis: Axis, x: Any, *, accum: str | None = None, initial: Any = None) -> Any:
    """The product over an axis."""
    return outputs.reduce("*", axis, x, accum, initial)


def max(axis: Axis, x: Any, *, accum: str | None = None, initial: Any = None) -> Any:
    """The greatest value over an axis, NaN if one is NaN."""
    return outputs.reduce("max", axis, x, accum, initial)


def min(axis: Axis, x: Any, *, accum: str | None = None, initial: Any = None) -> Any:
    """The least value over an axis, NaN if one is NaN."""
    return outputs.reduce("min", axis, x, accum, initial)


def bit_and(axis: Axis, x: Any, *, initial: Any = None) -> Any:
    """The bits that are one in all values over an axis."""
    return outputs.reduce("&", axis, x, None, initial)


def bit_or(axis: Axis, x: Any, *, initial: Any = None) -> Any:
    """The bits that are one in any value over an axis."""
    return outputs.reduce("|", axis, x, None, initial)


def bit_xor(axis: Axis, x: Any, *, initial: Any = None) -> Any:
    """The bits that are one in an odd number of values over an axis."""
    return outputs.reduce("^", axis, x, None, initial)


def any(axis: Axis, condition: Any) -> Any:
    """A condition that holds if ``condition`` holds for any index of the axis."""
    return outputs.reduce_conditions("|", axis, condition)


def all(axis: Axis, condition: Any) -> Any:
    """A condition that holds if ``condition`` holds for all indices of the axis."""
    return outputs.reduce_conditions("&", axis, condition)


def argmin(axis: Axis, x: Any) -> Any:
    """The first index of the least value over an axis, or of the first NaN; −1 if the axis has no indices."""
    return outputs.reduce("argmin", axis, x, None, None)


def argmax(axis: Axis, x: Any) -> Any:
    """The first index of the greatest value over an axis, or of the first NaN; −1 if the axis has no indices."""
    return outputs.reduce("argmax", axis, x, None, None)


def mean(axis: Axis, x: Any, *, accum: str | None = None) -> Any:
    """The mean over an axis."""
    return outputs.reduce("mean", axis, x, accum, None)


def logsumexp(axis: Axis, x: Any) -> Reduced:
    """The output with the logarithms of sums of exponentials over a spatial axis."""
    return outputs.reduce_rows("logsumexp", axis, x)


def sum_by(row: Any, column: Any, x: Any) -> Reduced:
    """The output with the sum over the pairs with equal keys, for each pair of keys. ``row``, ``column``: the keys:
    elements of arrays of integers, or an axis."""
    return outputs.grouped("+", row, column, x)


def prod_by(row: Any, column: Any, x: Any) -> Reduced:
    """The output with the product over the pairs with equal keys. ``row``, ``column``: as for ``sum_by``."""
    return outputs.grouped("*", row, column, x)


def max_by(row: Any, column: Any, x: Any) -> Reduced:
    """The output with the greatest value of the pairs with equal keys. ``row``, ``column``: as for ``sum_by``."""
    return outputs.grouped("max", row, column, x)


def min_by(row: Any, column: Any, x: Any) -> Reduced:
    """The output with the least value of the pairs with equal keys. ``row``, ``column``: as for ``sum_by``."""
    return outputs.grouped("min", row, column, x)


def count_by(row: Any, column: Any, condition: Any = 1) -> Reduced:
    """The output with the number of pairs with equal keys for which a condition holds. ``row``, ``column``: as for
    ``sum_by``."""
    return outputs.grouped("+", row, column, condition)


def select(condition: Any, *values: Any) -> Reduced:
    """The output that lists the values of the pairs for which a condition holds."""
    return outputs.selected(condition, values)


def distinct(row: Any, column: Any, condition: Any = None) -> Reduced:
    """The output that lists the distinct pairs of keys, as ``g[i]`` and ``h[j]``, of the pairs (i, j) for which the
    condition holds."""
    return outputs.distinct(row, column, condition)


def top(*arguments: Any, condition: Any = None) -> Reduced:
    """The output with the n greatest values of an expression e, the greatest first, and their indices: ``top(n, e, i,
    j)`` for all pairs, ``top(j, n, e)`` over j for each row i. ``n``: an integer or a scalar; ``condition``: only pairs
    for which it holds are considered. NaN is greater than all numbers; of equal values, the value of the first pair is
    the better one."""
    return outputs.best(True, arguments, condition)


def bottom(*arguments: Any, condition: Any = None) -> Reduced:
    """The output with the n least values, otherwise as ``top``."""
    return outputs.best(False, arguments, condition)


def when(condition: Any) -> None:
    """Restricts the task to the pairs for which a condition without the reduction holds."""
    outputs.restricted(condition)
