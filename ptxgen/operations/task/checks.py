"""Checks of tasks against the oracle, and the operand sets that they are timed on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.expr.evaluate import values as evaluated
from ptxgen.expr.node import constant, substituted, variable
from ptxgen.expr.operators import OPERATORS
from ptxgen.expr.value_types import type_of
from ptxgen.lowering.aggregate import REJECTED
from ptxgen.lowering.row_top import RowTop
from ptxgen.lowering.sink import SelectValues, list_names
from ptxgen.operations.gemm.checks import with_row_padding
from ptxgen.operations.gemm.strided_arrays import C, elements, store_operand
from ptxgen.operations.task.assembling import array_of, mapped
from ptxgen.operations.task.fast_distances import SPLIT
from ptxgen.operations.task.joined_keys import joined_keys
from ptxgen.operations.task.list_checks import list_error
from ptxgen.operations.task.lowering import as_computed
from ptxgen.operations.task.oracle import Dense, Listed, Ordered, Result, difference, evaluate, factors_of
from ptxgen.operations.task.problem import ResultArray, Task
from ptxgen.operations.task.program import AXES, POSITIONS, Aggregate, Input, RowReduce, Scatter
from ptxgen.operations.task.sum_parts import sums_of
from ptxgen.operations.task.typical_vectors import typical_vectors
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.reference import Array, Deviation
from ptxgen.runtime.check import CheckResult
from ptxgen.runtime.driver import Driver, Timing
from ptxgen.runtime.operand_sets import OperandSets
from ptxgen.runtime.runner import Runner

#: the inputs of checks: integers, whose results are exact; normal values; NaN, infinities and −0 among integers
INPUTS = ("integers", "normal", "special")
#: inputs for reductions that select a value: integers with these signs in A and in all other arrays. With at least one
#: of them, a 0 from padding, which is not the value of a step, would be selected
SIGNS = {"negative": (-1, -1), "positive": (1, 1), "opposite": (-1, 1)}
FACTOR = 4.0  #: the tolerance as a multiple of the oracle's error
SHARE = 16  #: one in so many values of "special" is NaN, infinite or −0
TF32_MASK = np.uint32(0xFFFFE000)  #: the bits of an f32 that tf32 has
STEPS = 1 << 23  #: the approximate number of steps of a comparison of rows of a timed kernel
ROWS = 16  #: the most rows of a reduction of many rows that are compared
ALL_STEPS = 1 << 26  #: the most steps of tasks whose lists or reductions are compared
ALL_PRODUCTS = 1 << 36  #: the same for tasks whose steps are products of floats


def array_shape(p: Task, role: str) -> tuple[int, ...]:
    """The shape of an array as the program indexes it. With a batch, the shapes of A and B begin with the number of
    items, or with 1 if all items share the array."""
    extents = {"i": p.m, "j": p.n, "k": p.k}
    shape = tuple(extents[axis] for axis in p.roles.use(role).axes)
    if p.batch == 1 or role not in ("A", "B"):
        return shape
    return (p.batch if p.strides["AB".index(role)] else 1, *shape)


def input_names(p: Task) -> tuple[str, ...]:
    """The names of the inputs that a check of the task takes."""
    operator = OPERATORS.get(p.program.reduction)
    selects = p.program.reduction in POSITIONS or (operator is not None and operator.idempotent)
    return (*SIGNS, *INPUTS[1:]) if selects else INPUTS


def random_values(inputs: str, type: str, shape: tuple[int, ...], rng: np.random.Generator, role: str = "") -> Array:
    """Random values of a type for the array with this role. ``inputs``: one of INPUTS or SIGNS."""
    t, own = type_of(type), dtype(type).numpy
    if inputs in SIGNS:
        sign = 1 if t.group == "unsigned" else SIGNS[inputs][role != "A"]
        return (sign * rng.integers(1, 7, shape)).astype(own)
    if t.integer:
        low = 0 if t.group == "unsigned" else -6
        return rng.integers(low, 7, shape).astype(own)
    values = rng.standard_normal(shape) if inputs == "normal" else rng.integers(-6, 7, shape).astype(np.float64)
    if inputs == "special":
        chosen = rng.random(shape) < 1 / SHARE
        values = np.where(chosen, rng.choice([np.nan, np.inf, -np.inf, -0.0], shape), values)
    return values.astype(own)


def random_arrays(p: Task, inputs: str = "normal", seed: int = 0) -> dict[str, Array]:
    """Random arrays for a program, by role, with the axes by which the program indexes them."""
    rng = np.random.default_rng([seed, p.m, p.n, p.k])
    arrays = {u.role: random_values(inputs, u.dtype, array_shape(p, u.role), rng, u.role) for u in p.roles.uses}
    arrays = _with_one_for_all_uses(p, arrays)
    if p.compute == "tf32":  # kernels round the operands
        arrays |= {name: (arrays[name].view(np.uint32) & TF32_MASK).view(np.float32) for name in "AB"}
    if p.compute == SPLIT:  # infinities would give NaN
        arrays |= {name: np.where(np.isinf(arrays[name]), np.float32(np.nan), arrays[name]) for name in "AB"}
    return sorted_keys(p, arrays | random_keys(p, inputs, rng))


def _with_one_for_all_uses(p: Task, arrays: dict[str, Array]) -> dict[str, Array]:
    """The arrays, by role, with one array for all uses of an array of the program."""
    first = {u.name: u.role for u in reversed(p.roles.uses)}
    return {u.role: arrays[first[u.name]] for u in p.roles.uses if first[u.name] in arrays}


def sorted_keys(p: Task, arrays: dict[str, Array]) -> dict[str, Array]:
    """The arrays, with the keys of a join sorted if the problem has sorted keys."""
    keys = joined_keys(p.program.when) if p.sorted_keys else None
    return arrays | {role: np.sort(arrays[role]) for role in (array_of(str(x.value)) for x in keys or ())}


def random_keys(p: Task, inputs: str, rng: np.random.Generator) -> dict[str, Array]:
    """Random arrays of keys, by role: sorted, in any order with some out of range, or all equal. Keys at which results
    are stored are distinct."""
    output, values = p.program.outputs[0], dict[str, Array]()
    if isinstance(output, Scatter):
        for key, groups in zip((output.row, output.column), p.group_extents, strict=True):
            if (role := array_of(str(key.value))) not in AXES:
                (n,) = array_shape(p, role)
                values[role] = rng.permutation(max(n, groups))[:n].astype(dtype(key.type).numpy)
    if not isinstance(output, Aggregate):
        return values
    for key, groups in zip((output.row, output.column), p.group_extents, strict=True):
        role = array_of(key.value)
        if role in AXES:
            continue
        shape, own = array_shape(p, role), dtype(key.type).numpy
        keys = rng.integers(0, max(groups, 1), shape)
        if inputs in ("integers", "positive"):
            keys = np.sort(keys)
        elif inputs != "special":
            outside = groups if type_of(key.type).group == "unsigned" else rng.choice([-1, groups], shape)
            keys = np.where(rng.random(shape) < 1 / SHARE, outside, keys)
        else:
            keys[...] = groups // 2
        values[role] = np.minimum(keys, int(type_of(key.type).greatest)).astype(own)
    return _with_one_for_all_uses(p, values)


def stored(p: Task, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays as kernels read them, with A and B in the layout of the problem, and outputs before a launch."""
    out = dict(arrays)
    for role, order, letter in (("A", ("i", "k"), p.layout[0]), ("B", ("k", "j"), p.layout[1])):
        transposed = (p.roles.use(role).axes == order) != (letter == "N")
        out[role] = np.ascontiguousarray(np.swapaxes(arrays[role], -1, -2) if transposed else arrays[role])
    return out | {name: _unwritten(x) for name, x in p.result_arrays.items()}


