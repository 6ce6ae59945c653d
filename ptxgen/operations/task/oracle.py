"""The results of a program, computed by NumPy in float64 and in integers that wrap around, with the errors that a
kernel may make. Floats have the precision of float64, and are rounded only where the program casts to a narrower type.
The error of each value follows from the types of its expression. The error is 0 where every operation of a kernel is
exact in any order of the reduction; there, results must be equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import ShapeError
from ptxgen.expr.evaluate import numpy_type, values
from ptxgen.expr.node import Node, walk
from ptxgen.expr.operators import OPERATORS
from ptxgen.expr.rounding import GREATEST, LEAST_NORMAL, UNIT, known, rounding_error, with_errors
from ptxgen.expr.simplify import cast
from ptxgen.expr.value_types import type_of
from ptxgen.operations.task.assembling import array_of, axes_of, roots
from ptxgen.operations.task.program import (
    ACCUMULATOR,
    AXES,
    EXTENTS,
    MEAN,
    POSITIONS,
    Aggregate,
    Distinct,
    Output,
    Program,
    RowReduce,
    Scatter,
    Select,
    Store,
    Top,
)

Array = NDArray[Any]
#: the most elements of a block of pairs and reduced indices
_BLOCK = 1 << 18
#: from so many steps on, sums of products are computed by matrix products, and the most elements of these matrices
PRODUCTS, FACTORS = 1 << 24, 1 << 27


@dataclass(frozen=True)
class Dense:
    """The result of an output that is an array: a matrix, groups, rows or columns. ``error``: the most by which each
    element of a kernel's result may differ; a test may multiply it by a factor; ``written``: True for the elements to
    which some pair gives a value, None: all; ``dropped``: the number of pairs whose keys are out of range."""

    values: Array
    error: Array
    written: Array | None = None
    dropped: int = 0


@dataclass(frozen=True)
class Listed:
    """The result of an output that is a list, in the order of (i, j). ``certain``: False where rounding may decide if a
    pair is listed; such pairs are listed here even if the condition does not hold; ``holds``: True where the condition
    holds."""

    values: tuple[Array, ...]
    errors: tuple[Array, ...]
    i: Array
    j: Array
    certain: Array
    holds: Array

    @property
    def count(self) -> int:
        """The number of pairs for which the condition holds."""
        return int(self.holds.sum())


@dataclass(frozen=True)
class Ordered:
    """The best values of all pairs, or of each row or column, the best first. ``i``, ``j``: the indices of the values,
    −1: there is no pair; ``axis``: i or j if there are best values for each index of this axis, else empty; ``pairs``,
    ``errors``: the values of all pairs, and the most by which they may differ; ``counts``: True for the pairs that
    satisfy the condition; ``certain``: False if rounding may decide whether a pair does."""

    values: Array
    i: Array
    j: Array
    axis: str
    pairs: Array
    errors: Array
    counts: Array
    certain: bool


Result = Dense | Listed | Ordered


def extents_of(program: Program, arrays: Mapping[str, Any]) -> dict[str, int]:
    """The extents of i, j and k, from the shapes of the arrays. Raises ShapeError if two arrays disagree, or no array
    has an axis."""
    extents: dict[str, tuple[int, str]] = {}
    for x in program.inputs:
        shape = np.shape(arrays[x.name])
        for axes in x.uses or ((),):
            if len(shape) != len(axes):
                raise ShapeError(f"{x.name} has shape {shape}; it must have {len(axes)} axes")
            for axis, extent in zip(axes, shape, strict=True):
                other, name = extents.setdefault(axis, (extent, x.name))
                if other != extent:
                    raise ShapeError(
                        f"{x.name} has {extent} elements along {axis}; it must have {other}, as {name} has"
                    )
    for axis in AXES:
        if axis not in extents:
            raise ShapeError(f"no array has the axis {axis}; its extent must be given")
    return {axis: extents[axis][0] for axis in AXES}


def evaluate(
    program: Program,
    arrays: Mapping[str, Any],
    extents: Mapping[str, int] | None = None,
    groups: Mapping[str, tuple[int, int]] | None = None,
) -> dict[str, Result]:
    """Name of an output -> the result of the program for it. ``arrays``: the arrays and the scalars, by name;
    ``extents``: the extents of i, j and k, by default from the shapes of the arrays; ``groups``: name of an output with
    keys -> its extents, by default the greatest keys plus 1."""
    with np.errstate(all="ignore"):
        return _Evaluation(program, arrays, extents or extents_of(program, arrays), groups or {}).results()


class _Evaluation:
    """One evaluation of a program, in blocks of rows, and in blocks of reduced indices within these."""

    def __init__(
        self,
        program: Program,
        arrays: Mapping[str, Any],
        extents: Mapping[str, int],
        groups: Mapping[str, tuple[int, int]],
    ) -> None:
        self.program, self.groups = program, groups
        self.m, self.n, self.k = (extents[axis] for axis in AXES)
        self.variables: dict[str, Array] = {}
        shapes = {"i": (1, -1, 1), "j": (1, 1, -1), "k": (-1, 1, 1)}
        for x in walk(*roots(program)):
            if x.op != "variable" or x.value == ACCUMULATOR:
                continue
            name = x.value
            if name in AXES:
                self.variables[name] = np.arange(extents[name], dtype=np.int32).reshape(shapes[name])
            elif name in EXTENTS:
                self.variables[name] = np.asarray(extents[AXES[EXTENTS.index(name)]], np.int32)
            else:
                self.variables[name] = self.placed(np.asarray(arrays[array_of(name)]), axes_of(name))

    def placed(self, array: Array, axes: Sequence[str]) -> Array:
        """The array with its axes in the order (k, i, j), and extent 1 for axes that it lacks."""
        order = [axis for axis in ("k", "i", "j") if axis in axes]
        array = array.transpose([axes.index(axis) for axis in order]) if axes else array
        lengths = dict(zip(order, array.shape, strict=True))
        return array.reshape([lengths.get(axis, 1) for axis in ("k", "i", "j")])

    def within(self, rows: slice, reduced: slice) -> dict[str, Array]:
        """The variables of the program, restricted to a block of rows and reduced indices."""
        out = {}
        for name, array in self.variables.items():
            if array.ndim == 3:
                array = array[reduced if array.shape[0] == self.k and depends("k", name) else slice(None)]
                array = array[:, rows] if depends("i", name) else array
            out[name] = array
        return out

    def results(self) -> dict[str, Result]:
        rows = max(1, _BLOCK // max(1, self.n))
        collected = [_collector(output, self) for output in self.program.outputs]
        for first in range(0, self.m, rows):
            block = slice(first, min(first + rows, self.m))
            shape = (block.stop - block.start, self.n)
            variables, errors = self.within(block, slice(0, 0)), dict[str, Array]()
            total, error = self.reduced(block, shape)
            variables[ACCUMULATOR], errors[ACCUMULATOR] = total[None], error[None]
            when = self.program.when
            selected, unsure = self.pairs([when], variables, errors, shape)[0] if when is not None else (None, None)
            for collector in collected:
                collector.add(block, variables, errors, selected, unsure)
        return {x.output.name: x.result() for x in collected}

    def pairs(
        self,
        expressions: Sequence[Node],
        variables: Mapping[str, Array],
        errors: Mapping[str, Array],
        shape: tuple[int, int],
    ) -> list[tuple[Array, Array]]:
        """For each expression (without k), its values and errors for the pairs of a block."""
        results = with_errors(expressions, variables, errors)
        return [tuple(np.broadcast_to(y.reshape(y.shape[-2:] if y.ndim else ()), shape) for y in x) for x in results]  # type: ignore[misc]

    def steps(self, rows: slice, shape: tuple[int, int]) -> Iterator[tuple[int, Array, Array]]:
        """For each block of reduced indices, its first k, the values of its steps and their errors."""
        deep = max(1, _BLOCK // max(1, shape[0] * shape[1]))
        for first in range(0, self.k, deep):
            block = slice(first, min(first + deep, self.k))
            [(step, error)] = with_errors([self.program.step], self.within(rows, block), {})
            full = (block.stop - block.start, *shape)
            yield first, np.broadcast_to(step, full), np.broadcast_to(error, full)

    def reduced(self, rows: slice, shape: tuple[int, int]) -> tuple[Array, Array]:
        """The value of the reduction for each pair, and its error."""
        program = self.program
        if program.reduction in POSITIONS:
            return self.position(rows, shape)
        if (product := self.product(rows)) is not None:
            return product
        op = "+" if program.reduction == MEAN else program.reduction
        running = Running(op, program.accumulator, shape)
        for _, step, error in self.steps(rows, shape):
            running.add(step, error)
        if program.initial is not None:
            variables = self.within(rows, slice(0, 0))
            [(value, error)] = self.pairs([program.initial], variables, {}, shape)
            running.add(value[None], error[None])
        total, error = running.result()
        if program.reduction == MEAN:
            total, error = total / np.float64(self.k), error / self.k if self.k else error
            error = error + 4 * UNIT[program.accumulator] * np.abs(total)
        return total, np.where(np.isnan(total), 0, error)

    @cached_property
    def factors(self) -> tuple[Array, Array, Array, Array] | None:
        """A and B in float64 if many sums are computed by a matrix product; which rows of A, and which columns of B,
        have only integers. None: the step is not a product, or there are few sums."""
        names, size = factors_of(self.program), (self.m + self.n) * self.k
        if names is None or self.m * self.n * self.k < PRODUCTS or size > FACTORS:
            return None
        a, b = (self.variables[name].astype(np.float64) for name in names)
        a, b = np.ascontiguousarray(a[:, :, 0].T), b[:, 0, :]
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            return None
        return a, b, (a == np.floor(a)).all(axis=1), (b == np.floor(b)).all(axis=0)

    def product(self, rows: slice) -> tuple[Array, Array] | None:
        """Sums of products, computed by a matrix product, and their errors. None: ``factors`` is None."""
        if self.factors is None:
            return None
        a, b, whole_rows, whole_columns = self.factors
        type, a = self.program.accumulator, a[rows]
        total, magnitude, unit = a @ b, np.abs(a) @ np.abs(b), UNIT[type]
        exact = whole_rows[rows, None] & whole_columns & (magnitude <= 1 / unit)
        error = np.where(exact, 0, (3 + 2 * sqrt(self.k)) * unit * magnitude + LEAST_NORMAL[type])
        return total, np.where(magnitude + error >= GREATEST[type], np.inf, error)

    def position(self, rows: slice, shape: tuple[int, int]) -> tuple[Array, Array]:
        running = Extreme(self.program.reduction, shape, self.program.step.type)
        for first, step, error in self.steps(rows, shape):
            running.add(step, error, first)
        for first, step, error in self.steps(rows, shape):
            running.compare(step, error, first)
        return running.result()


def factors_of(program: Program) -> tuple[str, str] | None:
    """The names of the elements at [i,k] and [k,j] (axes in either order) if a program sums their products of floats;
    else None."""
    step = program.step
    if program.reduction != "+" or program.initial is not None or not type_of(step.type).floating or step.op != "*":
        return None
    sources = [x.arguments[0] if x.op == "cast" else x for x in step.arguments]
    types = [type_of(x.type) for x in sources]
    if not all(
        x.op == "variable" and t.floating and t.bits <= type_of(step.type).bits
        for x, t in zip(sources, types, strict=True)
    ):
        return None
    named = {frozenset(axes_of(str(x.value))): str(x.value) for x in sources}
    factors = named.get(frozenset("ik")), named.get(frozenset("kj"))
    return (factors[0], factors[1]) if factors[0] and factors[1] else None


def depends(axis: str, name: str) -> bool:
    """True if the variable ``name`` depends on ``axis``."""
    return axis in axes_of(name) or name == axis


class _Grid:
    """Records, for each sum and each number of ``STEPS``, if all terms of the sum are multiples of the number: the sum
    is then exact if it is small."""

    STEPS = (1.0, 1 / 32, 1 / 1024)

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.on = [np.ones(shape, bool) for _ in self.STEPS]

    def add(self, values: Array, errors: Array) -> None:
        """Adds terms, which are along the first axis."""
        for on, step in zip(self.on, self.STEPS, strict=True):
            on &= ((errors == 0) & (values / step == np.floor(values / step))).all(axis=0)

    def add_at(self, at: tuple[Array, Array], values: Array, errors: Array) -> None:
        """Adds terms to the sums at the indices ``at``."""
        for on, step in zip(self.on, self.STEPS, strict=True):
            np.logical_and.at(on, at, (errors == 0) & (values / step == np.floor(values / step)))

    def exact(self, magnitude: Array, unit: float) -> Array:
        """True for the sums that are exact in any order. ``magnitude``: the sums of the absolute values of the terms;
        ``unit``: the roundoff of the type."""
        exact = np.zeros(magnitude.shape, bool)
        for on, step in zip(self.on, self.STEPS, strict=True):
            exact |= on & (magnitude / step <= 1 / unit)
        return exact


class _Factors:
    """Records where a partial product may overflow, or become 0, in some order of the factors."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.large, self.small = np.ones(shape), np.ones(shape)  # products of the factors above 1, and below

    def add(self, at: Any, values: Array, errors: Array) -> None:
        """Adds one factor to each of the products at the indices ``at``."""
        size = np.where(np.isfinite(values), np.abs(values), 1.0)
        self.large[at] *= np.maximum(size + errors, 1)
        self.small[at] *= np.where(size > 0, np.minimum(size, 1), 1)

    def beyond(self, type: str) -> NDArray[np.bool_]:
        """True for the products of which a partial product may overflow or become 0 in this type."""
        return (self.large >= GREATEST[type]) | (self.small <= LEAST_NORMAL[type])


