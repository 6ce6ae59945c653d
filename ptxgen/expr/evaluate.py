"""Values of expressions, computed by NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ptxgen.expr.node import Node, walk
from ptxgen.expr.operators import OPERATORS
from ptxgen.expr.value_types import PRED, ValueType, type_of

_BF16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)


def numpy_type(type: str) -> np.dtype[Any]:
    """The NumPy type of values of a type."""
    t = type_of(type)
    if type == PRED:
        return np.dtype(bool)
    if type == "bf16":
        return _BF16
    letter = "f" if t.floating else "i" if t.group == "signed" else "u"
    return np.dtype(f"{letter}{t.bits // 8}")


def values(roots: Sequence[Node], variables: Mapping[str, Any], exact: bool = True) -> list[Any]:
    """The values of expressions. ``variables``: by name, arrays or numbers, which broadcast against each other.

    ``exact``: floats are float64, and only a cast to a narrower float rounds; else every operation rounds to its type.
    Casts of floats to integers truncate and saturate. NaN becomes 0; if the float is f64 or the integer has 64 bits, it
    becomes the integer whose highest bit alone is set, as PTX defines.
    """
    done: dict[Node, Any] = {}
    with np.errstate(all="ignore"):
        for x in walk(*roots):
            done[x] = _value(x, [done[y] for y in x.arguments], variables, exact)
    return [done[x] for x in roots]


def evaluate(root: Node, variables: Mapping[str, Any], exact: bool = True) -> Any:
    """The value of one expression; the arguments are those of ``values``."""
    return values([root], variables, exact)[0]


def _value(x: Node, arguments: list[Any], variables: Mapping[str, Any], exact: bool) -> Any:
    t = type_of(x.type)
    own = numpy_type(x.type)
    held = np.dtype(np.float64) if exact and t.floating else own
    if x.op == "constant":
        return np.asarray(x.value).astype(own).astype(held)
    if x.op == "variable":
        return np.asarray(variables[x.value]).astype(held)
    if x.op == "select":
        return np.where(*arguments)
    if x.op == "cast":
        return _cast(arguments[0], type_of(x.arguments[0].type), t).astype(held)
    operator = OPERATORS[x.op]
    if exact or not t.floating or t.bits == 64:
        result = operator.compute(*arguments)
    else:  # one rounding, of a result in float64
        result = operator.compute(*(np.asarray(y).astype(np.float64) for y in arguments))
    return np.asarray(result).astype(np.dtype(bool) if operator.compares else held)


def _cast(a: Any, source: ValueType, to: ValueType) -> Any:
    """``a`` as a number of another type."""
    if to.group == "predicate":
        return a != 0
    if source.floating and to.integer:
        wide = np.trunc(np.asarray(a).astype(np.float64))
        low, high = float(to.least), float(to.greatest)
        inside = np.where((wide > low) & (wide < high), wide, 0.0).astype(numpy_type(to.name))
        ends = np.where(wide <= low, numpy_type(to.name).type(to.least), numpy_type(to.name).type(to.greatest))
        numbers = np.where((wide <= low) | (wide >= high), ends, inside)
        bit = 1 << (to.bits - 1) if source.name == "f64" or to.bits == 64 else 0
        return np.where(np.isnan(wide), numpy_type(to.name).type(-bit if low < 0 else bit), numbers)
    return np.asarray(a).astype(numpy_type(to.name))