def _unwritten(x: ResultArray) -> Array:
    """An output before a launch: a matrix filled with poison, or a list whose bits are all ones."""
    if len(x.shape) > 1:
        return np.full(x.shape, x.dtype.poison, x.dtype.numpy)
    return np.full(x.shape[0] * x.dtype.bytes, 0xFF, np.uint8).view(x.dtype.numpy)


def expected(p: Task, arrays: Mapping[str, Array], scalars: Mapping[str, float], relaxed: bool = False) -> Result:
    """The results of the program, by the oracle. ``relaxed``: True: the results of the rewritten program that kernels
    compute, which may differ where a part of the step as written is not a finite number."""
    program = p.program
    if relaxed and p.algebra:
        program = as_computed(p.roles)
    groups = {"C": p.group_extents} if p.groups else None
    extents = {"i": p.m, "j": p.n, "k": p.k}
    if p.batch == 1:
        return evaluate(program, {**arrays, **scalars}, extents, groups)["C"]
    items = []
    for n in range(p.batch):
        matrices = {role: arrays[role][n % len(arrays[role])] for role in ("A", "B")}
        item = evaluate(program, {**arrays, **scalars, **matrices}, extents)["C"]
        assert isinstance(item, Dense)
        items.append(item)
    written = None if items[0].written is None else np.stack([x.written for x in items if x.written is not None])
    return Dense(np.stack([x.values for x in items]), np.stack([x.error for x in items]), written)