class Running:
    """A reduction along the first axis of blocks, which are added one by one."""

    def __init__(self, op: str, type: str, shape: tuple[int, ...]) -> None:
        self.op, self.type, self.floating = op, type, type_of(type).floating
        self.held = np.dtype(np.float64) if self.floating else numpy_type(type)
        operator = OPERATORS[op]
        assert operator.identity is not None
        self.ufunc: Any = operator.compute
        self.total = np.full(shape, operator.identity(type_of(type)), self.held)
        self.error = np.zeros(shape)
        self.magnitude = np.zeros(shape)
        self.factors = _Factors(shape)
        self.grid = _Grid(shape)
        self.count = 0

    def add(self, values: Array, errors: Array, selected: Array | None = None) -> None:
        """Adds a block of values to the reduction. ``selected``: True for the values to reduce, None: all."""
        if not values.shape[0]:
            return
        values = values.astype(self.held)
        if selected is not None:
            operator = OPERATORS[self.op]
            assert operator.identity is not None
            values = np.where(selected, values, np.asarray(operator.identity(type_of(self.type)), self.held))
            errors = np.where(selected, errors, 0)
        self.count += values.shape[0]
        if self.op == "*":
            for value, error in zip(values, errors, strict=True):
                product = self.total * value
                self.error = known(
                    self.error * np.abs(value.astype(float))
                    + error * np.abs(self.total.astype(float))
                    + self.error * error
                )
                if self.floating:
                    self.error += rounding_error(product, self.type, self.error)
                    self.factors.add(..., value, error)
                self.total = product
            return
        self.total = self.ufunc(self.total, self.ufunc.reduce(values, axis=0, dtype=self.held))
        if self.op == "+":
            self.error = self.error + errors.sum(axis=0)
            if self.floating:
                self.magnitude = self.magnitude + np.where(np.isfinite(values), np.abs(values), 0).sum(axis=0)
                self.grid.add(values, errors)
        elif self.op in ("&", "|", "^"):
            self.error = np.where((errors > 0).any(axis=0), np.inf, self.error)
        else:
            self.error = np.maximum(self.error, errors.max(axis=0))

    def result(self) -> tuple[Array, Array]:
        """The reduced values, and their errors for any order of the reduction."""
        error = self.error
        if self.op == "+" and self.floating:
            unit = UNIT[self.type]
            worst = error + (2 + 2 * sqrt(self.count)) * unit * self.magnitude + LEAST_NORMAL[self.type]
            error = np.where(self.grid.exact(self.magnitude, unit), 0, worst)
            error = np.where(self.magnitude + error >= GREATEST[self.type], np.inf, error)
        if self.op == "*" and self.floating:
            error = np.where(self.factors.beyond(self.type), np.inf, error)
        return self.total, error


