"""Lists of selected results: the calls that compute them, and the ``Selection`` that calls return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ptxgen.api import drivers, launch_function, new_arrays, on_host, runners, streams, task_call
from ptxgen.api.arrays import View, as_numpy, tensor
from ptxgen.arguments import flag, integer, word
from ptxgen.errors import CapacityError, InputError
from ptxgen.expr.node import Node, variable
from ptxgen.lowering.sink import SelectValues
from ptxgen.operations.task import joins
from ptxgen.operations.task.fast_distances import fast_distance
from ptxgen.operations.task.problem import CAPACITY_LIMIT, Task
from ptxgen.operations.task.program import Program, Select
from ptxgen.operations.task.roles import Roles, roles_of
from ptxgen.problem.dtypes import DTYPES
from ptxgen.runtime.driver import Driver

GROW, ERROR, TRUNCATE = "grow", "error", "truncate"
#: the first lists of a task have room for one of so many pairs, and for at least ``LEAST`` results
PAIRS = 64
LEAST = 1024
MAX_COUNTS = 1024  #: problems whose last count is kept

#: problem -> the count of its last call whose lists had to grow
_last_counts: dict[Task, int] = {}


@dataclass(frozen=True)
class Options:
    """How a call treats lists. ``capacity``: the number of elements that the lists have room for; None: enough for most
    calls; ``overflow``: what happens if there are more results. grow: the task is computed again with longer lists;
    error: CapacityError; truncate: the lists have as many results as fit. ``sorted``: the lists are in the order of (i,
    j)."""

    capacity: int | None = None
    overflow: str = GROW
    sorted: bool = False

    def __post_init__(self) -> None:
        word("overflow", self.overflow, (GROW, ERROR, TRUNCATE))
        flag("sorted", self.sorted)
        if self.capacity is not None:
            object.__setattr__(self, "capacity", integer("capacity", self.capacity, 0, CAPACITY_LIMIT))


@dataclass(frozen=True)
class _Count:
    """A count of results that the host has read."""

    count: int

    def __call__(self) -> int:
        return self.count


@dataclass(frozen=True)
class _DeviceCount:
    """A count of results that is read from GPU memory when it is asked for. ``array``: owns the memory."""

    driver: Driver
    address: int
    array: Any

    def __call__(self) -> int:
        count = np.zeros(1, np.int64)
        self.driver.download(self.address, count)
        return int(count[0])


class Selection:
    """The results of a task for which a condition holds, in any order unless the call sorts them.

    If a CUDA graph captured the call, the lists have the results of the graph's last launch: wait for the stream before
    reading. The count is read from the device each time. Keep the object as long as the graph.
    """

    def __init__(self, values: Sequence[Node], lists: Sequence[Any], read: Callable[[], int], capacity: int) -> None:
        self._values, self._lists, self._read, self._capacity = tuple(values), tuple(lists), read, capacity

    @property
    def count(self) -> int:
        """The number of results, which may exceed the capacity."""
        return self._read()

    def __len__(self) -> int:
        """The number of results in the lists."""
        return min(self.count, self._capacity)

    @property
    def values(self) -> Any:
        """The list of values other than i and j; a tuple of lists if there are several."""
        arrays = tuple(
            self._part(x) for v, x in zip(self._values, self._lists, strict=True) if v not in (_index("i"), _index("j"))
        )
        return arrays[0] if len(arrays) == 1 else arrays

    @property
    def i(self) -> Any:
        """The list of i; None: the task does not list i."""
        return self._of(_index("i"))

    @property
    def j(self) -> Any:
        """The list of j; None: the task does not list j."""
        return self._of(_index("j"))

    @property
    def columns(self) -> dict[str, Any]:
        """The lists by name, in the order in which the task gives them: i, j, and value or value0, value1, …"""
        others = sum(v not in (_index("i"), _index("j")) for v in self._values)
        numbers = (f"value{n}" if others > 1 else "value" for n in range(others))
        names = [str(v.value) if v in (_index("i"), _index("j")) else next(numbers) for v in self._values]
        return {name: self._part(x) for name, x in zip(names, self._lists, strict=True)}

    def _of(self, value: Node) -> Any:
        return next((self._part(x) for v, x in zip(self._values, self._lists, strict=True) if v is value), None)

    def _part(self, x: Any) -> Any:
        return x[: len(self)]

    def __repr__(self) -> str:
        return f"Selection(count={self.count}, capacity={self._capacity})"


def lists_pairs(values: Sequence[Node]) -> bool:
    """True if both i and j are among the values of a list."""
    return {_index("i"), _index("j")} <= set(values)


def _listed(values: Sequence[Node], roles: Roles, sorted_keys: bool) -> tuple[Node, ...]:
    """The values of a list, with i and j for those of a join. ``sorted_keys``: as in ``task_call.Options``."""
    axes = {joins.ROWS: "i", joins.COLUMNS: "j"} if sorted_keys else {}
    known = {f"{u.role}[{axes[u.name]}]": _index(axes[u.name]) for u in roles.uses if u.name in axes}
    return tuple(known.get(str(x.value), x) for x in values)


def _index(axis: str) -> Node:
    return variable(axis, "s32")


def select(
    program: Program,
    arrays: Mapping[str, View],
    scalars: Mapping[str, float],
    arguments: Mapping[str, str],
    options: Options,
    own: task_call.Options,
) -> Selection:
    """The selected results of a program. The arguments are those of ``task_call.call``, whose options are ``own`` here.

    ShapeError, DtypeError, InputError: an argument breaks a rule. CapacityError: there are more results than the lists
    hold."""
    program = task_call.with_one_array(program, arrays) if own.algebra else program
    roles = roles_of(program)
    output = roles.program.outputs[0]
    assert isinstance(output, Select)
    if options.sorted and not lists_pairs(_listed(output.values, roles, own.sorted_keys)):
        raise InputError(f"sorted is True; {program.outputs[0].name}.add must then have i and j among its values")
    extents = task_call.extents_of(program, arrays, arguments)
    first = task_call.first_array(roles, arrays, arguments)
    fast = fast_distance(roles) if own.precision == task_call.FAST and extents["k"] else None
    if fast is not None:  # lists of sums of products may have candidates of tf32, which are faster
        own = task_call.with_fast_compute(own, roles, extents, first)
        views = task_call.with_squares(fast, roles, arrays, own.recording)
        numbers = {role: scalars[name] for role, name, _ in roles.scalars}
        return select(fast.program, views, numbers, {}, options, own.with_roles(roles, precision=task_call.EXACT))
    join = task_call.join_for(roles, arrays, extents, own)
    if join is not None:
        views = task_call.order_of(join, roles, arrays, own).arrays
        numbers = {role: scalars[name] for role, name, _ in roles.scalars}
        return select(join.program, views, numbers, {}, options, own.with_roles(roles, sorted_keys=True))
    pairs = extents["i"] * extents["j"]
    initial = min(pairs, max(LEAST, pairs // PAIRS))
    make = _host_lists if first.host else _device_lists
    fields = {"capacity": initial, "algebra": own.algebra, "compute": own.compute, "sorted_keys": own.sorted_keys}
    lists = make(roles, arrays, scalars, extents, fields, options, own)
    capacity = options.capacity
    if capacity is None:
        last = _last_counts.get(lists.problem, 0)
        capacity = min(pairs, max(initial, last + last // 8))
    selected = lists(capacity)
    if options.overflow == GROW and (count := selected.count) > capacity:
        if len(_last_counts) >= MAX_COUNTS:
            _last_counts.clear()
        _last_counts[lists.problem] = count
        own.recording.refuse()  # the next call has lists for so many from the beginning
        selected = lists(count)
    if options.overflow == ERROR and selected.count > capacity:
        message = f"capacity is {capacity}; it must be at least {selected.count}, the number of selected results"
        raise CapacityError(message, selected.count, capacity)
    return _sorted(selected, extents["j"]) if options.sorted else selected


@dataclass(frozen=True)
class _Lists:
    """The way to compute the lists of a problem. ``run(capacity)``: computes lists with this room, and returns them."""

    problem: Task
    run: Callable[[int], Selection]

    def __call__(self, capacity: int) -> Selection:
        return self.run(capacity)


def _host_lists(
    roles: Roles,
    arrays: Mapping[str, View],
    scalars: Mapping[str, float],
    extents: Mapping[str, int],
    own: Mapping[str, Any],
    options: Options,
    call: task_call.Options,
) -> _Lists:
    """The lists of a call on host arrays, which are copied to the device; the lists are copied back. ``own``: further
    fields of the problem."""
    from ptxgen.api import exact_calls  # most tasks have no lists

    problem, given = task_call.host_problem(roles, arrays, extents, **own)
    origin = arrays[roles.use("A").name].origin
    numbers = {role: scalars[name] for role, name, _ in roles.scalars}
    assert problem.selected is not None
    values = _listed(problem.selected.values, roles, call.sorted_keys)

    def run(capacity: int) -> Selection:
        elements = {name: x.dtype for name, x in problem.result_arrays.items()}
        counter = elements.pop(SelectValues.COUNT)
        out = {name: np.empty(capacity, element.numpy) for name, element in elements.items()}
        out[SelectValues.COUNT] = np.zeros(1, counter.numpy)
        if problem.results:
            all_numbers = {**numbers, SelectValues.CAPACITY.name: capacity}
            arrays = {**given, **out}
            exact = exact_calls.compute_on_host(problem, arrays, all_numbers)
            out = exact or on_host.compute_on_host(problem, arrays, scalars=all_numbers)
        count = int(out[SelectValues.COUNT][0])
        lists = []
        for name, element in elements.items():
            made = new_arrays.empty_array(origin, (min(count, capacity),), element)
            as_numpy(tensor(made, name))[...] = out[name][:count]
            lists.append(new_arrays.result_of(made, origin))
        return Selection(values, lists, _Count(count), capacity)

    return _Lists(problem, run)


def _device_lists(
    roles: Roles,
    arrays: Mapping[str, View],
    scalars: Mapping[str, float],
    extents: Mapping[str, int],
    own: Mapping[str, Any],
    options: Options,
    call: task_call.Options,
) -> _Lists:
    """The lists of a call on a GPU. The host reads the count, unless the stream is being captured. ``own``: further
    fields of the problem."""
    from ptxgen.api import exact_calls

    first = arrays[roles.use("A").name]
    on, stream = drivers.driver_of(first), streams.current_stream(first.origin)
    drivers.require_device(on, **arrays)
    captured = streams.is_captured(stream, on)
    if captured and (options.overflow != TRUNCATE or options.sorted):
        rule = "sorted must be False, and overflow" if options.sorted else "overflow"
        raise InputError(f"overflow is {options.overflow!r} during a CUDA graph capture; {rule} must be 'truncate'")
    problem, views = task_call.problem_of(roles, arrays, None, extents, **own)
    numbers = {role: scalars[name] for role, name, _ in roles.scalars}
    given = {role: call.names.get(name, name) for role, name, _ in roles.scalars}
    assert problem.selected is not None
    values, recording = _listed(problem.selected.values, roles, call.sorted_keys), call.recording
    if exact_calls.may_filter(problem, on):
        recording.refuse()

    def run(capacity: int) -> Selection:
        made, results = {}, dict(views)
        for name, x in problem.result_arrays.items():
            shape, element = ((2,), DTYPES["s32"]) if name == SelectValues.COUNT else ((max(capacity, 1),), x.dtype)
            made[name] = recording.empty_array(first.origin, shape, element)
            results[name] = tensor(made[name], name)
        size = {SelectValues.CAPACITY.name: capacity}
        with streams.ordered(on, stream, views.values()):
            if captured or not exact_calls.compute_on_device(
                problem, results, {**numbers, **size}, first.origin, on, stream
            ):
                runner = runners.runner_for(problem, stream, on)
                launch = launch_function.make_launch(runner, scalars={**numbers, **size})
                launch(tuple(results[name].address for name in problem.arrays), stream)
                recording.launched(launch, runner, [results[name] for name in problem.arrays], {**given, **size})
        count = made.pop(SelectValues.COUNT)
        recording.returns((count, *made.values()), partial(_repeated, on, values, capacity, options, extents["j"]))
        read: Callable[[], int] = _DeviceCount(on, results[SelectValues.COUNT].address, count)
        if not captured:
            on.wait(stream)
            read = _Count(read())
        lists = [new_arrays.result_of(x, first.origin) for x in made.values()]
        return Selection(values, lists, read, capacity)

    return _Lists(problem, run)


def _repeated(
    on: Driver, values: tuple[Node, ...], capacity: int, options: Options, columns: int, count: Any, *lists: Any
) -> Selection | None:
    """The result of a repeated call, whose launches are queued. ``count``: an array with the number of results;
    ``columns``: the extent of j. None: the lists were too short, so the call must be made as a new one."""
    stream = streams.current_stream(count)
    read: Callable[[], int] = _DeviceCount(on, count.data_ptr(), count)
    if not streams.is_captured(stream, on):
        on.wait(stream)
        read = _Count(read())
        if options.overflow != TRUNCATE and read.count > capacity:
            return None
    elif options.overflow != TRUNCATE or options.sorted:
        return None
    selected = Selection(values, lists, read, capacity)
    return _sorted(selected, columns) if options.sorted else selected


def _sorted(selected: Selection, columns: int) -> Selection:
    """The same results in the order of (i, j); the library of the lists sorts them."""
    torch = hasattr(selected.i, "new_empty")
    i, j = (x.long() if torch else x.astype("int64") for x in (selected.i, selected.j))
    order = (i * columns + j).argsort()
    lists = [x[: len(selected)][order] for x in selected._lists]
    return Selection(selected._values, lists, _Count(selected.count), len(selected))