def deviation(p: Task, got: Array, oracle: Result) -> Deviation:
    """The deviation of C from the oracle's results. Elements of pairs that are not computed must be poison."""
    assert isinstance(oracle, Dense)
    if got.size == 0:
        return Deviation(0.0, (0, 0), 0.0)
    wanted, allowed = oracle.values, FACTOR * oracle.error
    if oracle.written is not None:
        wanted = np.where(oracle.written, wanted, p.output.poison)
    with np.errstate(all="ignore"):
        wide, want = got.astype(np.float64), wanted.astype(np.float64)
        rounded = wanted.astype(got.dtype).astype(np.float64)
        same = (wide == want) | (wide == rounded) | (np.isnan(wide) & np.isnan(want)) | np.isinf(allowed)
        ratio = np.where(same, 0.0, np.abs(wide - want) / np.where(allowed > 0, allowed, np.nan))
        ratio = np.where(same, 0.0, np.where(np.isnan(ratio), np.inf, ratio))
    flat = int(np.argmax(ratio))
    where = tuple(int(i) for i in np.unravel_index(flat, ratio.shape))
    return Deviation(float(ratio.flat[flat]), where, float(ratio.flat[flat]))


def scalars_of(p: Task, seed: int) -> dict[str, float]:
    """Values of the numbers that a call passes, by role; scalars are small integers."""
    rng = np.random.default_rng([seed, 7])
    return p.typical_scalars | {role: int(rng.integers(1, 4)) for role, _, _ in p.roles.scalars}


@dataclass(frozen=True)
class KnownResult:
    """The oracle's results of a task. ``inputs``: the name of the inputs; ``arrays``, ``scalars``: the inputs, by
    role."""

    inputs: str
    arrays: Mapping[str, Array]
    scalars: Mapping[str, float]
    oracle: Result


def known_results(p: Task, seed: int = 0) -> Iterator[KnownResult]:
    """The oracle's results for all inputs of the checks of a task."""
    for inputs in input_names(p):
        arrays, scalars = random_arrays(p, inputs, seed), scalars_of(p, seed)
        yield KnownResult(inputs, arrays, scalars, expected(p, arrays, scalars, relaxed=inputs == "special"))


def check_task(
    driver: Driver, problem: Task, config: Config, seed: int = 0, row_padding: int = 0
) -> Iterator[CheckResult]:
    """The results of checking a configuration of a task with all inputs; every result is compared."""
    p = with_row_padding(problem, row_padding)
    assert isinstance(p, Task)
    return check_with(driver, p, config, known_results(p, seed))