class Extreme:
    """The position of the least or greatest value along the first axis of blocks: the first one, or the first NaN."""

    def __init__(self, op: str, shape: tuple[int, ...], type: str) -> None:
        self.before = np.less if op == "argmin" else np.greater
        self.sign = 1 if op == "argmin" else -1
        self.best = np.zeros(shape, _held(type))
        self.error = np.zeros(shape)
        self.positions = np.full(shape, -1, np.int32)
        self.unsure = np.zeros(shape, bool)

    def add(self, values: Array, errors: Array, first: int, selected: Array | None = None) -> None:
        """Adds a block, whose first index is ``first``. ``selected``: True for the values to compare, None: all."""
        for n, (value, error) in enumerate(zip(values.astype(self.best.dtype), errors, strict=True)):
            better = self.before(value, self.best)
            if value.dtype.kind == "f":
                better = (better | np.isnan(value)) & ~np.isnan(self.best)
            take = better | (self.positions < 0)
            take = take if selected is None else take & selected[n]
            self.best = np.where(take, value, self.best)
            self.error = np.where(take, error, self.error)
            self.positions = np.where(take, first + n, self.positions).astype(np.int32)

    def compare(self, values: Array, errors: Array, first: int, selected: Array | None = None) -> None:
        """Marks the positions that rounding may change. It is called for each block again, after all blocks were
        added."""
        best = self.sign * self.best.astype(float)
        for n, (value, error) in enumerate(zip(values, errors, strict=True)):
            either = error + self.error
            apart = self.sign * value.astype(float) - best
            near = (apart <= either) & (either > 0) | np.isinf(either)
            near &= self.positions != first + n
            self.unsure |= near if selected is None else near & selected[n]

    def result(self) -> tuple[Array, Array]:
        """The positions, and their errors: infinity where another position may be right, too, else 0."""
        return self.positions, np.where(self.unsure, np.inf, 0.0)


