"""The functions on all pairs of rows of two arrays that ``pairwise`` traces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

from ptxgen.expr.node import Node
from ptxgen.expr.value_types import type_of
from ptxgen.operations.task.tracing import outputs
from ptxgen.operations.task.tracing.functions import abs as absolute
from ptxgen.operations.task.tracing.functions import axes, cast, exp2, log2, maximum, minimum, sqrt, where
from ptxgen.operations.task.tracing.operands import lifted

_i, _j, _k = axes("i j k")
AXES = {"i": _i, "j": _j, "k": _k}


@dataclass(frozen=True)
class NamedStep:
    """A distance with a name. ``step``: the function of two elements (and of p if ``takes_p``) that is reduced;
    ``finish``: the function that returns the distance, None: the reduction is the distance. Its arguments are the
    reduction, then p if ``takes_p``, K if ``takes_size``, and a number for each of both rows if ``of_rows`` says which
    number: inverse_norm, or count (of elements that are not 0). ``increases``: True if distances have the order of the
    reductions."""

    step: Callable[..., Any]
    reduce: str = "+"
    finish: Callable[..., Any] | None = None
    increases: bool = False
    takes_p: bool = False
    takes_size: bool = False
    of_rows: str = ""


def _float(x: Any) -> Any:
    """The value as a float."""
    value = lifted(x)
    return x if isinstance(value, Node) and type_of(value.type).floating else cast(x, "f32")


def _square(x: Any, y: Any) -> Any:
    difference = _distance(x, y) if _type(x) == "u32" else x - y
    return _summed(difference, x) ** 2


def _product(x: Any, y: Any) -> Any:
    return _summed(x, x) * _summed(y, y)


def _summed(value: Any, x: Any) -> Any:
    """The value as a float if x is an integer of 16 or 32 bits: products of such values may be beyond 32 bits."""
    return _float(value) if _type(x) in ("s16", "u16", "s32", "u32") else value


def _distance(x: Any, y: Any) -> Any:
    """|x - y|, also of unsigned integers."""
    return maximum(x, y) - minimum(x, y) if _type(x) == "u32" else absolute(x - y)


def _size(x: Any) -> Any:
    """|x|, also of an unsigned integer."""
    return x if _type(x) == "u32" else absolute(x)


def _type(x: Any) -> str:
    """The element type of an element of an array."""
    value = lifted(x)
    return value.type if isinstance(value, Node) else ""


def _power(u: Any, p: Any) -> Any:
    return exp2(p * log2(u))


def _root(c: Any, p: Any) -> Any:
    return exp2(log2(c) / p)


def _canberra(x: Any, y: Any) -> Any:
    sizes = _float(_size(x)) + _float(_size(y))  # a sum of integers may be beyond their range
    return _float(_distance(x, y)) / (sizes + (sizes == 0))  # 0 / 0 is 0


def _jaccard(common: Any, nx: Any, ny: Any) -> Any:
    both = nx + ny - common
    return _float(both - common) / _float(both + (both == 0))  # 0 / 0 is 0


#: name in ``scipy.spatial.distance.cdist`` -> distance
NAMED_STEPS = {
    "sqeuclidean": NamedStep(_square),
    "euclidean": NamedStep(_square, finish=lambda c: sqrt(_float(c)), increases=True),
    "cityblock": NamedStep(_distance),
    "chebyshev": NamedStep(_distance, "max"),
    "minkowski": NamedStep(
        lambda x, y, p: _power(_float(_distance(x, y)), p),
        finish=_root,
        increases=True,
        takes_p=True,
    ),
    "canberra": NamedStep(_canberra),
    "hamming": NamedStep(
        lambda x, y: x != y, finish=lambda c, size: _float(c) / _float(size), increases=True, takes_size=True
    ),
    "jaccard": NamedStep(lambda x, y: (x != 0) & (y != 0), finish=_jaccard, of_rows="count"),
    "cosine": NamedStep(_product, finish=lambda c, nx, ny: maximum(1 - _float(c) * nx * ny, 0), of_rows="inverse_norm"),
}


def _zero_at_zero(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function like ``f``, but 0 at 0, with the derivative 0 there."""

    def safe(c: Any, *numbers: Any) -> Any:
        zero = c == 0
        return where(zero, 0, f(where(zero, 1, c), *numbers))

    return safe


#: the distances whose derivative must be 0 between equal rows, where the chain rule alone would give NaN
_DIFFERENTIABLE = {
    "euclidean": replace(NAMED_STEPS["euclidean"], finish=_zero_at_zero(lambda c: sqrt(_float(c)))),
    "minkowski": replace(
        NAMED_STEPS["minkowski"],
        step=lambda x, y, p: _zero_at_zero(_power)(_float(_distance(x, y)), p),
        finish=_zero_at_zero(_root),
    ),
}