def check_with(driver: Driver, p: Task, config: Config, known: Iterable[KnownResult]) -> Iterator[CheckResult]:
    """The results of checking a configuration with the inputs of ``known``, of which several configurations may be
    checked with the same."""
    runner = Runner.of(driver, p, config)
    try:
        for x in known:
            out = runner.compute(_with_padding(p, stored(p, x.arrays)), scalars=x.scalars)
            deviation_of_all = _compared(p, out, x.oracle)
            if runner.workspace_dirty():
                deviation_of_all = Deviation(np.inf, (-1, -1), deviation_of_all.worst)
            yield CheckResult(x.inputs, deviation_of_all)
    finally:
        runner.workspace.release()


def _compared(p: Task, out: Mapping[str, Array], oracle: Result) -> Deviation:
    """The deviation of the outputs from the oracle's; for lists and best values it is 0 or infinite. Elements
    between the rows of C must not change."""
    if isinstance(oracle, Listed):
        assert p.selected is not None
        return Deviation(np.inf if list_error(p.selected, oracle, out) else 0.0, (-1, -1), 0.0)
    if isinstance(oracle, Ordered):
        wrong = difference(oracle, (out["C"], None, out[RowTop.COLUMNS]), FACTOR)
        return Deviation(np.inf if wrong else 0.0, (-1, -1), 0.0)
    whole = out["C"]
    if not p.stores_pairs:
        rejected = REJECTED in out and int(out[REJECTED][0]) != oracle.dropped
        return Deviation(np.inf, (-1, -1), np.inf) if rejected else deviation(p, whole, oracle)
    got = elements(p, C, whole)
    compared = deviation(p, got, oracle)
    got[...] = p.output.poison
    untouched = np.array_equal(whole, np.full_like(whole, p.output.poison), equal_nan=True)
    return compared if untouched else Deviation(np.inf, (-1, -1), compared.worst)