# ---- errors of expressions


# ---- outputs


class _Collector:
    """Collects the results of blocks for one output."""

    def __init__(self, output: Output, evaluation: _Evaluation) -> None:
        self.output, self.evaluation = output, evaluation

    def add(
        self,
        rows: slice,
        variables: Mapping[str, Array],
        errors: Mapping[str, Array],
        selected: Array | None,
        unsure: Array | None,
    ) -> None:
        """Adds a block of rows. ``selected``: True for the pairs of ``when``, None: all; ``unsure``: True where
        rounding may decide whether a pair is selected."""
        raise NotImplementedError

    def result(self) -> Result:
        raise NotImplementedError

    def values(
        self, expressions: Sequence[Node], rows: slice, variables: Any, errors: Any
    ) -> list[tuple[Array, Array]]:
        shape = (rows.stop - rows.start, self.evaluation.n)
        return self.evaluation.pairs(expressions, variables, errors, shape)


def _held(type: str) -> np.dtype[Any]:
    return np.dtype(np.float64) if type_of(type).floating else numpy_type(type)


class _Stored(_Collector):
    def __init__(self, output: Store, evaluation: _Evaluation) -> None:
        super().__init__(output, evaluation)
        shape = (evaluation.m, evaluation.n)
        self.array, self.error = np.zeros(shape, _held(output.value.type)), np.zeros(shape)
        self.written = None if evaluation.program.when is None else np.zeros(shape, bool)

    def add(self, rows: slice, variables: Any, errors: Any, selected: Array | None, unsure: Array | None) -> None:
        [(value, error)] = self.values([self.output.value], rows, variables, errors)
        self.array[rows], self.error[rows] = value, error
        if selected is not None and self.written is not None:
            self.array[rows] = np.where(selected, value, 0)
            self.written[rows] = selected

    def result(self) -> Dense:
        assert isinstance(self.output, Store)
        arrays = self.array, self.error, self.written
        if self.output.axes == ("j", "i"):
            return Dense(self.array.T, self.error.T, None if self.written is None else self.written.T)
        return Dense(*arrays)


