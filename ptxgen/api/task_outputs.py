"""Calls of tasks with one or several outputs, on matrices or on batches."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ptxgen.api import distinct_calls, new_arrays, selection, task_call, task_groups, task_launches, top_calls
from ptxgen.api.arrays import View, is_cupy, require_disjoint, tensor
from ptxgen.arguments import closest, shown
from ptxgen.errors import InputError, ShapeError
from ptxgen.operations.task import several
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.program import AXES, Aggregate, Distinct, Output, Program, Scatter, Select, Store, Top
from ptxgen.operations.task.roles import roles_of
from ptxgen.problem.dtypes import dtype


@dataclass(frozen=True)
class Options:
    """The options of a call. ``call``: those of results that are arrays; ``groups``: as in ``task_call.Options``, or a
    mapping by output; ``lists``: those of lists."""

    call: task_call.Options
    groups: Any
    lists: selection.Options


def results(
    program: Program, arrays: Mapping[str, View], scalars: Mapping[str, Any], out: Any, options: Options
) -> Any:
    """The result of a program with one output, or a named tuple with the result of each output. ``out``: the array of
    the result, or arrays by output.

    ShapeError, DtypeError, InputError: an argument breaks a rule."""
    lists = [x.name for x in program.outputs if isinstance(x, Select)]
    if not lists and options.lists != selection.Options():
        raise InputError("capacity, overflow and sorted are for tasks with lists; this one has none")
    if len(program.outputs) > 1:
        return _several(program, arrays, scalars, out, options)
    output, groups = program.outputs[0], options.groups
    if lists:
        if out is not None:
            raise InputError("out is given; a task with lists makes them, and takes capacity")
        if groups is not None:
            raise InputError(f"groups is {shown(groups)}; it must be None for a task with lists")
    if isinstance(output, Distinct) and out is not None:
        raise InputError("out is given; it must be None for a task with distinct, which makes its lists")
    if isinstance(output, Top):
        for name, given in (("out", out), ("groups", groups)):
            if given is not None:
                raise InputError(
                    f"{name} is given; it must be None for a task with top or bottom, which makes its arrays"
                )
    return _one(program, output, arrays, scalars, out, options)


def _one(
    program: Program, output: Output, arrays: Mapping[str, View], scalars: Mapping[str, Any], out: Any, options: Options
) -> Any:
    """The result of a program with one output. ``arrays``: the inputs by name; arrays that the program does not read
    may be among them."""
    arrays = {x.name: arrays[x.name] for x in program.inputs if x.uses}
    how = replace(options.call, groups=options.groups)
    batch = () if isinstance(output, Store) else task_call.batch_of(roles_of(program), arrays)
    if isinstance(output, Select | Top | Distinct):
        items = [arrays] if not batch else [_item(program, arrays, n, how.recording) for n in range(batch[0])]
        if batch:
            how.recording.refuse()
    if isinstance(output, Select):
        made = [selection.select(program, each, scalars, {}, options.lists, how) for each in items]
        return tuple(made) if batch else made[0]
    if isinstance(output, Distinct):
        pairs = [distinct_calls.distinct(program, each, scalars, how) for each in items]
        return tuple(pairs) if batch else pairs[0]
    if isinstance(output, Top):
        best = [top_calls.best(program, each, scalars, how) for each in items]
        return tuple(best) if batch else best[0]
    if batch:
        return _reduced_items(program, output, arrays, scalars, out, options, batch[0])
    result = task_call.call(program, arrays, scalars, out, {}, how)
    return result if out is not None else new_arrays.result_of(result, next(iter(arrays.values())).origin)


# ---- batches


def _item(
    program: Program, arrays: Mapping[str, View], n: int, recording: task_launches.NotRecorded
) -> dict[str, View]:
    """The arrays of item ``n`` of a batch."""
    item = dict(arrays)
    for name in roles_of(program).tiles:
        v = arrays[name]
        if len(v.shape) == 3:
            item[name] = tensor(recording.part(v.origin[n if v.shape[0] != 1 else 0], v.origin), name)
    return item


def _reduced_items(
    program: Program,
    output: Output,
    arrays: Mapping[str, View],
    scalars: Mapping[str, Any],
    out: Any,
    options: Options,
    count: int,
) -> Any:
    """The results of all items of a batch whose output reduces rows or columns; the first axis of the array is the
    batch."""
    roles, how, first = roles_of(program), options.call, next(iter(arrays.values()))
    extents = roles.extents(task_call.extents_of(program, arrays, {}, roles.tiles))
    shape = None if out is None else tensor(out, "out").shape
    groups = options.groups
    if shape is not None and groups is None and isinstance(output, Aggregate | Scatter) and len(shape) == 3:
        groups = (shape[1], shape[2])
    if groups is None or not isinstance(output, Aggregate | Scatter):
        groups = task_groups.extents_of(output, arrays, extents, None, groups)
        if groups and options.groups is None:
            how.recording.refuse()  # it has read the keys
    wanted = (count, *task_groups.result_shape(output, extents, groups))
    if shape is not None and shape != wanted:
        raise ShapeError(f"out has shape {shape}; it must be {wanted}, the batch and the result of an item")
    each, recording = replace(how, groups=groups), how.recording
    items = [_item(program, arrays, n, recording) for n in range(count)]
    if not _has_views(first.origin if out is None else out):
        if out is not None or not items:
            raise InputError(f"the arrays are of {_library(first)}; with a batch, out must be None, and an item exist")
        origin = first.origin
        made = [new_arrays.result_of(task_call.call(program, x, scalars, None, {}, each), origin) for x in items]
        return origin.__array_namespace__().stack(made)
    element = dtype(Task.result_type(program))
    stored = out if out is not None else recording.empty_array(first.origin, wanted, element)
    for n, item in enumerate(items):
        task_call.call(program, item, scalars, recording.part(stored[n], stored), {}, each)
    return stored


def _has_views(x: Any) -> bool:
    """True if indexing the array along its first axis gives a view of its memory, as in NumPy, PyTorch and CuPy."""
    return isinstance(x, np.ndarray) or hasattr(x, "new_empty") or is_cupy(x)


def _library(v: View) -> str:
    return type(v.origin).__module__.partition(".")[0]


# ---- several outputs


@lru_cache(maxsize=256)
def results_type(names: tuple[str, ...]) -> Any:
    """The named tuple type for the results of several outputs."""
    return namedtuple("Results", names, rename=True)


def _several(
    program: Program, arrays: Mapping[str, View], scalars: Mapping[str, Any], out: Any, options: Options
) -> Any:
    """The results of several outputs, a named tuple."""
    names = tuple(x.name for x in program.outputs)
    given = _by_output("out", out, names, "arrays by output")
    groups = options.groups
    keyed = [x.name for x in program.outputs if isinstance(x, Aggregate | Distinct | Scatter)]
    if groups is not None and not isinstance(groups, Mapping):
        if not keyed:
            raise InputError(f"groups is {shown(groups)}; it must be None where no keys select elements of a result")
        groups = dict.fromkeys(keyed, groups)
    extents_by = _by_output("groups", groups, names, "(G, H), or these by output")
    _check_arrays(program, arrays, given)
    if any(isinstance(x, Select) for x in program.outputs):
        options.call.recording.refuse()
    made: dict[str, Any] = {}

    def compute(each: Program, output: Output, of: Mapping[str, View], numbers: Mapping[str, Any], how: Any) -> Any:
        own = replace(options, call=how, groups=extents_by.get(output.name))
        return _one(each, output, of, numbers, given.get(output.name), own)

    matrix = _reduction(program, arrays, scalars, options, compute, made)
    for output in program.outputs:
        if output.name in made:
            continue
        if matrix is None:
            each, of, numbers = several.single(program, output), arrays, scalars
        else:
            each = several.reading(program, output)
            of, numbers = {**arrays, **matrix}, {**scalars, several.EXTENT: _extents(program, arrays)["k"]}
        how = options.call
        if matrix is not None:
            how = replace(how, compute="", names={**how.names, several.EXTENT: numbers[several.EXTENT]})
        made[output.name] = compute(each, output, of, numbers, how)
    return results_type(names)(*(made[name] for name in names))


def _extents(program: Program, arrays: Mapping[str, View]) -> dict[str, int]:
    return task_call.extents_of(program, arrays, {}, roles_of(program).tiles)


def _by_output(argument: str, given: Any, names: Iterable[str], rule: str) -> dict[str, Any]:
    """The values of an argument by output. InputError: the argument is no mapping, or names an unknown output."""
    if given is None:
        return {}
    known = list(names)
    if not isinstance(given, Mapping):
        raise InputError(
            f"{argument} is {shown(given)}; the task has the outputs {', '.join(known)}, so it must be {rule}"
        )
    for name in given:
        if name not in known:
            near = closest(str(name), known)
            rule = f"; it must be one of {', '.join(known)}" + (f": write {near}" if near else "")
            raise InputError(f"{argument} has {shown(name)}, which is no output of the task{rule}")
    return {str(name): x for name, x in given.items() if x is not None}


def _check_arrays(program: Program, arrays: Mapping[str, View], given: Mapping[str, Any]) -> None:
    """ShapeError: extents of inputs disagree. InputError: ``out`` has an array for an output of lists, or a result
    shares memory with an input or another result."""
    _extents(program, arrays)
    lists = {x.name for x in program.outputs if isinstance(x, Select)}
    tops = {x.name for x in program.outputs if isinstance(x, Top | Distinct)}
    views: dict[str, View] = {}
    for name, x in given.items():
        if name in lists:
            raise InputError(f"out has {name}, which is a list; the call makes it, and takes capacity")
        if name in tops:
            raise InputError(f"out has {name}, which is of top, bottom or distinct; the call makes its arrays")
        shown_as = f"out[{name!r}]"
        views[shown_as] = tensor(new_arrays.as_bytes(x) if new_arrays.is_truth(x) else x, shown_as)
    for name, v in views.items():
        others = {other: w for other, w in views.items() if other != name}
        task_call.require_one_memory({**arrays, name: v})
        require_disjoint(v, **arrays, **others)


def _reduction(
    program: Program,
    arrays: Mapping[str, View],
    scalars: Mapping[str, Any],
    options: Options,
    compute: Any,
    made: dict[str, Any],
) -> dict[str, View] | None:
    """The arrays that ``several.reading`` reads: operands without elements, and the matrix of the reduction, which is
    computed here. If the matrix is an output of the program, it is also put in ``made``. None: each output computes the
    reduction itself."""
    extents, stored = _extents(program, arrays), several.stored_output(program)
    m, n, k = (extents[axis] for axis in AXES)
    roles = roles_of(program)
    first, element, recording = arrays[roles.use("A").name], dtype(program.accumulator), options.call.recording
    if k < several.LEAST_K or task_call.batch_of(roles, arrays) or not task_call.can_allocate(first):
        return None
    if stored is not None:
        matrix = compute(several.single(program, stored), stored, arrays, scalars, options.call)
        made[stored.name] = matrix
    elif m * n * element.bytes <= several.MOST_BYTES:
        matrix = recording.empty_array(first.origin, (m, n), element)
        each = several.storing(program)
        own = {x.name: arrays[x.name] for x in each.inputs if x.uses}
        task_call.call(each, own, scalars, matrix, {}, options.call)
    else:
        return None
    base = dtype(several.reading(program, program.outputs[0]).accumulator)
    empty = {several.LEFT: (m, 0), several.RIGHT: (0, n)}
    states = {name: recording.empty_array(first.origin, shape, base) for name, shape in empty.items()}
    return {name: tensor(x, name) for name, x in {**states, several.REDUCTION: matrix}.items()}