class TaskOperandSets(OperandSets):
    """``OperandSets`` of a task."""

    problem: Task

    def __init__(self, driver: Driver, problem: Task, timing: Timing, seed: int = 0) -> None:
        self.problem, self.arrays = problem, random_arrays(problem, seed=seed)
        self._oracles: dict[int, Result] = {}  # by the number of rows
        self.arrays |= random_keys(problem, "integers", np.random.default_rng(seed))  # sorted, none is out of range
        self.arrays |= typical_vectors(problem, self.arrays)
        given = _with_padding(problem, stored(problem, self.arrays))
        sizes = {name: given.pop(name).nbytes for name in problem.outputs}
        # vectors are small, so all sets share them
        own = ("A", "B", *(u.role for u in problem.roles.others if len(u.axes) > 1))
        shared = {name: x for name, x in given.items() if name not in own}
        super().__init__(driver, timing, {name: given[name] for name in own}, sizes, shared)

    def deviation(self, limit: int) -> Deviation:
        """The deviation of C of the first set from the oracle's, over evenly spread rows. Lists without i, and other
        reductions than those of rows, are compared only if all rows are within the limit."""
        p = self.problem
        if not p.results:
            return Deviation(0.0, (0, 0), 0.0)
        if sums_of(p) is not None:
            return self._sums_deviation()
        if p.selected is not None or not p.stores_pairs:
            most = ALL_STEPS if factors_of(p.program) is None else ALL_PRODUCTS
            if p.m * p.n * p.k > most or p.m * p.n > max(limit, p.n):
                return self._sampled_deviation()
            if p.keeps_best:
                return self._best_deviation()
            return self._reduced_deviation() if p.selected is None else self._list_deviation()
        count = int(max(min(limit // max(p.n, 1), STEPS // max(p.n * p.k, 1), p.m), 1))
        rows, item = np.unique(np.linspace(0, p.m - 1, count).astype(int)), p.batch - 1
        arrays = {u.role: x if x.ndim == len(u.axes) else x[-1] for u in p.roles.uses for x in (self.arrays[u.role],)}
        chosen = {u.role: _elements_at(arrays[u.role], u.axes, "i", rows) for u in p.roles.uses}
        oracle = self._oracle(count, lambda: _expected_at(p, "i", rows, chosen))
        got = np.empty((len(rows), p.n), p.output.numpy)
        first = self.sets[0]["C"] + item * p.strides[C] * p.output.bytes
        for n, row in enumerate(rows):
            self.driver.download(first + int(row) * p.ldc * p.output.bytes, got[n])
        if isinstance(oracle, Dense) and oracle.written is not None:
            got[~oracle.written] = p.output.poison
        compared = deviation(p, got, oracle)
        where = (int(rows[compared.where[0]]), compared.where[1])
        return Deviation(compared.ratio, where if p.batch == 1 else (item, *where), compared.worst)

    def _sampled_deviation(self) -> Deviation:
        """The deviation of some results of a reduction of rows or columns, of the best values of some rows, or of the
        results of the first rows in a list that has i and room for all results; 0 for other outputs."""
        p, output = self.problem, self.problem.program.outputs[0]
        if p.batch == 1 and (isinstance(output, RowReduce) or p.keeps_best):
            at, oracle = self._sample("j" if isinstance(output, RowReduce) and output.axis == "j" else "i")
            if isinstance(oracle, Ordered):
                return _compared(p, {name: x[at] for name, x in self._downloaded().items()}, oracle)
            compared = deviation(p, self._reduced()[at], oracle)
            return Deviation(compared.ratio, (int(at[compared.where[0]]),), compared.worst)
        unknown = Deviation(0.0, (-1, -1), 0.0)
        if p.batch != 1 or p.selected is None or (i := variable("i", "s32")) not in p.selected.values:
            return unknown
        lists = [np.empty(p.capacity, p.result_arrays[name].dtype.numpy) for name in list_names(len(p.selected.values))]
        listed = np.empty(1, np.int64)
        self.driver.download(self.sets[0][SelectValues.COUNT], listed)
        if listed[0] > p.capacity:
            return unknown
        for name, x in zip(list_names(len(lists)), lists, strict=True):
            self.driver.download(self.sets[0][name], x)
        at, oracle = self._sample("i", spread=False)
        first = lists[p.selected.values.index(i)][: listed[0]] < len(at)
        wrong = difference(oracle, tuple(x[: listed[0]][first] for x in lists), FACTOR)
        return Deviation(np.inf if wrong else 0.0, (-1, -1), 0.0)

    def _sample(self, axis: str, spread: bool = True) -> tuple[Array, Result]:
        """Some indices of the axis i or j, and the oracle's results for them. ``spread``: True: evenly spread indices;
        False: the first ones."""
        p = self.problem
        extents = {"i": p.m, "j": p.n, "k": p.k}
        steps = p.m * p.n * p.k // extents[axis]
        count = max(min(ROWS, STEPS // max(steps, 1), extents[axis]), 1)
        at = np.linspace(0, extents[axis] - 1, count).astype(int) if spread else np.arange(count)
        chosen = {u.role: _elements_at(self.arrays[u.role], u.axes, axis, at) for u in p.roles.uses}
        return at, self._oracle(count, lambda: _expected_at(p, axis, at, chosen))

    def _downloaded(self) -> dict[str, Array]:
        """The result arrays of the first set."""
        out = {name: np.empty(x.shape, x.dtype.numpy) for name, x in self.problem.result_arrays.items()}
        for name, x in out.items():
            if x.size:
                self.driver.download(self.sets[0][name], x)
        return out

    def _best_deviation(self) -> Deviation:
        """The deviation of the best values of the first set."""
        p = self.problem
        return _compared(p, self._downloaded(), self._oracle(p.m, lambda: expected(p, self.arrays, p.typical_scalars)))

    def _list_deviation(self) -> Deviation:
        """The deviation of the lists of the first set."""
        p, out = self.problem, self._downloaded()
        count = int(out[SelectValues.COUNT][0])
        for name, x in out.items():
            if name != SelectValues.COUNT:
                x[count:].view(np.uint8)[...] = 0xFF
        return _compared(p, out, self._oracle(p.m, lambda: expected(p, self.arrays, p.typical_scalars)))

    def _oracle(self, rows: int, compute: Callable[[], Result]) -> Result:
        """The oracle's results for ``rows`` rows, cached."""
        if rows not in self._oracles:
            self._oracles[rows] = compute()
        return self._oracles[rows]

    def _reduced_deviation(self) -> Deviation:
        """The deviation of the reductions of the first set."""
        p = self.problem
        return deviation(p, self._reduced(), self._oracle(p.m, lambda: expected(p, self.arrays, p.typical_scalars)))

    def _sums_deviation(self) -> Deviation:
        """The deviation of sums of products in groups from the products of sums, which take few steps."""
        p = self.problem
        return deviation(p, self._reduced(), self._oracle(p.m, lambda: sums_in_groups(p, self.arrays)))

    def _reduced(self) -> Array:
        """The reductions of the first set, downloaded."""
        got = np.empty(self.problem.result_arrays["C"].shape, self.problem.output.numpy)
        if got.size:
            self.driver.download(self.sets[0]["C"], got)
        return got


def sums_in_groups(p: Task, arrays: Mapping[str, Array]) -> Dense:
    """The oracle's sums of products in groups, computed as products of sums (``sums_of``), for the numbers with which
    kernels are timed."""
    sums = sums_of(p)
    assert sums is not None
    held = np.int64 if p.accumulator.integer else np.float64
    operands = []
    for role, each, n in zip("AB", (sums.rows, sums.columns), p.group_extents, strict=True):
        along = p.roles.use(each.array).axes.index("k")
        x, key = np.moveaxis(arrays[each.array], along, 1), arrays[each.key]
        parts = [x[key == group] for group in range(n)]
        both = [np.stack([part.sum(0, dtype=held) for part in part_of]) for part_of in (parts, map(np.abs, parts))]
        operands.append(both if role == "A" else [y.T for y in both])
    (a, size_a), (b, size_b) = operands
    value: dict[str, Array] = {name: np.asarray(x) for name, x in p.typical_scalars.items()} | {"accum": a @ b}
    output, computed = p.program.outputs[0].value, np.ones(p.group_extents, bool)
    if p.program.when is not None:
        computed = np.eye(*p.group_extents, dtype=bool)
    values = np.where(computed, evaluated([output], value)[0], 0)
    if p.accumulator.integer:
        return Dense(values.astype(p.output.numpy), np.zeros(values.shape))
    size = np.where(computed, evaluated([output], {**value, "accum": size_a @ size_b})[0], 0)
    terms = p.k + p.m * p.n / (values.size or 1)
    return Dense(values, (2 + 2 * np.sqrt(terms)) * p.accumulator.roundoff * np.abs(size))


def _expected_at(p: Task, axis: str, at: Array, arrays: Mapping[str, Array]) -> Result:
    """The oracle's results for the indices ``at`` of the axis i or j. ``arrays``: the arrays restricted to these."""
    numbers, extent = Input("indices", "s32", ((axis,),)), "M" if axis == "i" else "N"
    extents = {"i": p.m, "j": p.n, "k": p.k}
    changes = {axis: numbers.variable((axis,)), extent: constant(extents[axis], "s32")}
    program = mapped(p.program, lambda x: substituted(x, changes))
    program = replace(program, inputs=(*program.inputs, numbers))
    given = {**arrays, **p.typical_scalars, "indices": at.astype(np.int32)}
    return evaluate(program, given, {**extents, axis: len(at)})["C"]


def _with_padding(p: Task, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays, where A, B and the matrix C are stored with their leading dimensions."""
    matrices = {name: n for n, name in enumerate("ABC") if name != "C" or p.stores_pairs}
    return {**arrays, **{name: store_operand(p, n, arrays[name], p.types[n].poison) for name, n in matrices.items()}}


def _elements_at(x: Array, axes: tuple[str, ...], axis: str, at: Array) -> Array:
    """The elements of an array at the indices ``at`` of an axis."""
    return np.take(x, at, axes.index(axis)) if axis in axes else x