class _Scattered(_Collector):
    """Collects values that are stored at keys. If several pairs have the same keys, the value of any of them is a right
    result."""

    def __init__(self, output: Scatter, evaluation: _Evaluation) -> None:
        super().__init__(output, evaluation)
        self.shape = evaluation.groups[output.name]
        self.array, self.error = np.zeros(self.shape, _held(output.value.type)), np.zeros(self.shape)
        self.written = np.zeros(self.shape, bool)

    def add(self, rows: slice, variables: Any, errors: Any, selected: Array | None, unsure: Array | None) -> None:
        output = self.output
        assert isinstance(output, Scatter)
        scattered = self.values([output.row, output.column, output.value], rows, variables, errors)
        (row, _), (column, _), (value, error) = scattered
        inside = (row >= 0) & (row < self.shape[0]) & (column >= 0) & (column < self.shape[1])
        chosen = inside if selected is None else inside & selected
        at = row[chosen].astype(np.int64), column[chosen].astype(np.int64)
        count = np.zeros(self.shape, int)
        np.add.at(count, at, 1)
        self.array[at], self.error[at] = value[chosen], error[chosen]
        self.error[(count > 1) | ((count > 0) & self.written)] = np.inf
        self.written[at] = True

    def result(self) -> Dense:
        return Dense(self.array, self.error, self.written)


