"""One call of a task on arrays: extents, problem, results, launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ptxgen.api import drivers, launch_function, new_arrays, on_host, runners, streams, task_groups, task_launches
from ptxgen.api.arrays import (
    View,
    alignment_of,
    as_numpy,
    is_cupy,
    matrix_layout,
    require_disjoint,
    require_same_memory,
    tensor,
)
from ptxgen.api.task_joins import DeviceOrder, HostOrder, Order
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.expr.node import Node
from ptxgen.expr.value_types import PRED
from ptxgen.lowering.aggregate import REJECTED
from ptxgen.operations.task import exact_filter, joins
from ptxgen.operations.task.fast_distances import COLUMNS, ROWS, FastDistance, fast_compute, fast_distance
from ptxgen.operations.task.group_sums import GroupSums, group_sums, pays
from ptxgen.operations.task.joins import Join, join_of
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.program import AXES, Aggregate, Program, RowReduce, Scatter, Store
from ptxgen.operations.task.roles import Roles, Use, roles_of
from ptxgen.operations.task.symmetry import joined
from ptxgen.problem.dtypes import dtype

#: values of ``Options.precision``
EXACT, FAST = "exact", "fast"


@dataclass(frozen=True)
class Options:
    """The options of a call besides its arrays. ``groups``: rows and columns of a result in groups; None: those of
    ``out``, or as many as the keys need; ``deterministic``: results must not depend on timing; ``algebra``: the program
    may be rewritten by laws that hold for finite numbers; ``compute``: the arithmetic of products; empty: that of the
    reduction's type; ``precision``: exact, or fast: squares of differences may be computed as products. ``recording``:
    records the launches for later calls; ``names``: a number of the program -> the argument of the call, or the
    constant, that gives its value; ``sorted_keys``: the key arrays that ``when`` compares are in ascending order."""

    groups: tuple[int, int] | None = None
    deterministic: bool = False
    algebra: bool = True
    compute: str = ""
    precision: str = EXACT
    recording: task_launches.NotRecorded = field(default=task_launches.NOT_RECORDED, compare=False)
    names: Mapping[str, Any] = field(default_factory=dict, compare=False)
    sorted_keys: bool = False

    def with_roles(self, roles: Roles, **changes: Any) -> Options:
        """The same options for another program, whose numbers are named by the roles that ``roles`` gives to those of
        this call."""
        return replace(self, names={role: self.names.get(name, name) for role, name, _ in roles.scalars}, **changes)

    @property
    def fields(self) -> dict[str, Any]:
        """The options that are fields of a problem."""
        return {name: getattr(self, name) for name in ("deterministic", "algebra", "compute", "sorted_keys")}


def call(
    program: Program,
    arrays: Mapping[str, View],
    scalars: Mapping[str, float],
    out: Any,
    arguments: Mapping[str, str],
    options: Options = Options(),
) -> Any:
    """The result of a program. ``arrays``, ``scalars``: by name in the program; ``arguments``: the names of arrays in
    error messages, if other than in the program. Results that are conditions are truth values; their ``out`` has dtype
    bool or uint8.

    ShapeError, DtypeError, InputError: an argument breaks a rule."""
    program = with_one_array(program, arrays, options.recording) if options.algebra else program
    roles = roles_of(program)
    first = first_array(roles, arrays, arguments)
    output = program.outputs[0]
    batch = batch_of(roles, arrays) if isinstance(output, Store) else ()
    extents = roles.extents(extents_of(program, arrays, arguments, roles.tiles if batch else ()))
    groups, recording = task_groups.extents_of(output, arrays, extents, out, options.groups), options.recording
    if groups and out is None and options.groups is None:
        recording.refuse()  # it has read the keys
    shape = (*batch, *task_groups.result_shape(output, extents, groups))
    element, truth = dtype(Task.result_type(program)), isinstance(output, Store) and is_truth(output.value)
    stored = recording.empty_array(first.origin, shape, element) if out is None else out
    if truth and out is not None and new_arrays.is_truth(out):
        stored = recording.part(new_arrays.as_bytes(out), out)
    result = out if out is not None else recording.part(new_arrays.as_truth(stored), stored) if truth else stored
    vc = tensor(stored, "out")
    if vc.shape != shape:
        what = "the groups" if groups else "the extents of its axes"
        raise ShapeError(f"out has shape {vc.shape}; it must be {shape}, {what}")
    if vc.dtype is not element:
        raise DtypeError(f"out is {vc.dtype}; it must be {element}, the type of the result")
    named = {arguments.get(name, name): v for name, v in arrays.items()}
    require_one_memory({**named, "out": vc})
    require_disjoint(vc, **named)
    sums = group_sums(roles) if groups and options.algebra else None
    if sums is not None and groups and pays(extents, groups) and _can_sum_groups(sums, arrays, groups):
        _call_by_sums(sums, roles, arrays, scalars, stored, extents["k"], groups, options)
        return result
    fast = fast_distance(roles) if options.precision == FAST and not batch else None
    options = with_fast_compute(options, roles, extents, first)
    if fast is not None and extents["k"]:
        views = with_squares(fast, roles, arrays, recording)
        own_numbers = {role: scalars[name] for role, name, _ in roles.scalars}
        exact = options.with_roles(roles, groups=groups, precision=EXACT)
        call(fast.program, views, own_numbers, stored, {}, exact)
        return result
    join = join_for(roles, arrays, extents, options) if not batch else None
    if join is not None and is_packed(vc):
        _call_join(join, roles, arrays, scalars, stored, groups or shape, options)
        return result
    own: dict[str, Any] = options.fields
    own |= {"groups": f"{groups[0]},{groups[1]}"} if groups else {}
    own |= {"batch": batch[0], **batch_strides(roles, arrays)} if batch and batch[0] != 1 else {}
    if first.host:
        _compute_on_host(roles, arrays, scalars, vc, extents, own)
        return result
    on = drivers.driver_of(first)
    drivers.require_device(on, out=vc, **named)
    if 0 in shape:
        return result
    problem, views = problem_of(roles, arrays, vc, extents, **own)
    if REJECTED in problem.outputs:
        counter = recording.empty_array(first.origin, (2,), dtype("s32"))  # 64 bits
        views[REJECTED] = tensor(counter, REJECTED)
    stream = streams.current_stream(first.origin)
    numbers = {role: scalars[name] for role, name, _ in roles.scalars}
    if may_filter(problem) and not streams.is_captured(stream, on):
        from ptxgen.api import exact_calls  # most tasks have no filter

        if exact_calls.may_filter(problem, on):
            recording.refuse()
        with streams.ordered(on, stream, views.values()):
            if exact_calls.compute_on_device(problem, views, numbers, first.origin, on, stream):
                return result
    runner = runners.runner_for(problem, stream, on)
    launch = launch_function.make_launch(runner, scalars=numbers)
    with streams.ordered(on, stream, views.values()):
        launch(tuple(views[name].address for name in problem.arrays), stream)
    given = {role: options.names.get(name, name) for role, name, _ in roles.scalars}
    recording.launched(launch, runner, [views[name] for name in problem.arrays], given)
    return result


def may_filter(problem: Task) -> bool:
    """True if tensor cores may select the candidates of a reduction of rows (``exact_nearest``)."""
    return isinstance(problem.program.outputs[0], RowReduce) and problem.flops >= 2 * exact_filter.LEAST


def _can_sum_groups(sums: GroupSums, arrays: Mapping[str, View], groups: tuple[int, int]) -> bool:
    """True if the call can compute sums in groups by the intermediate sums of ``GroupSums``: the library of the
    operands can hold these in arrays, also during a graph capture. Host keys must be in range, because pairs with other
    keys must be counted."""
    first = arrays[sums.rows.array]
    if first.host:
        keys = [as_numpy(arrays[x.key]) for x in (sums.rows, sums.columns)]
        return all(key.min() >= 0 and key.max() < n for key, n in zip(keys, groups, strict=True))
    return can_allocate(first)


def join_for(roles: Roles, arrays: Mapping[str, View], extents: Mapping[str, int], options: Options) -> Join | None:
    """The natural join that a call computes; None: the call computes all pairs."""
    ordered = options.deterministic and isinstance(roles.program.outputs[0], Aggregate)
    if not options.algebra or options.sorted_keys or ordered:
        return None
    join = join_of(roles)
    pays = join is not None and joins.pays(roles, extents, options.compute)
    return join if pays and can_allocate(arrays[roles.use("A").name]) else None


def order_of(join: Join, roles: Roles, arrays: Mapping[str, View], options: Options) -> Order:
    """The arrays of a join, permuted to the order of keys."""
    first, recording = arrays[roles.use("A").name], options.recording
    if first.host:
        return HostOrder(join, roles, arrays)

    def compute(program: Program, given: dict[str, View], out: Any, groups: tuple[int, int] | None) -> None:
        shape = groups or (given[joins.VALUES].shape * 2)
        inputs = {**without_elements(program, first.origin, recording, *shape), **given}
        call(program, inputs, {}, out, {}, Options(groups, recording=recording))

    empty = partial(recording.empty_array, first.origin)
    return DeviceOrder(join, roles, arrays, compute, empty, recording.part)


def _call_join(
    join: Join,
    roles: Roles,
    arrays: Mapping[str, View],
    scalars: Mapping[str, float],
    out: Any,
    groups: tuple[int, ...],
    options: Options,
) -> None:
    """Computes a join into ``out``. ``groups``: rows and columns of a result in groups."""
    order, origin = order_of(join, roles, arrays, options), arrays[roles.use("A").name].origin
    numbers = {role: scalars[name] for role, name, _ in roles.scalars}
    keyed = groups if len(groups) == 2 else None
    options = options.with_roles(roles, groups=keyed, sorted_keys=True)
    if not join.scattered:
        call(join.program, order.arrays, numbers, out, {}, options)
        return
    v = tensor(out, "out")
    made = options.recording.empty_array(origin, v.shape, v.dtype)
    call(join.program, order.arrays, numbers, made, {}, options)
    order.restored(made, join.scattered, out)


def can_allocate(v: View) -> bool:
    """True if a call can hold intermediate results in arrays of the library of ``v``, also during a graph capture."""
    if v.host or hasattr(
        v.origin, "new_empty"
    ):  # PyTorch keeps memory that is allocated during a capture for the graph
        return True
    return is_cupy(v.origin) and not streams.is_captured(streams.current_stream(v.origin), drivers.driver_of(v))


def _call_by_sums(
    sums: GroupSums,
    roles: Roles,
    arrays: Mapping[str, View],
    scalars: Mapping[str, float],
    out: Any,
    k: int,
    groups: tuple[int, int],
    options: Options,
) -> None:
    """Computes sums in groups by three calls: the sums of each operand, and their product."""
    origin, operands, recording = arrays[sums.rows.array].origin, dict[str, View](), options.recording
    options = replace(options, compute="")  # it takes few products
    for role, each, n in zip("AB", (sums.rows, sums.columns), groups, strict=True):
        x, element, shape = arrays[each.array], dtype(each.program.accumulator), each.shape(n, k)
        made = recording.empty_array(origin, shape, element)
        inputs = {**without_elements(each.program, origin, recording, *x.shape), "X": x, "key": arrays[each.key]}
        call(each.program, inputs, {}, made, {}, replace(options, groups=shape))
        operands[role] = tensor(made, role)
    numbers = {role: scalars[name] for role, name, _ in roles.scalars}
    options = replace(options, groups=None)
    zeros, product = sums.products(groups)
    if zeros is not None:
        call(zeros, without_elements(zeros, origin, recording, *groups), {}, out, {}, options)
    call(product, operands, numbers, out, {}, options.with_roles(roles))


def with_one_array(
    program: Program, arrays: Mapping[str, View], recording: task_launches.NotRecorded = task_launches.NOT_RECORDED
) -> Program:
    """The program rewritten to read one array if its operands A and B are the same array (or its transpose) under two
    names; else ``program`` itself."""
    roles = roles_of(program)
    a, b = (roles.use(role) for role in "AB")
    if a.name == b.name:
        return program
    x, y = arrays[a.name], arrays[b.name]
    if (x.address, x.dtype, x.host) != (y.address, y.dtype, y.host):
        return program
    transposed = a.axes.index("k") != b.axes.index("k")
    shape, strides = (v[::-1] if transposed and len(v) == 2 else v for v in (y.shape, y.strides))
    if (x.shape, x.strides) != (shape, strides) or (transposed and len(x.shape) > 2):
        return program
    recording.same(x.origin, y.origin)
    return joined(program, transposed)


def without_elements(
    program: Program, origin: Any, recording: task_launches.NotRecorded, m: int, n: int
) -> dict[str, View]:
    """Operands A (m×0) and B (0×n) of a program, without elements."""
    extents, empty = {"i": m, "j": n, "k": 0}, dict[str, View]()
    for x in program.inputs[:2]:
        shape = tuple(extents[axis] for axis in x.uses[0])
        empty[x.name] = tensor(recording.empty_array(origin, shape, dtype(x.dtype)), x.name)
    return empty


def with_fast_compute(options: Options, roles: Roles, extents: Mapping[str, int], first: View) -> Options:
    """The options with the ``compute`` that ``precision`` allows for a program, or for its fast distance."""
    if options.precision != FAST or options.compute:
        return options
    fast = fast_distance(roles)
    m, n, k = (extents[axis] for axis in AXES)
    product = roles if fast is None else roles_of(fast.program)
    return replace(options, compute=fast_compute(product, (m, n, k), drivers.driver_of(first).device))


def with_squares(
    fast: FastDistance, roles: Roles, arrays: Mapping[str, View], recording: task_launches.NotRecorded
) -> dict[str, View]:
    """The arrays of a call by role, with the sums of squares of the rows of A and of the columns of B, which are
    computed now."""
    by_role = {u.role: arrays[u.name] for u in roles.uses}
    for name, role, each in ((ROWS, "A", fast.rows), (COLUMNS, "B", fast.columns)):
        x = by_role[role]
        made = recording.empty_array(x.origin, (x.shape[not each.by_rows],), dtype(each.program.accumulator))
        inputs = {**without_elements(each.program, x.origin, recording, *x.shape), "X": x}
        call(each.program, inputs, {}, made, {}, Options(recording=recording))
        by_role[name] = tensor(made, name)
    return by_role


def first_array(roles: Roles, arrays: Mapping[str, View], arguments: Mapping[str, str]) -> View:
    """The array whose library and device the call uses. InputError: arrays are in different memory."""
    require_one_memory({arguments.get(name, name): v for name, v in arrays.items()})
    return arrays[roles.use("A").name]


def batch_of(roles: Roles, arrays: Mapping[str, View]) -> tuple[int, ...]:
    """The extent of the batch, which is the first axis of A, of B or of both; empty: there is none. ShapeError: A and B
    have different batch extents, neither of them 1."""
    counts = {name: arrays[name].shape[0] for name in roles.tiles if len(arrays[name].shape) == 3}
    several = {n for n in counts.values() if n != 1}
    if len(several) > 1:
        (one, m), (other, n) = counts.items()
        raise ShapeError(f"{one} has a batch of {m} and {other} one of {n}; they must be equal, or one of them 1")
    return (several.pop() if several else 1,) if counts else ()


def batch_strides(roles: Roles, arrays: Mapping[str, View]) -> dict[str, int]:
    """The problem fields ``stride_a`` and ``stride_b``: 0 for an operand that all items of the batch share. Operands
    with contiguous items need no field."""
    views = {f"stride_{role.lower()}": arrays[roles.use(role).name] for role in "AB"}
    return {field: 0 for field, v in views.items() if len(v.shape) == 2 or v.shape[0] == 1}


def require_one_memory(named: Mapping[str, View]) -> None:
    """InputError: arrays are in different memory."""
    (first, one), *others = named.items()
    for name, v in others:
        require_same_memory(name, v, first, one)


def is_truth(value: Node) -> bool:
    """True if a value is a condition, which is stored as 0 or 1."""
    return value.type == PRED or (value.op == "cast" and value.type == "u8" and value.arguments[0].type == PRED)


def extents_of(
    program: Program, arrays: Mapping[str, View], arguments: Mapping[str, str], batched: Sequence[str] = ()
) -> dict[str, int]:
    """The extents of i, j and k. ``arguments``: as in ``call``; ``batched``: the arrays that may have a batch as their
    first axis. ShapeError: the arrays disagree, or have another number of dimensions."""
    extents: dict[str, tuple[int, str]] = {}
    for x in program.inputs:
        name = arguments.get(x.name, x.name)
        for axes in x.uses:
            shape = arrays[x.name].shape
            if x.name in batched and len(shape) == len(axes) + 1:
                shape = shape[1:]
            if len(shape) != len(axes):
                raise ShapeError(
                    f"{name} has shape {shape}; the task reads {name}[{','.join(axes)}], so it must have"
                    f" {len(axes)} dimension{'s' if len(axes) > 1 else ''}"
                )
            for axis, n in zip(axes, shape, strict=True):
                known, by = extents.setdefault(axis, (n, name))
                if known != n:
                    raise ShapeError(
                        f"axis {axis} has the extent {known} in {by} and {n} in {name}; they must be equal"
                    )
    return {axis: extents[axis][0] for axis in AXES}


def problem_of(
    roles: Roles, arrays: Mapping[str, View], out: View | None, extents: Mapping[str, int], **named: Any
) -> tuple[Task, dict[str, View]]:
    """The pair (the problem of a call on a GPU, its arrays by role). ``out``: the matrix C; None: the output is not a
    matrix; ``named``: further fields. ShapeError: an array has strides that no kernel reads."""
    views = {u.role: _contiguous(arrays[u.name], u) for u in roles.others}
    fields: dict[str, Any] = dict(zip(("m", "n", "k"), (extents[axis] for axis in AXES), strict=True))
    layout = ""
    for role in "AB":
        v, use = arrays[roles.use(role).name], roles.use(role)
        if matrix_layout(v) is None:
            v = _copied(v, use.name)
        letter, ld = matrix_layout(v) or ("N", 0)
        if use.axes != (("i", "k") if role == "A" else ("k", "j")):
            letter = "T" if letter == "N" else "N"
        layout += letter
        if len(v.shape) == 3 and v.shape[0] != 1:
            fields[f"stride_{role.lower()}"] = v.strides[0]
        fields |= {f"ld{role.lower()}": ld, f"aligned_{role.lower()}": alignment_of(v.address)}
        views[role] = v
    if out is not None:
        views["C"] = out
    if out is not None and isinstance(roles.program.outputs[0], Aggregate | RowReduce | Scatter):
        if not is_packed(out):
            raise ShapeError(f"out has strides {out.strides}; its elements must be consecutive")
    elif out is not None:
        c_layout = matrix_layout(out)
        if c_layout is None or c_layout[0] != "N":
            raise ShapeError(f"out has strides {out.strides}; its rows must be contiguous")
        fields |= {"ldc": c_layout[1], "aligned_c": alignment_of(out.address)}
        if len(out.shape) == 3 and out.shape[0] != 1:
            fields["stride_c"] = out.strides[0]
    return Task(layout=layout, dtype="", text=Task.text_of(roles), **{**fields, **named}), views


def is_packed(v: View) -> bool:
    """True if the elements of an array are consecutive in memory."""
    packed = [1]
    for n in reversed(v.shape[1:]):
        packed.append(packed[-1] * n)
    return all(n == 1 or a == b for n, a, b in zip(v.shape, v.strides, reversed(packed), strict=True))


def _contiguous(v: View, use: Use) -> View:
    """The array of a use in expressions, copied if its elements are not consecutive."""
    return v if is_packed(v) else _copied(v, use.name)


def _copied(v: View, name: str) -> View:
    """A copy of ``v`` with consecutive elements. ShapeError: the library of the array makes no copies."""
    copy = getattr(v.origin, "contiguous", None) or getattr(v.origin, "copy", None)
    if copy is None:
        raise ShapeError(f"{name} has strides {v.strides}; its elements must be consecutive")
    return tensor(copy(), name)


def _compute_on_host(
    roles: Roles,
    arrays: Mapping[str, View],
    scalars: Mapping[str, float],
    out: View,
    extents: Mapping[str, int],
    own: Mapping[str, Any],
) -> None:
    """Copies host arrays to the device, computes there, and copies the result back. ``own``: further fields of the
    problem. InputError: keys are out of range."""
    into = as_numpy(out)
    if 0 in into.shape:
        return
    problem, given = host_problem(roles, arrays, extents, **own)
    given |= {name: np.empty(x.shape, x.dtype.numpy) for name, x in problem.result_arrays.items()}
    if isinstance(roles.program.outputs[0], Scatter) or (roles.program.when is not None and problem.stores_pairs):
        given["C"][...] = into  # elements without a pair keep their values
    numbers = {role: scalars[name] for role, name, _ in roles.scalars}
    done = None
    if may_filter(problem):
        from ptxgen.api import exact_calls  # most tasks have no filter

        done = exact_calls.compute_on_host(problem, given, numbers)
    done = done or on_host.compute_on_host(problem, given, scalars=numbers)
    into[...] = done["C"]
    if (rejected := int(done[REJECTED][0]) if REJECTED in done else 0) > 0:
        rows, columns = problem.group_extents
        raise InputError(
            f"{rejected} pairs (i, j) have keys out of range; keys of rows must be from 0 to {rows - 1}, those of"
            f" columns from 0 to {columns - 1}"
        )


def host_problem(
    roles: Roles, arrays: Mapping[str, View], extents: Mapping[str, int], **named: Any
) -> tuple[Task, dict[str, Any]]:
    """The pair (the problem of a call on host arrays, its inputs by role). ``named``: further fields."""
    given = {u.role: np.ascontiguousarray(as_numpy(arrays[u.name])) for u in roles.uses}
    m, n, k = (extents[axis] for axis in AXES)
    return Task(m, n, k, roles.layout, "", text=Task.text_of(roles), **named), given
