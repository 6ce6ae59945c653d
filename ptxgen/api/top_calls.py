"""Calls of the n greatest or least values: lists of pairs among which they are, and kernels that order these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ptxgen.api import driver_state, drivers, launch_function, new_arrays, on_host, runners, streams, task_call
from ptxgen.api.arrays import View, as_numpy, tensor
from ptxgen.arguments import integer, shown
from ptxgen.codegen.render import render_records
from ptxgen.codegen.top_records import (
    BEST,
    BEST_I,
    BEST_J,
    COUNT,
    COUNTS,
    LIST_I,
    LIST_J,
    MOST_RECORDS,
    VALUES,
    Lists,
    TopRecords,
)
from ptxgen.errors import InputError
from ptxgen.expr.node import variables
from ptxgen.lowering.sink import SelectValues, list_names
from ptxgen.operations.task.fast_distances import fast_distance
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.program import MOST_TOP, Program, Top
from ptxgen.operations.task.roles import Roles, roles_of
from ptxgen.operations.task.top_lists import listing, missing
from ptxgen.problem.dtypes import DTYPES, Dtype, dtype
from ptxgen.runtime.device_tables import Part, allocate_parts
from ptxgen.runtime.driver import Driver, Kernel


class Best(NamedTuple):
    """The best values of a task, the best first. ``values``: n of them, or n of each row or column; ``i``, ``j``: the
    indices of their pairs, of 32 bits; None: that of the row or column. Rows that have fewer pairs end with the
    identity and the index −1."""

    values: Any
    i: Any
    j: Any


def best(program: Program, arrays: Mapping[str, View], scalars: Mapping[str, float], own: task_call.Options) -> Best:
    """The greatest or least values of a program: arguments as of ``task_call.call``.

    ShapeError, DtypeError, InputError: an argument breaks a rule."""
    own.recording.refuse()  # the launches depend on counts
    program = task_call.with_one_array(program, arrays) if own.algebra else program
    roles, output = roles_of(program), program.outputs[0]
    assert isinstance(output, Top)
    count = _count(output, scalars)
    extents = task_call.extents_of(program, arrays, {})
    first = task_call.first_array(roles, arrays, {})
    fast = fast_distance(roles) if own.precision == task_call.FAST and extents["k"] else None
    own = task_call.with_fast_compute(own, roles, extents, first)
    if fast is not None:
        views = task_call.with_squares(fast, roles, arrays, own.recording)
        given = {role: scalars[name] for role, name, _ in roles.scalars}
        return best(fast.program, views, given, own.with_roles(roles, precision=task_call.EXACT))
    device = _Device.of(first, arrays)
    with device.ordered(arrays):
        return _Call(program, output, count, arrays, scalars, own, extents, device).results()


def _count(output: Top, scalars: Mapping[str, float]) -> int:
    """The number of values. InputError: it is no integer, or out of range."""
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
    """The loaded kernels of records, which stay loaded for later calls."""
    return driver_state.state_of(on).kernel(render_records(plan))


@dataclass(frozen=True)
class _Device:
    """Where a call computes. ``origin``: an array of the library that allocates, None: arrays are in host memory, and
    the driver allocates."""

    driver: Driver
    stream: int
    origin: Any

    @classmethod
    def of(cls, first: View, arrays: Mapping[str, View]) -> _Device:
        """InputError: the call is captured into a CUDA graph."""
        on = drivers.driver_of(first)
        if first.host:
            return cls(on, 0, None)
        drivers.require_device(on, **arrays)
        stream = streams.current_stream(first.origin)
        if streams.is_captured(stream, on):
            raise InputError(
                "the stream is being captured into a CUDA graph; a task with top or bottom must be called outside, for"
                " its launches depend on counts that the host reads"
            )
        return cls(on, stream, first.origin)

    @contextmanager
    def ordered(self, arrays: Mapping[str, View]) -> Iterator[None]:
        """``streams.ordered``."""
        if self.origin is None:
            yield
        else:
            with streams.ordered(self.driver, self.stream, arrays.values()):
                yield

    def allocate(self, sizes: Mapping[str, int]) -> dict[str, _Memory]:
        """Arrays of these sizes in bytes."""
        if self.origin is None:
            return {name: _Memory(x, x.address) for name, x in allocate_parts(self.driver, sizes).items()}
        made = {name: new_arrays.empty_array(self.origin, (max(n, 1),), DTYPES["u8"]) for name, n in sizes.items()}
        return {name: _Memory(x, tensor(x, name).address) for name, x in made.items()}

    def read(self, address: int, count: int, kind: Any) -> Any:
        """Numbers in device memory, once the stream has computed them."""
        if self.origin is None:
            self.driver.synchronize()
        else:
            self.driver.wait(self.stream)
        found = np.empty(count, kind)
        if count:
            self.driver.download(address, found)
        return found


class _Memory(NamedTuple):
    """Device memory. ``holder``: keeps it allocated."""

    holder: Part | Any
    address: int


@dataclass(frozen=True)
class _Call:
    """One call. ``n``: values, or values of each row."""

    program: Program
    output: Top
    n: int
    arrays: Mapping[str, View]
    scalars: Mapping[str, float]
    own: task_call.Options
    extents: Mapping[str, int]
    device: _Device

    @property
    def kind(self) -> Dtype:
        """The type of values."""
        return dtype(self.output.value.type)

    @property
    def rows(self) -> int:
        """Rows, or columns, of which each has results."""
        return self.extents[self.output.axis] if self.output.axis else 1

    @property
    def pairs(self) -> int:
        return self.extents["i"] * self.extents["j"]

    @property
    def most(self) -> int:
        """Pairs of a row, at most."""
        return self.pairs // max(self.rows, 1)

    @property
    def indices(self) -> tuple[str, ...]:
        """The arrays of indices that are results."""
        return {"": (BEST_I, BEST_J), "i": (BEST_J,), "j": (BEST_I,)}[self.output.axis]

    def results(self) -> Best:
        axis, width = self.output.axis, self.n if self.output.axis else min(self.n, self.pairs)
        if self.rows * width >= MOST_RECORDS:
            raise InputError(f"the results have {self.rows * width} values; they must have less than {MOST_RECORDS}")
        shape = (self.rows, width) if axis else (width,)
        if 0 in shape:
            return self._best({name: self._empty(name, shape) for name in (BEST, *self.indices)})
        lists, capacity = self._listed()
        x = Lists(
            capacity, self.rows, max(self.extents["j"], 1), min(self.most, capacity), width, 0, width,
            missing(self.kind.name, self.output.greatest),
        )  # fmt: skip
        if self.device.origin is None:
            sizes = {name: self._kind_of(name).bytes * self.rows * width for name in (BEST, *self.indices)}
            memory, made = self.device.allocate(sizes), {}
        else:
            made = {name: self._empty(name, shape) for name in (BEST, *self.indices)}
            memory = {name: _Memory(y, tensor(y, name).address) for name, y in made.items()}
        scratch = self._order(x, {**lists, **memory})
        if not axis:
            width = min(width, int(self.device.read(scratch[COUNTS].address, 1, np.uint32)[0]))
        if made:
            return self._best({name: y if axis else y[:width] for name, y in made.items()})
        for name in sizes:
            y = made[name] = self._empty(name, (self.rows, width) if axis else (width,))
            into = as_numpy(tensor(y, name))
            into[...] = self.device.read(memory[name].address, into.size, into.dtype).reshape(into.shape)
        return self._best(made)

    def _kind_of(self, name: str) -> Dtype:
        return self.kind if name == BEST else DTYPES["s32"]

    def _empty(self, name: str, shape: tuple[int, ...]) -> Any:
        """A new array of results."""
        return new_arrays.empty_array(self._origin, shape, self._kind_of(name))

    @property
    def _origin(self) -> Any:
        return next(iter(self.arrays.values())).origin

    def _best(self, made: Mapping[str, Any]) -> Best:
        found = {name: new_arrays.result_of(x, self._origin) for name, x in made.items()}
        return Best(found[BEST], found.get(BEST_I), found.get(BEST_J))

    def _listed(self) -> tuple[dict[str, _Memory], int]:
        """(lists of pairs among which are the results, their capacity)."""
        return self._list(listing(self.program), self.arrays, self.scalars, self.extents, self.pairs)

    def _list(
        self,
        program: Program,
        arrays: Mapping[str, View],
        scalars: Mapping[str, float],
        extents: Mapping[str, int],
        capacity: int,
    ) -> tuple[dict[str, _Memory], int]:
        """(the lists of a program, their capacity). InputError: there are too many pairs."""
        if capacity >= MOST_RECORDS:
            raise InputError(f"the task has {capacity} pairs; it must have less than {MOST_RECORDS}")
        roles = roles_of(program)
        fields: dict[str, Any] = {"capacity": capacity, "algebra": self.own.algebra, "compute": self.own.compute}
        sizes = {VALUES: self.kind.bytes * capacity, LIST_I: 4 * capacity, LIST_J: 4 * capacity, COUNT: 8}
        lists = self.device.allocate(sizes)
        at = {name: lists[x].address for name, x in zip(list_names(3), (VALUES, LIST_I, LIST_J), strict=True)}
        at[SelectValues.COUNT] = lists[COUNT].address
        if 0 in (extents["i"], extents["j"]):
            self.device.driver.fill(lists[COUNT].address, 8)
            return lists, capacity
        numbers = {role: scalars[name] for role, name, _ in roles.scalars}
        numbers[SelectValues.CAPACITY.name] = capacity
        inputs = {u.name: arrays[u.name] for u in roles.uses}
        problem, given = self._problem(roles, inputs, extents, fields)
        self._launch(problem, {**at, **{name: x.address for name, x in given.items()}}, numbers)
        return lists, capacity

    def _problem(
        self, roles: Roles, arrays: Mapping[str, View], extents: Mapping[str, int], fields: Mapping[str, Any]
    ) -> tuple[Task, dict[str, Any]]:
        """(the problem of a program, its inputs by role, in device memory)."""
        if self.device.origin is not None:
            problem, views = task_call.problem_of(roles, arrays, None, extents, **fields)
            return problem, {name: _Memory(v, v.address) for name, v in views.items()}
        problem, given = task_call.host_problem(roles, arrays, extents, **fields)
        on_host.warn_if_slow(problem)
        memory = self.device.allocate({name: x.nbytes for name, x in given.items()})
        for name, x in given.items():
            if x.nbytes:
                self.device.driver.upload(memory[name].address, x)
        return problem, memory

    def _launch(self, problem: Task, addresses: Mapping[str, int], numbers: Mapping[str, float]) -> None:
        runner = runners.runner_for(problem, self.device.stream, self.device.driver)
        launch = launch_function.make_launch(runner, scalars=numbers)
        launch(tuple(addresses[name] for name in problem.arrays), self.device.stream)

    def _order(self, x: Lists, memory: Mapping[str, _Memory]) -> dict[str, _Memory]:
        """Launches the kernels that write the best records of lists; returns their scratch arrays."""
        axis, on = self.output.axis, self.device.driver
        wide = TopRecords.needs_wide(self.kind.name, axis, self.extents["i"], self.extents["j"])
        plan = TopRecords(self.kind.name, axis, self.output.greatest, wide, on.device)
        kernel, scratch = _kernel(plan, on), self.device.allocate(plan.scratch(x))
        addresses = {name: each.address for name, each in {**memory, **scratch}.items()}
        for step in plan.steps(x):
            on.launch(kernel, step, step.pack(addresses), self.device.stream)
        return scratch