class _Grouped(_Collector):
    def __init__(self, output: Aggregate, evaluation: _Evaluation) -> None:
        super().__init__(output, evaluation)
        whole = [evaluation.variables[x.value] for x in (output.row, output.column)]
        extents = evaluation.groups.get(output.name) or tuple(int(x.max()) + 1 if x.size else 0 for x in whole)
        self.shape = (max(0, extents[0]), max(0, extents[1]))
        operator, type = OPERATORS[output.op], output.value.type
        assert operator.identity is not None
        self.array = np.full(self.shape, operator.identity(type_of(type)), _held(type))
        self.error, self.magnitude, self.count = (np.zeros(self.shape) for _ in range(3))
        self.factors, self.grid = _Factors(self.shape), _Grid(self.shape)
        self.dropped = 0

    def add(self, rows: slice, variables: Any, errors: Any, selected: Array | None, unsure: Array | None) -> None:
        output = self.output
        assert isinstance(output, Aggregate)
        reduced = self.values([output.row, output.column, output.value], rows, variables, errors)
        (row, _), (column, _), (value, error) = reduced
        inside = (row >= 0) & (row < self.shape[0]) & (column >= 0) & (column < self.shape[1])
        chosen = np.ones(value.shape, bool) if selected is None else selected
        self.dropped += int((chosen & ~inside).sum())
        chosen = chosen & inside
        at = row[chosen].astype(np.int64), column[chosen].astype(np.int64)
        value, error = value[chosen].astype(self.array.dtype), error[chosen]
        type, ufunc = output.value.type, OPERATORS[output.op].compute
        if output.op == "*":
            for g, h, v, e in zip(*at, value, error, strict=True):
                old = self.array[g, h]
                new = (np.asarray([old]) * v)[0]
                passed = self.error[g, h] * abs(float(v)) + e * abs(float(old))
                rounding = rounding_error(np.asarray(new), type, np.asarray(passed)) if type_of(type).floating else 0
                self.array[g, h], self.error[g, h] = new, passed + rounding
                self.factors.add((g, h), v, e)
            return
        ufunc.at(self.array, at, value)  # type: ignore[attr-defined]
        if output.op == "+":
            np.add.at(self.error, at, error)
            if type_of(type).floating:
                np.add.at(self.magnitude, at, np.abs(value))
                np.add.at(self.count, at, 1)
                self.grid.add_at(at, value, error)
        elif output.op in ("&", "|", "^"):
            np.maximum.at(self.error, at, np.where(error > 0, np.inf, 0))
        else:
            np.maximum.at(self.error, at, error)

    def result(self) -> Dense:
        output, error = self.output, self.error
        assert isinstance(output, Aggregate)
        type = output.value.type
        if output.op == "+" and type_of(type).floating:
            unit = UNIT[type]
            worst = error + (2 + 2 * np.sqrt(self.count)) * unit * self.magnitude
            error = np.where(self.grid.exact(self.magnitude, unit), 0, worst)
            error = np.where(self.magnitude + error >= GREATEST[type], np.inf, error)
        if output.op == "*" and type_of(type).floating:
            error = np.where(self.factors.beyond(type), np.inf, error)
        return Dense(self.array, error, None, self.dropped)


class _Rows(_Collector):
    """Collects values of each row or column, reduced along the other axis."""

    def __init__(self, output: RowReduce, evaluation: _Evaluation) -> None:
        super().__init__(output, evaluation)
        self.blocks: list[tuple[Array, Array, Array]] = []

    def add(self, rows: slice, variables: Any, errors: Any, selected: Array | None, unsure: Array | None) -> None:
        [(value, error)] = self.values([self.output.value], rows, variables, errors)
        chosen = np.ones(value.shape, bool) if selected is None else selected
        self.blocks.append((value, error, chosen))

    def result(self) -> Dense:
        output, evaluation = self.output, self.evaluation
        assert isinstance(output, RowReduce)
        empty = np.zeros((0, evaluation.n))
        parts = [np.concatenate([block[n] for block in self.blocks] or [empty]) for n in range(3)]
        value, error, chosen = (x.T if output.axis == "i" else x for x in parts)  # the reduced axis first
        chosen = chosen.astype(bool)
        type, shape = output.value.type, value.shape[1:]
        if output.op in POSITIONS:
            extreme = Extreme(output.op, shape, type)
            extreme.add(value, error, 0, chosen)
            extreme.compare(value, error, 0, chosen)
            return Dense(*extreme.result())
        if output.op == "logsumexp":
            return Dense(*_logsumexp(value, error, chosen, type))
        running = Running("+" if output.op == MEAN else output.op, type, shape)
        running.add(value, error, chosen)
        total, error = running.result()
        if output.op == MEAN:
            number = chosen.sum(axis=0)
            total, error = total / number, error / np.maximum(number, 1)
            error = error + 4 * UNIT[type] * np.where(np.isfinite(total), np.abs(total), 0)
        return Dense(total, error)


def _logsumexp(value: Array, error: Array, chosen: Array, type: str) -> tuple[Array, Array]:
    value = np.where(chosen, value, -np.inf)
    greatest = value.max(axis=0, initial=-np.inf)
    finite = np.where(np.isfinite(greatest), greatest, 0)
    total = np.exp(value - finite).sum(axis=0)
    total_log = np.where(np.isfinite(greatest), finite + np.log(total), greatest)
    most = np.where(chosen, error, 0).max(axis=0, initial=0)
    size = np.where(np.isfinite(total_log), np.abs(total_log) + np.abs(finite), 0)
    unit = UNIT[type]
    return total_log, most + unit * (4 * size + 16 + 2 * sqrt(len(value))) * np.isfinite(total_log)