@dataclass(frozen=True)
class Pairs:
    """The arguments of ``pairwise``: the step, its reduction, the finish, and the condition of the pairs to compute.
    ``differentiable``: named distances have finite derivatives between equal rows."""

    step: str | Callable[..., Any]
    reduce: str
    finish: Callable[..., Any] | None
    when: Callable[..., Any] | None
    differentiable: bool = False

    @property
    def place(self) -> Any:
        """A function of the caller, whose line errors name; None: there is none."""
        return next((x for x in (self.finish, self.step, self.when) if isinstance(x, FunctionType)), None)

    @property
    def shared(self) -> bool:
        """True if no function was written by the caller, so that equal objects have equal programs."""
        return isinstance(self.step, str) and self.finish is None and self.when is None

    @property
    def named(self) -> NamedStep | None:
        if not isinstance(self.step, str):
            return None
        return (_DIFFERENTIABLE if self.differentiable else {}).get(self.step, NAMED_STEPS[self.step])

    @property
    def increases(self) -> bool:
        """True if results have the order of their reductions."""
        return self.finish is None and self.named is not None and (self.named.increases or self.named.finish is None)

    def function(
        self, output: Callable[..., Any], test: Callable[..., Any] | None = None, finished: bool = True
    ) -> Callable[..., Any]:
        """The function of the task. ``output``: the function that makes the output, given the result of a pair,
        ``test``, the keys gx and gy, and n; ``finished``: False: the result of a pair is the reduction. The function
        may have a part of the rows: ``first_i``, ``first_j`` are then the numbers of the first ones. Tracing finds the
        numbers around the caller's functions, because these functions are in the closure of the returned function."""
        step, reduce = self._steps
        own, finish = self._finishes if finished else (None, None)
        when = self.when

        def pairs(
            X: Any,  # noqa: N803
            Y: Any = None,  # noqa: N803
            nx: Any = None,
            ny: Any = None,
            gx: Any = None,
            gy: Any = None,
            p: Any = None,
            size: Any = None,
            n: Any = None,
            first_i: Any = None,
            first_j: Any = None,
        ) -> Any:
            i, j, k = AXES["i"], AXES["j"], AXES["k"]
            if when is not None:
                outputs.restricted(when(_shifted(i, first_i), _shifted(j, first_j)))
            elements = X[i, k], (X if Y is None else Y)[j, k]
            c = outputs.reduce(reduce, k, step(*elements, *_given(p)), None, None)
            if own is not None:
                c = own(c, *_given(p, size), *(() if nx is None else (nx[i], (nx if ny is None else ny)[j])))
            if finish is not None:
                c = finish(c)
            return output(c, test, gx, gy, n)

        return pairs

    @property
    def _steps(self) -> tuple[Callable[..., Any], str]:
        """The function of two elements, and its reduction."""
        if self.named is not None:
            return self.named.step, self.named.reduce
        assert callable(self.step)
        return self.step, self.reduce

    @property
    def _finishes(self) -> tuple[Callable[..., Any] | None, Callable[..., Any] | None]:
        """The functions of the reduction, in order: that of the distance and the caller's."""
        return None if self.named is None else self.named.finish, self.finish

    @property
    def finishes(self) -> bool:
        """True if results are functions of the reductions."""
        return any(self._finishes)

    def listed(self) -> Callable[..., Any]:
        """The function of a task that computes the reduction of each pair of a list from its two rows, which P and R
        have along i; A and B have no elements."""
        step, reduce = self._steps

        def reductions(A: Any, B: Any, P: Any, R: Any, p: Any = None) -> Any:  # noqa: N803
            i, j, k = AXES["i"], AXES["j"], AXES["k"]
            outputs.reduce("+", k, A[i, k] * B[k, j], None, None)
            return outputs.reduce(reduce, j, step(P[i, j], R[i, j], *_given(p)), None, None)

        return reductions

    def finishing(self) -> Callable[..., Any]:
        """The function of a task that computes the result from each reduction in a vector V. ``nx``, ``ny``: as in
        ``function``, for each element of V; A and B have no elements."""
        own, finish = self._finishes

        def finished(
            A: Any,  # noqa: N803
            B: Any,  # noqa: N803
            V: Any,  # noqa: N803
            nx: Any = None,
            ny: Any = None,
            p: Any = None,
            size: Any = None,
        ) -> Any:
            i, j, k = AXES["i"], AXES["j"], AXES["k"]
            outputs.reduce("+", k, A[i, k] * B[k, j], None, None)
            c = V[i]
            if own is not None:
                c = own(c, *_given(p, size), *(() if nx is None else (nx[i], ny[i])))
            if finish is not None:
                c = finish(c)
            return outputs.reduce("+", j, c, None, None)

        return finished


def _shifted(axis: Any, first: Any) -> Any:
    return axis if first is None else axis + first


def _given(*numbers: Any) -> list[Any]:
    return [x for x in numbers if x is not None]


def all_results(c: Any, *_: Any) -> Any:
    """The output of the results of all pairs."""
    return c


def reduced(op: str, axis: int, c: Any, test: Any, *_: Any) -> Any:
    """The output of a reduction along an axis: of results, or of conditions if there is a ``test``."""
    value, along = c if test is None else outputs.tested(test(c)), AXES["j" if axis == 1 else "i"]
    if op == "logsumexp":
        return outputs.reduce_rows(op, along, value)
    return outputs.reduce(op, along, value, None, None)


def listed(c: Any, test: Any, *_: Any) -> Any:
    """The output that lists the pairs for which the test holds."""
    return outputs.selected(test(c), (c, _i, _j))


def best(greatest: bool, axis: int, c: Any, test: Any, gx: Any, gy: Any, n: Any) -> Any:
    """The output of the n greatest or least results along an axis."""
    return outputs.best(greatest, (AXES["j" if axis == 1 else "i"], n, c), test)


def grouped(op: str, c: Any, test: Any, gx: Any, gy: Any, *_: Any) -> Any:
    """The output that reduces the pairs with equal keys. If an axis has no keys, its index is the key."""
    keys = (_i if gx is None else gx[_i], _j if gy is None else gy[_j])
    return outputs.grouped(op, *keys, c if test is None else outputs.tested(test(c)))


#: form of an output -> the function that makes it
OUTPUTS: dict[str, Callable[..., Any]] = {
    "matrix": all_results,
    "reduced": reduced,
    "listed": listed,
    "grouped": grouped,
    "best": best,
}
