"""Calls for the n greatest or least values: they list pairs that contain the best ones, then order these and keep the
first n. A bound from a sample of pairs keeps the lists short."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ptxgen.api import choice, driver_state, drivers, launch_function, new_arrays, on_host, runners, streams, task_call
from ptxgen.api.arrays import View, as_numpy, is_cupy, tensor
from ptxgen.arguments import integer, shown
from ptxgen.codegen.render import render_records
from ptxgen.codegen.source import Step
from ptxgen.codegen.top_records import (
    BEST,
    BEST_I,
    BEST_J,
    COUNT,
    COUNTS,
    LIST_I,
    LIST_J,
    MOST_RECORDS,
    SAMPLE_COUNTS,
    TO,
    TOTAL,
    VALUES,
    Lists,
    Sample,
    Summary,
    TopRecords,
)
from ptxgen.errors import InputError
from ptxgen.expr.node import variables
from ptxgen.lowering.row_top import RowTop
from ptxgen.lowering.sink import SelectValues, list_names
from ptxgen.operations.task import block_limits, exact_filter
from ptxgen.operations.task.block_limits import BlockLimits
from ptxgen.operations.task.fast_distances import fast_distance
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.program import AXES, MOST_KEPT, MOST_TOP, Program, Top
from ptxgen.operations.task.roles import Roles, roles_of
from ptxgen.operations.task.top_lists import (
    BOUND_I,
    BOUND_INDEX,
    BOUND_J,
    EXACT,
    LOOSE,
    NAN,
    VALUE,
    Part,
    array_name,
    extremes,
    keeping,
    keeps_best,
    listing,
    missing,
    no_bound,
    part_numbers,
    reads_indices,
    stores_values,
    storing,
    typical_room,
)
from ptxgen.problem.dtypes import DTYPES, Dtype, dtype
from ptxgen.runtime.device_tables import allocate_parts
from ptxgen.runtime.driver import Driver, Kernel

#: up to so many pairs are listed without a bound, even if there are many for each result
DIRECT = 1 << 18
#: about the number of records that are ordered together; lists have room for twice as many
RECORDS = 1 << 25
#: lists have room for so many elements per two expected ones: ROOM_OF_ROWS for at least MANY_ROWS rows together, whose
#: bounds vary less, else ROOM
ROOM, ROOM_OF_ROWS, MANY_ROWS = 6, 3, 64
LEAST_ROOM = 1 << 12
LEAST_SAMPLE = 16  #: rows and columns that a sample has at least, if there are so many
#: the bound of a row is the n-th best one of the best values of BLOCKS · n blocks of its pairs, at most MOST_BLOCKS,
#: each of LEAST_BLOCK pairs or more; it leaves about 1.3 · n pairs
BLOCKS, MOST_BLOCKS, LEAST_BLOCK = 2, 32, 256
#: so many steps take the time in which a record is ordered: on an H200, least distances of 65,536² with K = 3 take
#: 1.1 ms, and to order 106 million records takes about 9 ms
RECORD_STEPS = 1000
FILTERED = 6  #: tensor cores, if they may list the candidates, bound so many steps in the time of one
#: lists have room for so many times more elements behind bounds of tensor cores, which are looser
ROOM_OF_LIMITS = 4
ATTEMPTS = 8  #: attempts to list all pairs, each with a better bound
#: relative amount by which a bound is loosened, because the kernel of the sample may round sums in another way
SLACK = {"f64": 2.0**-40, "f32": 2.0**-15, "f16": 2.0**-9, "bf16": 2.0**-6}


class Best(NamedTuple):
    """The best values of a task, the best first. ``values``: n values, or n of each row or column; ``i``, ``j``: the
    int32 indices of their pairs; None for the axis of the rows or columns that have results of their own. Rows with
    fewer pairs than n end with the identity and the index −1."""

    values: Any
    i: Any
    j: Any


def best(program: Program, arrays: Mapping[str, View], scalars: Mapping[str, float], own: task_call.Options) -> Best:
    """The greatest or least values of a program. The arguments are those of ``task_call.call``.

    ShapeError, DtypeError, InputError: an argument breaks a rule."""
    own.recording.refuse()  # the launches depend on counts
    program = task_call.with_one_array(program, arrays) if own.algebra else program
    roles, output = roles_of(program), program.outputs[0]
    assert isinstance(output, Top)
    count = _count(output, scalars)
    extents = task_call.extents_of(program, arrays, {})
    first = task_call.first_array(roles, arrays, {})
    device = _Device.of(first, arrays)
    call = _Call(program, output, count, arrays, scalars, replace(own, precision=task_call.EXACT), extents, device)
    direct = call.keeps and all(roles.use(x).dtype == "f32" for x in "AB")
    # kernels that keep the best values, and candidates of tensor cores, take less time than all products
    if own.precision == task_call.FAST and not (direct or call.may_filter):
        own = task_call.with_fast_compute(own, roles, extents, first)
        fast = fast_distance(roles) if extents["k"] else None
        if fast is not None:
            views = task_call.with_squares(fast, roles, arrays, own.recording)
            given = {role: scalars[name] for role, name, _ in roles.scalars}
            return best(fast.program, views, given, own.with_roles(roles, precision=task_call.EXACT))
        call = replace(call, own=own)
    with device.ordered(arrays):
        made, width = call.results()
    lists = {name: new_arrays.result_of(x, first.origin) for name, x in made.items()}
    if width < call.width:  # fewer pairs count
        lists = {name: x[:width] for name, x in lists.items()}
    return Best(lists[BEST], lists.get(BEST_I), lists.get(BEST_J))


def _count(output: Top, scalars: Mapping[str, float]) -> int:
    """The number n of values. InputError: the argument that gives it is no integer, or is out of range."""
    x = output.count
    if x.op == "constant":
        return int(x.value)
    (name,) = variables(x)
    value = scalars[name]
    if isinstance(value, float | np.floating):
        raise InputError(f"{name} is {shown(value)}; it must be an integer, the number of values of {output.name}")
    return integer(name, value, 0, MOST_TOP)


@lru_cache(maxsize=64)
def _kernel(plan: TopRecords, on: Driver) -> Kernel:
    """The loaded kernels that order records; they stay loaded for later calls."""
    return driver_state.state_of(on).kernel(render_records(plan))


@dataclass(frozen=True)
class _Device:
    """The device and the stream on which a call computes. ``origin``: an array of the library that allocates; None:
    arrays are in host memory, and the driver allocates; ``captured``: True if the stream is being captured into a CUDA
    graph."""

    driver: Driver
    stream: int
    origin: Any
    captured: bool = False
    held: list[Any] = field(default_factory=list)  #: arrays that queued launches use

    @classmethod
    def of(cls, first: View, arrays: Mapping[str, View]) -> _Device:
        on = drivers.driver_of(first)
        if first.host:
            return cls(on, 0, None)
        drivers.require_device(on, **arrays)
        stream = streams.current_stream(first.origin)
        return cls(on, stream, first.origin, streams.is_captured(stream, on))

    @contextmanager
    def ordered(self, arrays: Mapping[str, View]) -> Iterator[None]:
        """``streams.ordered`` for these arrays."""
        if self.origin is None:
            yield
        else:
            with streams.ordered(self.driver, self.stream, arrays.values()):
                yield

    def allocate(self, sizes: Mapping[str, int]) -> dict[str, _Memory]:
        """Allocates device memory. ``sizes``: name -> bytes."""
        if self.origin is None:
            return {name: _Memory(x, x.address) for name, x in allocate_parts(self.driver, sizes).items()}
        made = {name: new_arrays.empty_array(self.origin, (max(n, 1),), DTYPES["u8"]) for name, n in sizes.items()}
        return {name: _Memory(x, tensor(x, name).address) for name, x in made.items()}

    def read(self, address: int, count: int, dtype: Any) -> Any:
        """``count`` numbers in device memory, read once the stream has computed them."""
        self.wait()
        self.held.clear()
        array = np.empty(count, dtype)
        if count:
            self.driver.download(address, array)
        return array

    def wait(self) -> None:
        """Waits for the launches on the stream."""
        if self.origin is None:
            self.driver.synchronize()
        else:
            self.driver.wait(self.stream)

    def clear(self, x: _Memory) -> None:
        """Sets a 64-bit number to zero."""
        self.wait()
        self.driver.fill(x.address, 8)


@lru_cache(maxsize=256)
def _has_kernel(problem: Task, on: Driver) -> bool:
    """True if a configuration is legal for a problem."""
    return choice.choose(problem, on) is not None


@lru_cache(maxsize=256)
def _limits(problem: Task, blocks: int, on: Driver) -> BlockLimits | None:
    """The launches that compute limits of blocks; None: there are none."""
    return BlockLimits.of(problem, blocks, on.device)


class _Kept(NamedTuple):
    """A launch of the kernel that keeps the best values of rows. ``addresses``: those of its inputs, by role;
    ``numbers``: the numbers that it takes."""

    problem: Task
    addresses: Mapping[str, int]
    numbers: Mapping[str, float]


class _Memory(NamedTuple):
    """Device memory at ``address``. ``holder``: keeps it allocated."""

    holder: Any
    address: int


@dataclass(frozen=True)
class _Bound:
    """A bound: the n-th best value of some pairs, or one such value for each row. ``form``: how values are compared
    with the bound, a form of ``top_lists.listing``; ``numbers``: the bound of all pairs, as scalars; ``rows``: the
    bounds of rows, as arrays."""

    form: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    rows: Mapping[str, _Memory] = field(default_factory=dict)

    @classmethod
    def of(cls, value_type: str, greatest: bool, exact: bool, value: float, i: int = 0, j: int = 0) -> _Bound:
        """The bound from a value. ``exact``: the bound also compares indices, which tell equal values apart; else it is
        loosened by ``SLACK``."""
        if value != value:
            return cls(NAN, {BOUND_I: i, BOUND_J: j})
        if exact:
            return cls(EXACT, {VALUE: value, BOUND_I: i, BOUND_J: j})
        slack = 0.0 if math.isinf(value) else SLACK[value_type] * abs(value)
        return cls(LOOSE, {VALUE: value - slack if greatest else value + slack})


@dataclass(frozen=True)
class _Lists:
    """Lists of the pairs of a program. ``count``: the number of pairs, which may exceed ``capacity``; None: it was not
    read."""

    arrays: Mapping[str, _Memory]
    capacity: int
    count: int | None = None

    @property
    def stored(self) -> int:
        return self.capacity if self.count is None else min(self.count, self.capacity)


@dataclass(frozen=True)
class _Call:
    """One call for the best values. ``n``: the number of values, or of values of each row."""

    program: Program
    output: Top
    n: int
    arrays: Mapping[str, View]
    scalars: Mapping[str, float]
    own: task_call.Options
    extents: Mapping[str, int]
    device: _Device

    @property
    def element(self) -> Dtype:
        """The element type of the values."""
        return dtype(self.output.value.type)

    @property
    def rows(self) -> int:
        """The number of rows, or of columns, that have results of their own; 1 if the results are of all pairs."""
        return self.extents[self.output.axis] if self.output.axis else 1

    @property
    def pairs(self) -> int:
        return self.extents["i"] * self.extents["j"]

    @property
    def most(self) -> int:
        """The largest number of pairs of a row."""
        return self.pairs // max(self.rows, 1)

    @property
    def width(self) -> int:
        """The largest number of results of a row."""
        return self.n if self.output.axis else min(self.n, self.pairs)

    @property
    def indices(self) -> tuple[str, ...]:
        """The names of the index arrays among the results."""
        return {"": (BEST_I, BEST_J), "i": (BEST_J,), "j": (BEST_I,)}[self.output.axis]

    @property
    def plan(self) -> TopRecords:
        """The kernels that order records."""
        axis, m, n = self.output.axis, self.extents["i"], self.extents["j"]
        wide = TopRecords.needs_wide(self.element.name, axis, m, n)
        return TopRecords(self.element.name, axis, self.output.greatest, wide, self.device.driver.device)

    # ---- results

    def results(self) -> tuple[dict[str, Any], int]:
        """The pair (arrays of results by name, number of results of a row). InputError: the stream is being captured,
        and the host must read counts."""
        axis, width = self.output.axis, self.width
        kept = self._kept()
        if self.device.captured and kept is None and not (self.pairs <= DIRECT and stores_values(self.program)):
            raise InputError(
                "the stream is being captured into a CUDA graph; a task with top or bottom must be called outside, as"
                f" the host reads counts between its launches, unless it has at most {DIRECT} pairs and all of them"
                " count"
            )
        if self.rows * width >= MOST_RECORDS:
            raise InputError(f"the results have {self.rows * width} values; they must have less than {MOST_RECORDS}")
        shape, names = (self.rows, width) if axis else (width,), (BEST, *self.indices)
        made = {name: self._empty(name, shape) for name in names}
        if 0 in shape:
            return made, width
        if self.device.origin is None:
            memory = self.device.allocate({name: self._element_of(name).bytes * self.rows * width for name in names})
        else:
            memory = {name: _Memory(y, tensor(y, name).address) for name, y in made.items()}
        if kept is not None:
            self._keep(kept, memory)
        elif axis:
            self._rows(memory)
        else:
            width = self._pairs(memory)
        if self.device.origin is None:
            for name, y in made.items():
                into = as_numpy(tensor(y, name))
                into[...] = self.device.read(memory[name].address, into.size, into.dtype).reshape(into.shape)
        return made, width

    def _element_of(self, name: str) -> Dtype:
        return self.element if name == BEST else DTYPES["s32"]

    def _empty(self, name: str, shape: tuple[int, ...]) -> Any:
        """A new array for results."""
        return new_arrays.empty_array(self._origin, shape, self._element_of(name))

    @property
    def _origin(self) -> Any:
        return next(iter(self.arrays.values())).origin

    # ---- best values of all pairs

    def _pairs(self, memory: Mapping[str, _Memory]) -> int:
        """Writes the best values of all pairs to ``memory``; returns how many there are."""
        n, exact, room = self.width, self.element.integer, self.pairs
        bound: _Bound | None = None
        if self.pairs > max(DIRECT, 4 * n):
            parts = self._sample() if self._has_parts else {}
            sampled = math.prod(x.count for x in parts.values()) if parts else self._sampled(self.pairs)
            bound = self._bound_of(self._list(0, None, parts), exact) if parts else None
            room = min(self.pairs, ROOM * n * self.pairs // (2 * sampled) + LEAST_ROOM, MOST_RECORDS - 1)
        if bound is None and room == self.pairs and stores_values(self.program):  # the count is known
            lists = self._list(0, None)
            self._order(lists, self._shape(lists), memory)
            return n
        for _ in range(ATTEMPTS):
            lists = self._list(room, bound)
            assert lists.count is not None
            if bound is not None and lists.count < n:  # other kernels computed the sample, and rounded otherwise
                looser = bound.form == EXACT and not self.element.integer
                bound = self._bound(False, bound.numbers[VALUE]) if looser else None
            elif lists.count <= room:
                count = min(n, lists.count)
                self._order(lists, self._shape(lists), memory)
                return count
            else:
                exact = True
                bound = self._bound_of(lists, exact)
        raise InputError(
            f"the task has {self.pairs} pairs; {ATTEMPTS} bounds of their values have left more than {room} of them"
        )

    def _sample(self) -> dict[str, Part]:
        """The rows and the columns of a sample, whose pairs give a bound."""
        m, n = (self.extents[axis] for axis in "ij")
        ratio = max(1, self.pairs // self._sampled(self.pairs))
        rows = min(math.isqrt(ratio), max(1, m // LEAST_SAMPLE))
        columns = min(ratio // rows, max(1, n // LEAST_SAMPLE))
        return {"i": Part.every(rows, m), "j": Part.every(columns, n)}

    def _sampled(self, pairs: int) -> int:
        """The size of a sample of ``pairs`` pairs: equal to the number of pairs that its bound is expected to leave. If
        tensor cores filter candidates, it is larger, because each pair that is left costs a product of its own."""
        more = 8 + self.extents["k"] // 2048 if self.may_filter else 1
        return more * math.isqrt(pairs * self.width)

    def _bound(self, exact: bool, value: float, i: int = 0, j: int = 0) -> _Bound:
        return _Bound.of(self.element.name, self.output.greatest, exact, value, i, j)

    def _bound_of(self, lists: _Lists, exact: bool) -> _Bound | None:
        """The bound from the listed pairs; None: there are fewer pairs than results."""
        memory = self.device.allocate({TOTAL: 32})[TOTAL]
        places = {BEST: 0, BEST_I: 8, BEST_J: 12, COUNTS: 16}
        at = {name: _Memory(memory, memory.address + offset) for name, offset in places.items()}
        self._order(lists, self._shape(lists)._replace(first=self.width - 1, width=1), at)
        words = self.device.read(memory.address, 8, np.uint32)
        i, j, count = (int(x) for x in words[2:5])
        return None if count < self.width else self._bound(exact, self._decoded(words), i, j)

    def _decoded(self, words: Any) -> float:
        """The value that the first of these 32-bit words contain."""
        if self.element.name == "bf16":
            return float((words[:1] << 16).view(np.float32)[0])
        value = words.view(self.element.numpy)[0]
        return int(value) if self.element.integer else float(value)

    # ---- best values of each row or column

    @property
    def keeps(self) -> bool:
        """True if the best values are those of each row, and a kernel may keep them."""
        if not self.output.axis or not 0 < self.n <= MOST_KEPT or self.pairs == 0:
            return False
        if self.extents["k"] >= exact_filter.LEAST_K and self.may_filter:  # lists take less time
            return False
        return keeps_best(keeping(self.program, self.n), self.extents["k"])

    def _kept(self) -> _Kept | None:
        """The launch of the kernel that keeps the best values of each row. None: no family has one."""
        if not self.keeps:
            return None
        roles = roles_of(keeping(self.program, self.n))
        m, n = ("i", "j") if self.output.axis == "i" else ("j", "i")
        extents = {"i": self.extents[m], "j": self.extents[n], "k": self.extents["k"]}
        fields = {"algebra": self.own.algebra, "compute": self.own.compute}
        problem, given = self._problem(roles, self.arrays, extents, fields, {})
        if not _has_kernel(problem, self.device.driver):
            return None
        return _Kept(problem, given, {role: self.scalars[name] for role, name, _ in roles.scalars})

    def _keep(self, kept: _Kept, memory: Mapping[str, _Memory]) -> None:
        """Writes the best values of each row to ``memory`` by one kernel."""
        on, stream = self.device.driver, self.device.stream
        launch = launch_function.make_launch(runners.runner_for(kept.problem, stream, on), scalars=kept.numbers)
        at = {"C": memory[BEST].address, RowTop.COLUMNS: memory[self.indices[0]].address, **kept.addresses}
        launch(tuple(at[name] for name in kept.problem.arrays), stream)

    def _rows(self, memory: Mapping[str, _Memory]) -> None:
        """Writes the best values of each row to ``memory``, for one range of rows after the other."""
        n, most, step = self.n, self.most, 1
        if self.pairs > DIRECT and self._has_parts:
            step = max(1, most // self._sampled(most))
        expected = max(most // step, n * step) if step > 1 else most
        if self._blocks(step):
            expected = BLOCKS * n
        count = max(1, RECORDS // max(expected, 1)) if self._has_parts else self.rows
        for first in range(0, self.rows, count):
            self._some_rows(first, min(first + count, self.rows), step, memory)

    def _some_rows(self, first: int, end: int, step: int, memory: Mapping[str, _Memory]) -> None:
        """Writes the best values of the rows from ``first`` to ``end``. ``step``: the sample has one of so many pairs
        of a row; 1: there is no sample."""
        rows, n = end - first, self.n
        own = {} if rows == self.rows else {self.output.axis: Part(first, 1, rows)}
        at = {name: _Memory(x, x.address + first * n * self._element_of(name).bytes) for name, x in memory.items()}
        bound, room = None, min(rows * self.most, max(2 * RECORDS, self.most))
        if step > 1:
            blocks = self._blocks(step)
            if blocks:
                bound = self._bound_of_blocks(own, rows, blocks)
            else:
                bound = self._bound_of_rows(own, rows, step, self.element.integer)
            more = ROOM_OF_ROWS if rows >= MANY_ROWS else ROOM
            if blocks and self.may_filter:
                more *= ROOM_OF_LIMITS
            room = min(room, more * rows * n * (BLOCKS if blocks else step) // 2 + LEAST_ROOM)
        elif room == rows * self.most and stores_values(self.program):  # the counts are known
            lists = self._list(0, None, own)
            self._order(lists, self._shape(lists, rows, first), at)
            return
        while True:
            lists = self._list(room, bound, own)
            assert lists.count is not None
            if lists.count <= room:
                x = self._shape(lists, rows, first)._replace(sampled=bound is not None)
                scratch = self._make(lists, x, {} if bound is None else bound.rows)
                summary = Summary.of(self.device.read(scratch[TOTAL].address, 4, np.uint32))
                if not summary.short:
                    self._finish(x._replace(most=summary.most), {**scratch, **at})
                    return
                bound, step = None, 1  # other kernels computed the sample, and rounded otherwise
                room = min(rows * self.most, max(2 * RECORDS, self.most))
            elif bound is not None and bound.form == LOOSE:
                bound = self._bound_of_rows(own, rows, step, True)
            elif rows == 1 or not self._has_parts or lists.count <= 2 * RECORDS:
                room = lists.count
            else:
                middle = (first + end) // 2
                self._some_rows(first, middle, step, memory)
                self._some_rows(middle, end, step, memory)
                return

    def _blocks(self, step: int) -> int:
        """The number of blocks of a row's pairs whose best values bound its results. 0: a sample of one pair in
        ``step`` does, because it takes less time, or the best values cannot be computed apart."""
        blocks, records = BLOCKS * self.n, self.most // step + self.n * step
        if step == 1 or self.element.name not in ("f32", "f64") or not stores_values(self.program):
            return 0
        few = 0 < blocks <= MOST_BLOCKS and self.most >= blocks * LEAST_BLOCK and not reads_indices(self.program)
        steps = RECORD_STEPS * (FILTERED if self.may_filter else 1)
        return blocks if few and self.most * self.extents["k"] <= steps * records else 0

    def _bound_of_blocks(self, own: Mapping[str, Part], rows: int, blocks: int) -> _Bound:
        """The bound of each row: the n-th best one of the best values of blocks of its pairs, or of the limits that
        tensor cores compute for these values. Each block has every ``blocks``-th pair."""
        values = self.device.allocate({VALUES: self.element.bytes * rows * blocks})[VALUES]
        if not self._limits_of_blocks(values, own, blocks):
            self._best_of_blocks(values, own, rows, blocks)
        # the matrix has a row for each block, as a sample of the rows i of columns j
        return self._bound_of_matrix(replace(self.plan, axis="j"), values, own, rows, Part(0, 1, blocks), False)

    def _limits_of_blocks(self, values: _Memory, own: Mapping[str, Part], blocks: int) -> bool:
        """Writes a limit for each block and row. False: it writes nothing, as tensor cores cannot compute the
        limits."""
        if not self.may_filter:
            return False
        on, stream = self.device.driver, self.device.stream
        extents = {**self.extents, **{axis: x.count for axis, x in own.items()}}
        fields = {"algebra": self.own.algebra, "compute": self.own.compute}
        roles = roles_of(extremes(self.program))
        problem, given = self._problem(roles, self._parts_of(own), extents, fields, {})
        limits = _limits(problem, blocks, on)
        if limits is None:
            return False

        def make_launch(p: Task, numbers: Mapping[str, float]) -> Any:
            return launch_function.make_launch(runners.runner_for(p, stream, on), scalars=numbers)

        scratch = self.device.allocate({name: 4 * n for name, n in limits.scratch.items()})
        self.device.held.append(scratch)
        at = {**given, **{name: x.address for name, x in scratch.items()}, block_limits.LIMITS: values.address}
        numbers = {role: self.scalars[name] for role, name, _ in roles.scalars}
        limits.launch(make_launch, at, numbers, stream)
        return True

    def _best_of_blocks(self, values: _Memory, own: Mapping[str, Part], rows: int, blocks: int) -> None:
        """Writes the best value of each block and row."""
        size, on, stream = self.element.bytes, self.device.driver, self.device.stream
        roles = roles_of(extremes(self.program))
        numbers = {role: self.scalars[name] for role, name, _ in roles.scalars}
        launched: Task | None = None
        for block, (problem, given) in enumerate(self._problems_of_blocks(roles, own, blocks)):
            if problem is not launched:
                launch = launch_function.make_launch(runners.runner_for(problem, stream, on), scalars=numbers)
                launched = problem
            addresses = {"C": values.address + size * rows * block, **given}
            launch(tuple(addresses[name] for name in problem.arrays), stream)

    def _problems_of_blocks(
        self, roles: Roles, own: Mapping[str, Part], blocks: int
    ) -> Iterator[tuple[Task, dict[str, int]]]:
        """For each block of pairs, its problem and the addresses of its inputs by role. Blocks of arrays that kernels
        read where they are have one problem, and addresses in equal steps."""
        other = "j" if self.output.axis == "i" else "i"
        fields = {"algebra": self.own.algebra, "compute": self.own.compute}

        def made(block: int) -> tuple[Task, dict[str, int], bool]:
            parts = {**own, other: Part(block, blocks, self.most // blocks)}
            extents = {**self.extents, **{name: x.count for name, x in parts.items()}}
            views = self._parts_of(parts)
            problem, given = self._problem(roles, views, extents, fields, {})
            return problem, given, all(given[u.role] == views[u.name].address for u in roles.uses)

        (problem, first, direct), (next_problem, second, next_direct) = made(0), made(1)
        if not (direct and next_direct):
            yield from ((problem, first), (next_problem, second))
            yield from (made(block)[:2] for block in range(2, blocks))
            return
        least = {x: min(getattr(y, x) for y in (problem, next_problem)) for x in ("aligned_a", "aligned_b")}
        problem = replace(problem, **least)
        for block in range(blocks):
            yield problem, {role: at + block * (second[role] - at) for role, at in first.items()}

    def _bound_of_rows(self, own: Mapping[str, Part], rows: int, step: int, exact: bool) -> _Bound:
        """The bound of each row, from a sample of its pairs."""
        part = Part.every(step, self.most)
        parts = {**own, "j" if self.output.axis == "i" else "i": part}
        if stores_values(self.program):
            values = self._values(parts, rows * part.count).arrays[VALUES]
            return self._bound_of_matrix(self.plan, values, own, rows, part, exact)
        lists = self._list(0, None, parts)
        x, memory = self._bound_shape(lists, own, rows, part.count, exact)
        places = {BEST: VALUE, self.indices[0]: BOUND_INDEX, COUNTS: SAMPLE_COUNTS}
        self._order(lists, x, {name: memory[other] for name, other in places.items()})
        return _Bound(EXACT if exact else LOOSE, {}, memory)

    def _bound_of_matrix(
        self, plan: TopRecords, values: _Memory, own: Mapping[str, Part], rows: int, part: Part, exact: bool
    ) -> _Bound:
        """The bound of each row from a matrix of values. ``plan``: the kernels that order them; ``part``: the pairs of
        a row that have a value."""
        lists = _Lists({VALUES: values}, rows * part.count)
        x, memory = self._bound_shape(lists, own, rows, part.count, exact)
        index = BEST_J if plan.axis == "i" else BEST_I
        at = {BEST: memory[VALUE], index: memory[BOUND_INDEX], COUNTS: memory[SAMPLE_COUNTS]}
        scratch = self.device.allocate(plan.scratch(x))
        sample = Sample(x, part.count, part.first, part.step)
        self._run(plan.sampling(sample), {**lists.arrays, **scratch, **at}, plan)
        self._finish(x, {**scratch, **at}, plan)
        return _Bound(EXACT if exact else LOOSE, {}, memory)

    def _bound_shape(
        self, lists: _Lists, own: Mapping[str, Part], rows: int, most: int, exact: bool
    ) -> tuple[Lists, dict[str, _Memory]]:
        """The description of the lists whose n-th best values are bounds, and the arrays for the bounds. ``most``: the
        most pairs of a row."""
        value_type, greatest = self.element.name, self.output.greatest
        sizes = {VALUE: self.element.bytes * rows, BOUND_INDEX: 4 * rows, SAMPLE_COUNTS: 4 * rows}
        x = self._shape(lists, rows, own[self.output.axis].first if own else 0)._replace(
            first=self.n - 1,
            width=1,
            missing=no_bound(value_type, greatest),
            missing_index=(1 << 31) - 1,
            slack=0.0 if exact else -SLACK[value_type] if greatest else SLACK[value_type],
            most=most,
        )
        return x, self.device.allocate(sizes)

    # ---- lists

    @property
    def may_filter(self) -> bool:
        """True if tensor cores may list the candidates of all pairs."""
        m, n, k = (self.extents[axis] for axis in AXES)
        roles = roles_of(listing(self.program, LOOSE))
        allowed = self.own.algebra and self.own.compute in ("", "f32")
        return (
            allowed
            and exact_filter.may_pay(m, n, k, self.device.driver.device)
            and exact_filter.candidates_of(roles) is not None
        )

    @property
    def _has_parts(self) -> bool:
        """True if the program can be computed on some rows and columns of its arrays alone."""
        origins = [v.origin for v in self.arrays.values()]
        return all(isinstance(x, np.ndarray) or hasattr(x, "new_empty") or is_cupy(x) for x in origins)

    def _list(self, room: int, bound: _Bound | None, parts: Mapping[str, Part] | None = None) -> _Lists:
        """Lists of the pairs that are at least as good as a bound. ``room``: the number of pairs that the lists have
        room for; 0: room for all, and the count is not read; ``parts``: the rows and columns to list, default all.
        InputError: there are too many pairs."""
        bound = bound or _Bound("")
        program, scalars = listing(self.program, bound.form, bool(parts)), {**self.scalars, **bound.numbers}
        extents, arrays = dict(self.extents), dict(self.arrays)
        if parts:
            arrays, scalars = self._parts_of(parts), {**scalars, **part_numbers(parts, self.extents)}
            extents |= {axis: x.count for axis, x in parts.items()}
        pairs = extents["i"] * extents["j"]
        capacity = room or pairs
        if capacity >= MOST_RECORDS:
            raise InputError(f"the task has {capacity} pairs; it must have less than {MOST_RECORDS}")
        sizes = {VALUES: self.element.bytes * capacity, LIST_I: 4 * capacity, LIST_J: 4 * capacity, COUNT: 8}
        lists = self.device.allocate(sizes)
        if 0 in (extents["i"], extents["j"]):
            self.device.clear(lists[COUNT])
            return _Lists(lists, capacity, 0)
        at = {name: lists[x].address for name, x in zip(list_names(3), (VALUES, LIST_I, LIST_J), strict=True)}
        at[SelectValues.COUNT] = lists[COUNT].address
        roles = roles_of(program)
        typical = typical_room(pairs)  # one problem, whatever the capacity of a call is
        fields: dict[str, Any] = {"capacity": typical, "algebra": self.own.algebra, "compute": self.own.compute}
        problem, given = self._problem(roles, arrays, extents, fields, bound.rows)
        numbers = {role: scalars[name] for role, name, _ in roles.scalars}
        self._launch(problem, {**at, **given}, {**numbers, SelectValues.CAPACITY.name: capacity})
        count = int(self.device.read(lists[COUNT].address, 1, np.int64)[0]) if room else None
        return _Lists(lists, capacity, count)

    def _values(self, parts: Mapping[str, Part], pairs: int) -> _Lists:
        """The values of all pairs of some rows and columns, stored as a matrix."""
        if pairs >= MOST_RECORDS:
            raise InputError(f"the task has {pairs} pairs; it must have less than {MOST_RECORDS}")
        roles = roles_of(storing(self.program))
        scalars = {**self.scalars, **part_numbers(parts, self.extents)}
        extents = {**self.extents, **{axis: x.count for axis, x in parts.items()}}
        memory = self.device.allocate({VALUES: self.element.bytes * pairs})
        fields = {"algebra": self.own.algebra, "compute": self.own.compute}
        problem, given = self._problem(roles, self._parts_of(parts), extents, fields, {})
        numbers = {role: scalars[name] for role, name, _ in roles.scalars}
        self._launch(problem, {"C": memory[VALUES].address, **given}, numbers)
        return _Lists(memory, pairs)

    def _parts_of(self, parts: Mapping[str, Part]) -> dict[str, View]:
        """The parts of the arrays, by the names of the inputs of the program on parts."""
        views = {}
        for x in self.program.inputs:
            for axes in x.uses:
                index = tuple(parts[axis].slice if axis in parts else slice(None) for axis in axes)
                views[array_name(x.name, axes)] = tensor(self.arrays[x.name].origin[index], x.name)
        return views

    def _problem(
        self,
        roles: Roles,
        arrays: Mapping[str, View],
        extents: Mapping[str, int],
        fields: Mapping[str, Any],
        bounds: Mapping[str, _Memory],
    ) -> tuple[Task, dict[str, int]]:
        """The pair (the problem of a program, the addresses of its inputs by role). ``bounds``: the arrays with bounds
        of rows."""
        uses = {u.role: u.name for u in roles.uses}
        if self.device.origin is not None:
            elements = {VALUE: self.element, BOUND_INDEX: DTYPES["s32"]}
            known = {
                name: View(x.holder, x.address, (extents[self.output.axis],), (1,), elements[name], False)
                for name, x in bounds.items()
                if name in elements
            }
            inputs = {name: {**arrays, **known}[name] for name in uses.values()}
            problem, views = task_call.problem_of(roles, inputs, None, extents, **fields)
            self.device.held.append(views)
            return problem, {name: v.address for name, v in views.items()}
        given = {role: np.ascontiguousarray(as_numpy(arrays[name])) for role, name in uses.items() if name in arrays}
        m, n, k = (extents[axis] for axis in AXES)
        problem = Task(m, n, k, roles.layout, "", text=Task.text_of(roles), **fields)
        on_host.warn_if_slow(problem)
        memory = self.device.allocate({name: x.nbytes for name, x in given.items()})
        self.device.held.append(memory)
        for name, x in given.items():
            if x.nbytes:
                self.device.driver.upload(memory[name].address, x)
        inputs_by_role = {role: memory.get(role) or bounds[name] for role, name in uses.items()}
        return problem, {role: x.address for role, x in inputs_by_role.items()}

    def _launch(self, problem: Task, addresses: Mapping[str, int], numbers: Mapping[str, float]) -> None:
        """Launches the kernels that list pairs; first those by which tensor cores filter candidates, where they are
        used."""
        from ptxgen.api import exact_calls  # most tasks have no lists

        on, stream = self.device.driver, self.device.stream
        exact = exact_calls.exact_of(problem, on)
        if exact is not None:
            scratch = self.device.allocate({name: 4 * n for name, n in exact.scratch.items()})
            at = {**addresses, **{name: x.address for name, x in scratch.items()}}
            if exact_calls.launched(exact, problem, at, numbers, on, stream, self.device.wait):
                return
        launch = launch_function.make_launch(runners.runner_for(problem, stream, on), scalars=numbers)
        launch(tuple(addresses[name] for name in problem.arrays), stream)

    # ---- records

    def _shape(self, lists: _Lists, rows: int = 1, first_row: int = 0) -> Lists:
        """The description of lists that the kernels of records take."""
        stored, width = lists.stored, self.width
        lowest = missing(self.element.name, self.output.greatest)
        columns, most = max(self.extents["j"], 1), min(self.most, stored)
        return Lists(stored, rows, columns, most, width, 0, width, lowest, first_row=first_row)

    def _order(self, lists: _Lists, x: Lists, memory: Mapping[str, _Memory]) -> None:
        """Makes records of lists, orders them, and writes the best ones. ``memory``: the arrays of the results, and
        arrays that are read later."""
        scratch = self._make(lists, x, memory)
        self._finish(x, {**scratch, **memory})

    def _make(self, lists: _Lists, x: Lists, memory: Mapping[str, _Memory]) -> dict[str, _Memory]:
        """Makes the records of lists; returns the arrays that hold them."""
        scratch = self.device.allocate(self.plan.scratch(x))
        self._run(self.plan.making(x), {**lists.arrays, **scratch, **memory})
        return scratch

    def _finish(self, x: Lists, memory: Mapping[str, _Memory], plan: TopRecords | None = None) -> None:
        """Orders records, and writes the best ones to the results. ``plan``: the kernels; default: the call's."""
        plan = plan or self.plan
        joined = self.device.allocate({TO: plan.joined_bytes(x)})
        self._run(plan.ordering(x), {**memory, **joined}, plan)

    def _run(self, steps: Iterable[Step], memory: Mapping[str, _Memory], plan: TopRecords | None = None) -> None:
        on, kernel = self.device.driver, _kernel(plan or self.plan, self.device.driver)
        addresses = {name: each.address for name, each in memory.items()}
        self.device.held.append(memory)
        for step in steps:
            on.launch(kernel, step, step.pack(addresses), self.device.stream)