class _Selected(_Collector):
    def __init__(self, output: Select, evaluation: _Evaluation) -> None:
        super().__init__(output, evaluation)
        self.parts: list[list[Array]] = []

    def add(self, rows: slice, variables: Any, errors: Any, selected: Array | None, unsure: Array | None) -> None:
        output = self.output
        assert isinstance(output, Select)
        (test, doubt), *listed = self.values([output.condition, *output.values], rows, variables, errors)
        if selected is not None:
            test, doubt = test & selected, np.where(selected, doubt, 0)
        at = np.nonzero(test | (doubt > 0))
        parts = [at[0] + rows.start, at[1], doubt[at] == 0, test[at]]
        self.parts.append(parts + [x[at] for pair in listed for x in pair])

    def result(self) -> Listed:
        output = self.output
        assert isinstance(output, Select)
        types = [t for x in output.values for t in (_held(x.type), np.dtype(float))]
        none = [np.zeros(0, t) for t in (np.dtype(int), np.dtype(int), np.dtype(bool), np.dtype(bool), *types)]
        i, j, certain, holds, *listed = (np.concatenate(x) for x in zip(none, *self.parts, strict=True))
        return Listed(tuple(listed[::2]), tuple(listed[1::2]), i, j, certain, holds)


class _Ordered(_Collector):
    """Collects the greatest or least values of all pairs, of each row or of each column."""

    def __init__(self, output: Top, evaluation: _Evaluation) -> None:
        super().__init__(output, evaluation)
        n = output.count
        self.n = int(n.value if n.op == "constant" else np.ravel(values([n], evaluation.variables)[0])[0])
        self.blocks: list[tuple[Array, Array, Array]] = []
        self.certain = True

    def add(self, rows: slice, variables: Any, errors: Any, selected: Array | None, unsure: Array | None) -> None:
        assert isinstance(self.output, Top)
        (test, doubt), (value, error) = self.values([self.output.condition, self.output.value], rows, variables, errors)
        if selected is not None:
            test, doubt = test & selected, np.where(selected, doubt, 0)
        self.certain &= not doubt.any() and (unsure is None or not unsure.any())
        self.blocks.append((value, error, test.astype(bool)))

    def result(self) -> Ordered:
        output, evaluation = self.output, self.evaluation
        assert isinstance(output, Top)
        empty, type = np.zeros((0, evaluation.n)), type_of(output.value.type)
        held = (np.dtype(np.float64) if type.floating else np.dtype(np.int64), np.dtype(float), np.dtype(bool))
        pairs, errors, counts = (
            np.concatenate([block[n] for block in self.blocks] or [empty]).astype(t) for n, t in enumerate(held)
        )
        places = np.arange(pairs.size).reshape(pairs.shape)
        lines = [(v, c, p) for v, c, p in zip(*(_along(x, output.axis) for x in (pairs, counts, places)), strict=True)]
        width = self.n if output.axis else min(self.n, int(counts.sum()))
        best = np.full((len(lines), width), type.least if output.greatest else type.greatest, held[0])
        at = np.full(best.shape, -1)
        for n, (value, chosen, place) in enumerate(lines):
            value, place = value[chosen], place[chosen]
            nan = np.isnan(value)
            ordered = -value if output.greatest else value
            order = np.lexsort((place, np.where(nan, 0, ordered), ~nan if output.greatest else nan))[:width]
            best[n, : len(order)], at[n, : len(order)] = value[order], place[order]
        if not output.axis:
            best, at = best[0], at[0]
        columns = max(evaluation.n, 1)
        i, j = (np.where(at < 0, -1, x) for x in (at // columns, at % columns))
        return Ordered(best, i, j, output.axis, pairs, errors, counts, self.certain)


def _along(x: Array, axis: str) -> Array:
    """A matrix of pairs, arranged so that it has a row for each index of ``axis``; if ``axis`` is empty, one row."""
    return x if axis == "i" else x.T if axis == "j" else x.reshape(1, -1)


def _collector(output: Output, evaluation: _Evaluation) -> _Collector:
    if isinstance(output, Aggregate):
        return _Grouped(output, evaluation)
    if isinstance(output, Scatter):
        return _Scattered(output, evaluation)
    if isinstance(output, Distinct):  # the marks of groups
        marks = Aggregate(output.name, cast(output.value, "s32"), output.row, output.column, "|")
        return _Grouped(marks, evaluation)
    if isinstance(output, RowReduce):
        return _Rows(output, evaluation)
    if isinstance(output, Select):
        return _Selected(output, evaluation)
    if isinstance(output, Top):
        return _Ordered(output, evaluation)
    assert isinstance(output, Store)
    return _Stored(output, evaluation)


# ---- comparison


def difference(expected: Result, actual: Any, factor: float = 4.0) -> str:
    """A description of what is wrong with a kernel's result, empty: nothing. ``actual``: an array; for a list, the
    tuple of its arrays; for the best values, the tuple of values, i and j, where the best values of rows or columns
    have None for one index; ``factor``: the factor by which errors are multiplied."""
    if isinstance(expected, Ordered):
        values, i, j = (None if x is None else np.asarray(x) for x in actual)
        return _order_difference(expected, values, i, j, factor)
    if isinstance(expected, Listed):
        return _list_difference(expected, tuple(np.asarray(x) for x in actual), factor)
    array = np.asarray(actual)
    if array.shape != expected.values.shape:
        return f"the shape is {array.shape}; it must be {expected.values.shape}"
    wrong = _unequal(array, expected.values, expected.error * factor)
    if expected.written is not None:
        wrong &= expected.written
    if not wrong.any():
        return ""
    at = tuple(int(x[0]) for x in np.nonzero(wrong))
    return (
        f"{int(wrong.sum())} of {wrong.size} elements are wrong; element {at} is {array[at]}; it must be "
        f"{expected.values[at]}, error {expected.error[at] * factor:.3g}"
    )


def _order_difference(expected: Ordered, values: Any, i: Any, j: Any, factor: float) -> str:
    """As ``difference``, for the best values. Values may differ by the greatest error of a pair; each pair must have
    the value that it is listed with."""
    if not expected.certain:
        return ""
    if values.shape != expected.values.shape:
        return f"the shape is {values.shape}; it must be {expected.values.shape}"
    rows = np.broadcast_to(np.arange(len(values))[:, None], values.shape) if expected.axis else None
    i, j = (rows if expected.axis == axis else x for axis, x in (("i", i), ("j", j)))
    index = j if expected.axis == "i" else i
    if not np.array_equal(index < 0, (expected.j if expected.axis == "i" else expected.i) < 0):
        return "a place has a pair, or none, and it must be the other way round"
    if not expected.errors[expected.counts].any():
        for name, x, y in (("value", values, expected.values), ("i", i, expected.i), ("j", j, expected.j)):
            wrong = _unequal(x, y, np.zeros(np.shape(y))) & (index >= 0)
            if wrong.any():
                at = tuple(int(x[0]) for x in np.nonzero(wrong))
                return f"{name} of place {at} is {x[at]}; it must be {y[at]}"
        return ""
    most = expected.errors[expected.counts].max() * factor
    if _unequal(values, expected.values, np.full(values.shape, most)).any():
        return "a value is further from the one at its place than the greatest error"
    own = index >= 0
    i, j = i[own], j[own]
    if len(set(zip(i.tolist(), j.tolist(), strict=True))) < len(i) or not expected.counts[i, j].all():
        return "a pair is listed twice, or does not count"
    wrong = _unequal(values[own], expected.pairs[i, j], expected.errors[i, j] * factor)
    return f"the value of the pair {i[wrong][0]}, {j[wrong][0]} is another" if wrong.any() else ""


def _unequal(actual: Array, expected: Array, allowed: Array) -> Array:
    if actual.dtype.kind in "iub" and expected.dtype.kind in "iub" and not allowed.any():
        return np.asarray(actual != expected)
    with np.errstate(all="ignore"):
        a, b = np.asarray(actual, float), np.asarray(expected, float)
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= allowed) | np.isinf(allowed)
    return np.asarray(~same)


def _list_difference(expected: Listed, actual: tuple[Array, ...], factor: float) -> str:
    """As ``difference``, for lists. Lists have no order, so rows are compared after sorting by all values, first by
    those without errors."""
    count, least = len(actual[0]), int((expected.certain & expected.holds).sum())
    most = least + int((~expected.certain).sum())
    if not least <= count <= most:
        return f"the list has {count} rows; it must have {least}" + (f" to {most}" if most > least else "")
    if most > least:
        return ""
    order = sorted(range(len(expected.values)), key=lambda n: bool(expected.errors[n].any()))
    mine = np.lexsort([actual[n] for n in reversed(order)])
    theirs = np.lexsort([expected.values[n] for n in reversed(order)])
    for n in order:
        wrong = _unequal(actual[n][mine], expected.values[n][theirs], expected.errors[n][theirs] * factor)
        if wrong.any():
            at = int(np.nonzero(wrong)[0][0])
            return (
                f"{int(wrong.sum())} of {count} rows are wrong; value {n} of a row is {actual[n][mine][at]}; "
                f"it must be {expected.values[n][theirs][at]}"
            )
    return ""
