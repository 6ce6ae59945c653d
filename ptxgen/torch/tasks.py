"""Tasks on tensors. Their gradients are tasks, too, so that they can be differentiated any number of times.

One operator computes all tasks: the text of the program is an argument.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from types import FunctionType
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from ptxgen.api import task as arrays_task
from ptxgen.api import task_call, task_outputs
from ptxgen.arguments import word
from ptxgen.errors import DeviceError, DtypeError, InputError, ShapeError, TaskError
from ptxgen.expr.node import substituted
from ptxgen.operations.task import gradients, several
from ptxgen.operations.task.assembling import mapped, renamed
from ptxgen.operations.task.group_sums import SUM_TYPES
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.texts import parse
from ptxgen.operations.task.problem import Task as Problem
from ptxgen.operations.task.program import AXES, Input, Program, RowReduce, Store, Top
from ptxgen.operations.task.roles import roles_of
from ptxgen.operations.task.semirings import SEMIRINGS, semiring_program
from ptxgen.problem.dtypes import from_numpy
from ptxgen.torch import launching
from ptxgen.torch.operator import Operator, is_grad_enabled, loop_over_batch, runs_directly

MOST_ARRAYS = 16  #: the most arrays that a task, or one of its gradients, may read
#: element type -> dtype of PyTorch
DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "s32": torch.int32,
    "u32": torch.uint32,
    "s16": torch.int16,
    "u16": torch.uint16,
    "s8": torch.int8,
    "u8": torch.uint8,
}
_TYPES = {torch_dtype: name for name, torch_dtype in DTYPES.items()}


def task(source: str | Callable[..., Any]) -> TaskFunction:
    """Makes a task, written as text or as a Python function, a function of tensors and numbers that has gradients.

    docs/tasks.md describes the language. Results are matrices, rows or columns; several results are a named tuple.
    TaskError: the text breaks a rule of the language; for a Python function, the first call raises the error.
    """
    return TaskFunction(source)


def matmul_over(semiring: str, a: Tensor, b: Tensor) -> Tensor:
    """The product of ``a`` (M×K) and ``b`` (K×N) over a semiring, as ``ptxgen.matmul_over``. ``a`` and ``b`` have
    gradients. Tensors of bool are uint8 but in or_and.

    The gradient of a minimum or maximum goes to the first k at which it occurs; in min_max and max_min, if the two
    elements at this k are equal, half of it to each. TaskError, in the backward step: the semiring is or_and. Other
    errors: as for ``ptxgen.matmul_over``.
    """
    word("semiring", semiring, SEMIRINGS)
    result: Tensor = _matmul_over(semiring)(a, b)
    truth = semiring == "or_and" and all(isinstance(x, Tensor) and x.dtype is torch.bool for x in (a, b))
    return result.view(torch.bool) if truth else result


@lru_cache(maxsize=len(SEMIRINGS))
def _matmul_over(semiring: str) -> TaskFunction:
    return TaskFunction(SemiringTask(semiring))


class SemiringTask:
    """The source of a task that is a product over a semiring."""

    parameters = ("a", "b")
    optional: tuple[str, ...] = ()

    def __init__(self, semiring: str) -> None:
        self.semiring = semiring

    def numbers(self) -> dict[str, Any]:
        """The numbers that the source reads from its surroundings: none."""
        return {}

    def program(self, types: Mapping[str, str | None]) -> Program:
        """The program for arguments of these types. DtypeError: the types differ."""
        a, b = types["a"], types["b"]
        if a != b:
            raise DtypeError(f"a is {a} and b is {b}; they must be the same")
        return renamed(semiring_program(self.semiring, str(a)), {"A": "a", "B": "b"}, {})


class TaskFunction:
    """A task that is called with tensors and numbers, by name or in order.

    Tensors of floats may require gradients; a tensor without dimensions is a number of the task, and may require a
    gradient, too. The gradients are tasks; the gradient of a maximum or minimum over k goes to the first k at which it
    occurs. ``torch.compile`` treats variables that a Python function reads from its surroundings as constants.
    ShapeError, DtypeError, DeviceError, InputError: an argument breaks a rule. TaskError, in the backward step: an
    operator between a tensor that requires a gradient and the result has no derivative; the message names the operator.
    """

    def __init__(self, source: Any, place: FunctionType | None = None) -> None:
        """``source``, ``place``: as for ``ptxgen.api.task.TaskFunction``."""
        self._function = arrays_task.TaskFunction(source, place)
        self._source = self._function.source
        self._key = str(next(_count))  # a number would be symbolic in compiled code
        self._known_outputs = False
        self._prepared: dict[Any, Prepared] = {}
        _functions[self._key] = self

    def __call__(self, *arrays: Any, precision: str = task_call.EXACT, **named: Any) -> Any:
        """The result of the task. ``precision``: "exact", or "fast": sums of squares of differences, and gradients
        whose terms are sums of products, may be computed by matrix products, with errors relative to the magnitude of
        these products."""
        given = {name: as_bytes(x) for name, x in self._function.given(arrays, named, ("precision",)).items()}
        tensors = {name: x for name, x in given.items() if isinstance(x, Tensor)}
        if self._known_outputs and not is_dynamo_compiling() and self._is_direct(tensors):
            return self._function(**given, precision=precision)
        fast = word("precision", precision, (task_call.EXACT, task_call.FAST)) == task_call.FAST
        prepared, numbers = _prepare(self._key, _types(given)), {**dict(_numbers_around(self._key)), **given}
        prepared.check(tensors)
        if prepared.batched(tensors):
            return self._batch(prepared, given, tensors, precision)
        results = _results(prepared, tensors, numbers, fast)
        return results[0] if len(results) == 1 else _forms[prepared.outputs](*results)

    def _is_direct(self, tensors: Mapping[str, Tensor]) -> bool:
        """True if a call needs neither the dispatcher nor gradients."""
        if not runs_directly(*tensors.values()) or (
            is_grad_enabled() and any(x.requires_grad for x in tensors.values())
        ):
            return False
        return all(x.dim() and not x.is_meta for x in tensors.values())

    def _batch(self, prepared: Prepared, given: dict[str, Any], tensors: dict[str, Tensor], precision: str) -> Any:
        """The results of all items of a batch, stacked."""
        ranks = dict(prepared.ranks)
        batched = {name: x for name, x in tensors.items() if x.dim() > ranks[name]}
        counts = {x.shape[0] for x in batched.values() if x.shape[0] != 1}
        if len(counts) > 1:
            sizes = ", ".join(f"{name} a batch of {x.shape[0]}" for name, x in batched.items())
            raise ShapeError(f"the task has {sizes}; they must be equal, or 1")
        items = []
        for n in range(counts.pop() if counts else 1):
            own = {name: x[n if x.shape[0] != 1 else 0] for name, x in batched.items()}
            items.append(self(**{**given, **own}, precision=precision))
        if not items:
            raise ShapeError("the batch has no items; it must have one")
        if len(prepared.programs) == 1:
            return torch.stack(items)
        return _forms[prepared.outputs](*map(torch.stack, zip(*items, strict=True)))

    def prepared(self, types: tuple[tuple[str, str | None], ...]) -> Prepared:
        """The programs for arguments of these types, a pair (name, type) for each argument."""
        key = types, self._source.state() if hasattr(self._source, "state") else None
        if key not in self._prepared:
            program = self._source.program({name: x and x.removeprefix("0-d ") for name, x in types})
            self._prepared[key] = _made(program, types)
            self._known_outputs = True
        return self._prepared[key]

    @property
    def key(self) -> str:
        """The argument of ``result`` and ``best_indices``. The task exists as long as something else refers to it."""
        return self._key

    def best_program(self, types: tuple[tuple[str, str | None], ...]) -> OneProgram:
        """The program of the function ``best_indices`` for arguments of these types."""
        return _one(self._source.program(dict(types)))

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers that the source reads from its surroundings, by name."""
        numbers: dict[str, Any] = self._source.numbers()
        return numbers


class OneProgram(NamedTuple):
    """A program with one output. ``text``: its canonical text; ``arrays``, ``numbers``: the names of its inputs, in
    order."""

    text: str
    arrays: tuple[str, ...]
    numbers: tuple[str, ...]


class Shared(NamedTuple):
    """The programs of several outputs that read one reduction. ``storing``: the program that stores the reduction of
    each pair; ``reading``: the programs of the outputs, None where the output is the reduction itself; ``left``,
    ``right``, ``reduction``, ``extent``: the names of what these programs read besides inputs, as in
    ``operations.task.several``; ``empty``: the type of operands without elements."""

    storing: OneProgram
    reading: tuple[OneProgram | None, ...]
    left: str
    right: str
    reduction: str
    extent: str
    empty: str


class Prepared(NamedTuple):
    """The programs of a task. ``programs``: one for each output; ``shared``: the programs that share one reduction,
    None if there is one output; ``outputs``: the names of the outputs; ``axes``: for each axis an array that has it,
    and the place of the axis from the end of the array's shape; ``ranks``: the arrays and their numbers of dimensions
    without a batch; ``tiles``: the arrays that may have a batch."""

    programs: tuple[OneProgram, ...]
    shared: Shared | None
    outputs: tuple[str, ...]
    axes: tuple[tuple[str, tuple[str, int]], ...]
    ranks: tuple[tuple[str, int], ...]
    tiles: tuple[str, ...]

    def check(self, tensors: Mapping[str, Tensor]) -> None:
        """Raises ShapeError if a tensor with dimensions is given for a number of the task."""
        for name, x in tensors.items():
            if name in self.programs[0].numbers:
                raise ShapeError(f"{name} has shape {tuple(x.shape)}; it must be a number, or have no dimensions")

    def extent(self, axis: str, tensors: Mapping[str, Tensor]) -> int:
        """The extent of an axis; 0 if its array has a wrong number of dimensions, for which the operator raises the
        error."""
        name, place = dict(self.axes)[axis]
        return tensors[name].shape[-1 - place] if tensors[name].dim() == dict(self.ranks)[name] else 0

    def batched(self, tensors: Mapping[str, Tensor]) -> bool:
        """True if a tensor has a batch axis."""
        ranks = dict(self.ranks)
        return any(name in tensors and tensors[name].dim() == ranks[name] + 1 for name in self.tiles)


def result(key: str, given: dict[str, Any], fast: bool) -> Tensor:
    """The result of a task with one output, without a batch. ``key``: ``TaskFunction.key``; ``given``: the arguments by
    name. In compiled code, unlike the task, its key may come from a function of constants."""
    tensors = {name: x for name, x in given.items() if isinstance(x, Tensor)}
    return _results(_prepare(key, _types(given)), tensors, {**dict(_numbers_around(key)), **given}, fast)[0]


def best_indices(key: str, n: int, given: dict[str, Any], fast: bool) -> Tensor:
    """The indices of the n best values of each row or column, int32, for a task whose output is a list of these; -1
    where there are fewer. The other arguments are those of ``result``; n is one of ``given``, too."""
    program, known = _prepare_best(key, _types(given)), {**dict(_numbers_around(key)), **given}
    return _run(BEST, program.text, [known[x] for x in program.arrays], [known[x] for x in program.numbers], n, fast)


def _types(given: Mapping[str, Any]) -> tuple[tuple[str, str | None], ...]:
    return tuple([(name, element_type(name, x)) for name, x in given.items()])


_count = itertools.count()
#: tasks by their keys, which are constants in compiled code
_functions: WeakValueDictionary[str, TaskFunction] = WeakValueDictionary()
#: names of several outputs -> the class of the named tuple of their results
_forms: dict[tuple[str, ...], Callable[..., Any]] = {}


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _prepare(key: str, types: tuple[tuple[str, str | None], ...]) -> Prepared:
    return _functions[key].prepared(types)


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _prepare_best(key: str, types: tuple[tuple[str, str | None], ...]) -> OneProgram:
    return _functions[key].best_program(types)


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _numbers_around(key: str) -> tuple[tuple[str, Any], ...]:
    return tuple(_functions[key].numbers.items())


def as_bytes(x: Any) -> Any:
    """A tensor of truth values as one of uint8, in the same memory; other arguments as they are."""
    return x.view(torch.uint8) if isinstance(x, Tensor) and x.dtype is torch.bool else x


def element_type(name: str, x: Any) -> str | None:
    """The type of an argument, in the form of the argument of ``prepared``: "0-d f32" for a tensor without dimensions.
    DtypeError: no task has the type."""
    if x is None:
        return None
    if isinstance(x, Tensor):
        if x.dtype not in _TYPES:
            near = f": write {name}.int()" if x.dtype is torch.int64 else ""
            raise DtypeError(f"{name} is {x.dtype}; it must be one of {', '.join(map(str, _TYPES))}{near}")
        return f"0-d {_TYPES[x.dtype]}" if x.dim() == 0 else _TYPES[x.dtype]
    if isinstance(x, np.number):
        return from_numpy(x.dtype, name).name
    if not isinstance(x, int | float):
        raise InputError(f"{name} is of type {type(x).__name__}; it must be a torch.Tensor or a number")
    return "float" if isinstance(x, float) else "int"


def _made(program: Program, types: tuple[tuple[str, str | None], ...]) -> Prepared:
    """The ``Prepared`` of a program for arguments of these types. InputError: an output is not a matrix, a row or a
    column."""
    for output in program.outputs:
        if not isinstance(output, Store | RowReduce):
            what = gradients.DESCRIBED[type(output)]
            raise InputError(
                f"{output.name} is {what}; ptxgen.torch.task has matrices, rows and columns: ptxgen.task has all"
            )
    single = {name for name, type_name in types if type_name is not None and type_name.startswith("0-d ")}
    program = _along_rows(program, single)
    ranks = {x.name: len(x.uses[0]) for x in program.inputs if x.uses}
    places = {
        axis: (x.name, len(axes) - 1 - place)
        for x in program.inputs
        for axes in x.uses
        for place, axis in enumerate(axes)
        if x.name not in single
    }
    outputs = tuple(x.name for x in program.outputs)
    _forms[outputs] = task_outputs.results_type(outputs)
    programs = tuple(_one(several.single(program, output)) for output in program.outputs)
    shared = _shared(program) if len(outputs) > 1 else None
    ranks |= dict.fromkeys(single, 0)
    tiles = roles_of(program).tiles
    return Prepared(programs, shared, outputs, tuple(places.items()), tuple(ranks.items()), tiles)


def _one(program: Program) -> OneProgram:
    return OneProgram(canonical(program), _arrays_of(program), tuple(x.name for x in program.inputs if not x.uses))


def _shared(program: Program) -> Shared:
    taken = [*(x.name for x in program.inputs), *(x.name for x in program.outputs)]
    own = {several.LEFT: "left", several.RIGHT: "right", several.REDUCTION: "reduction", several.EXTENT: "extent"}
    names = {name: free + "_" * sum(x.startswith(free) for x in taken) for name, free in own.items()}
    whole = several.stored_output(program)
    reading = tuple(
        None if x is whole else _one(renamed(several.reading(program, x), names, {})) for x in program.outputs
    )
    storing = renamed(several.storing(program), {}, {several.REDUCTION: names[several.REDUCTION]})
    empty = program.accumulator if program.accumulator in SUM_TYPES else "f32"
    left, right, reduction, extent = names.values()
    return Shared(_one(storing), reading, left, right, reduction, extent, empty)


def _along_rows(program: Program, names: set[str]) -> Program:
    """The program in which the numbers ``names`` are arrays along i."""
    changes = {
        x.name: Input(x.name, x.dtype).variable(("i",)) for x in program.inputs if x.name in names and not x.uses
    }
    return mapped(program, lambda x: substituted(x, changes)) if changes else program


def _results(prepared: Prepared, tensors: dict[str, Tensor], numbers: dict[str, Any], fast: bool) -> tuple[Tensor, ...]:
    """The results of all outputs for tensors without a batch."""
    m, n, k = (prepared.extent(axis, tensors) for axis in AXES)
    given = {name: x.expand(m) if x.dim() == 0 else x for name, x in tensors.items()}

    def computed(each: OneProgram) -> Tensor:
        return _run(TASK, each.text, [given[x] for x in each.arrays], [numbers[x] for x in each.numbers], fast)

    shared = prepared.shared
    if shared is None or k < several.LEAST_K or m * n * DTYPES[shared.empty].itemsize > several.MOST_BYTES:
        return tuple([computed(each) for each in prepared.programs])
    reduction = computed(shared.storing)
    left, right = (reduction.new_empty(shape, dtype=DTYPES[shared.empty]) for shape in ((m, 0), (0, n)))
    given = {**given, shared.left: left, shared.right: right, shared.reduction: reduction}
    numbers = {**numbers, shared.extent: k}
    return tuple([reduction if each is None else computed(each) for each in shared.reading])


def _run(operator: Operator, text: str, arrays: Sequence[Tensor], numbers: Sequence[float], *options: Any) -> Tensor:
    """The result of an operator for a program. InputError: the program reads too many arrays."""
    if len(arrays) > MOST_ARRAYS:
        raise InputError(
            f"the task, or one of its gradients, reads {len(arrays)} arrays; it must read {MOST_ARRAYS} or fewer"
        )
    absent = (None,) * (MOST_ARRAYS - len(arrays))
    result: Tensor = operator(*arrays, *absent, [float(x) for x in numbers], text, *options)
    return result


# ---- kernels


@lru_cache(maxsize=1024)
def _known(text: str) -> tuple[Program, arrays_task.TaskFunction]:
    """The program of a canonical text, and the task that computes it."""
    return parse(text), arrays_task.task(text)


def _compute(*args: Any) -> Tensor:
    """The kernel of the operator: computes the result of tensors with memory."""
    given, (numbers, text, fast) = [x for x in args[:MOST_ARRAYS] if x is not None], args[MOST_ARRAYS:]
    program, function = _known(text)
    shape, torch_dtype = _result(program, given)
    values = _values(program, given, numbers)
    out = given[0].new_zeros(shape, dtype=torch_dtype) if program.when is not None and len(shape) == 2 else None
    if 0 in shape:
        return given[0].new_empty(shape, dtype=torch_dtype)
    result: Tensor = function(*values, out=out, precision=task_call.FAST if fast else task_call.EXACT)
    return result


def _values(program: Program, tensors: Sequence[Tensor], numbers: Sequence[float]) -> list[Any]:
    """The arguments of a program, from its tensors and its numbers."""
    arrays, rest = iter(tensors), iter(numbers)
    return [next(arrays).detach().resolve_neg() if x.uses else _number(next(rest), x.dtype) for x in program.inputs]


def _compute_best(*args: Any) -> Tensor:
    """The kernel of the operator that returns the indices of the best values."""
    given, (numbers, text, _, fast) = [x for x in args[:MOST_ARRAYS] if x is not None], args[MOST_ARRAYS:]
    program, function = _known(text)
    empty = _fake_best(*args)
    if 0 in empty.shape:
        return empty
    best = function(*_values(program, given, numbers), precision=task_call.FAST if fast else task_call.EXACT)
    indices: Tensor = best.i if best.j is None else best.j
    return indices


def _fake_best(*args: Any) -> Tensor:
    given, (_, text, n, _) = [x for x in args[:MOST_ARRAYS] if x is not None], args[MOST_ARRAYS:]
    program = _known(text)[0]
    extents, output = _extents(program, given), program.outputs[0]
    assert isinstance(output, Top)
    empty: Tensor = given[0].new_empty((extents[output.axis], n), dtype=torch.int32)
    return empty


def _no_gradient(ctx: Any, *_: Any) -> Any:
    """The setup and the backward step of an operator whose result is integers."""
    return (None,) * (MOST_ARRAYS + 4)


def _number(x: float, type_name: str) -> int | float:
    return int(x) if type_name[0] in "su" else x


def _result(program: Program, tensors: Sequence[Tensor]) -> tuple[tuple[int, ...], torch.dtype]:
    """The shape and the dtype of the result. ShapeError, DtypeError, DeviceError: a tensor breaks a rule."""
    extents = _extents(program, tensors)
    output = program.outputs[0]
    axes = output.axes if isinstance(output, Store) else (output.axis,) if isinstance(output, RowReduce) else ()
    truth = isinstance(output, Store) and task_call.is_truth(output.value)
    torch_dtype = torch.bool if truth else DTYPES[Problem.result_type(program)]
    return tuple(extents[axis] for axis in axes), torch_dtype


def _extents(program: Program, tensors: Sequence[Tensor]) -> dict[str, int]:
    extents: dict[str, tuple[int, str]] = {}
    arrays = [x for x in program.inputs if x.uses]
    if len(arrays) != len(tensors):
        raise InputError(f"the task reads {len(arrays)} arrays; {len(tensors)} are given")
    for x, given in zip(arrays, tensors, strict=True):
        launching.check_dense(x.name, given)
        if given.dtype is not DTYPES[x.dtype]:
            raise DtypeError(f"{x.name} is {given.dtype}; it must be {DTYPES[x.dtype]}")
        if given.device != tensors[0].device:
            raise DeviceError(f"{x.name} is on {given.device}; it must be on {tensors[0].device}, as the other tensors")
        for axes in x.uses:
            if given.dim() != len(axes):
                raise ShapeError(
                    f"{x.name} has shape {tuple(given.shape)}; the task reads {x.name}[{','.join(axes)}], so it must"
                    f" have {len(axes)} dimension{'s' if len(axes) > 1 else ''}"
                )
            for axis, n in zip(axes, given.shape, strict=True):
                known, by = extents.setdefault(axis, (n, x.name))
                if known != n:
                    raise ShapeError(
                        f"axis {axis} has the extent {known} in {by} and {n} in {x.name}; they must be equal"
                    )
    return {axis: extents[axis][0] for axis in AXES}


def _fake(*args: Any) -> Tensor:
    given = [x for x in args[:MOST_ARRAYS] if x is not None]
    shape, torch_dtype = _result(_known(args[MOST_ARRAYS + 1])[0], given)
    empty: Tensor = given[0].new_empty(shape, dtype=torch_dtype)
    return empty


# ---- gradients


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    *arrays, ctx.numbers, ctx.text, ctx.fast = inputs
    program = _known(ctx.text)[0]
    given = dict(zip(_arrays_of(program), arrays, strict=False))
    ctx.extents = _extents(program, list(given.values()))
    ctx.dtypes = {name: x.dtype for name, x in given.items()}
    ctx.saved = ()
    with suppress(TaskError):  # the backward step raises it again
        plan = _plan(ctx, program)
        known = {**given, plan.result: output}
        ctx.saved = tuple(name for name in known if name in plan.read)
        ctx.save_for_backward(*(known[name] for name in ctx.saved))


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    step = _Backward(ctx, grad)
    gradients = [
        step.gradient(name) if needs else None for name, needs in zip(ctx.dtypes, ctx.needs_input_grad, strict=False)
    ]
    return *gradients, *(None,) * (MOST_ARRAYS - len(gradients) + 3)


def _arrays_of(program: Program) -> tuple[str, ...]:
    return tuple(x.name for x in program.inputs if x.uses)


def _plan(ctx: Any, program: Program) -> gradients.Gradients:
    wanted = (name for name, needs in zip(_arrays_of(program), ctx.needs_input_grad, strict=False) if needs)
    return gradients.gradients(program, frozenset(wanted), ctx.fast)


class _Backward:
    """A backward step, which computes the programs of ``gradients.Gradients``."""

    def __init__(self, ctx: Any, grad: Tensor) -> None:
        self.program = _known(ctx.text)[0]
        self.plan = _plan(ctx, self.program)
        self.extents, self.dtypes, self.fast, self.like = ctx.extents, ctx.dtypes, ctx.fast, grad
        self.arrays = {**dict(zip(ctx.saved, ctx.saved_tensors, strict=True)), self.plan.gradient: grad}
        names = (x.name for x in self.program.inputs if not x.uses)
        self.numbers = dict(zip(names, ctx.numbers, strict=True))
        self.numbers |= {name: self.extents[axis] for name, axis in self.plan.extents.items()}
        for each in self.plan.steps:
            self.arrays[each.name] = self._made(each)

    def _made(self, step: gradients.Filled | gradients.Computed | gradients.Gathered) -> Tensor:
        if isinstance(step, gradients.Filled):
            shape = [self.extents[axis] if axis else 0 for axis in step.axes]
            return self.like.new_full(shape, step.value, dtype=DTYPES[step.dtype])
        if isinstance(step, gradients.Gathered):
            return self._gathered(step)
        arrays = [self.arrays[name] for name in _arrays_of(step.program)]
        numbers = [self.numbers[x.name] for x in step.program.inputs if not x.uses]
        return _run(TASK, _text(step.program), arrays, numbers, self.fast)

    def _gathered(self, of: gradients.Gathered) -> Tensor:
        """The elements of an input at the positions along k that the array ``positions`` has."""
        x, at = self.arrays[of.array], self.arrays[of.positions].long()
        if self.extents["k"] == 0:
            return x.new_zeros(at.shape)
        if len(of.axes) == 1:
            return x[at]
        x = x if of.axes in (("i", "k"), ("k", "j")) else x.T
        return x.gather(1 if "i" in of.axes else 0, at)

    def _scattered(self, part: Tensor, zeros: Tensor, of: gradients.Gathered) -> Tensor:
        """The gradient of an input, from the gradients ``part`` of its gathered elements: those of one element are
        added."""
        at = self.arrays[of.positions].long()
        if self.extents["k"] == 0:
            return zeros
        if len(of.axes) == 1:
            return zeros.index_add(0, at.flatten(), part.flatten())
        if of.axes in (("i", "k"), ("k", "j")):
            return zeros.scatter_add(1 if "i" in of.axes else 0, at, part)
        return zeros.T.scatter_add(1 if "i" in of.axes else 0, at, part).T

    def gradient(self, name: str) -> Tensor:
        """The gradient of an input."""
        axes = next(x.uses[0] for x in self.program.inputs if x.name == name)
        shape, dtype = [self.extents[axis] for axis in axes], self.dtypes[name]
        total: Tensor | None = None
        for part in self.plan.parts.get(name, ()):
            gradient = self.arrays[part.name].to(dtype)
            if part.gathered is not None:
                gradient = self._scattered(gradient, self.like.new_zeros(shape, dtype=dtype), part.gathered)
            total = gradient if total is None else total + gradient
        return self.like.new_zeros(shape, dtype=dtype) if total is None else total


@lru_cache(maxsize=1024)
def _text(program: Program) -> str:
    return canonical(program)


# ---- the operator


def _call(*args: Any) -> Tensor:
    result: Tensor = TASK(*args)
    return result


_arrays = ", ".join(f"Tensor{'?' if n else ''} x{n}" for n in range(MOST_ARRAYS))
TASK = Operator(
    f"task({_arrays}, float[] numbers, str text, bool fast) -> Tensor",
    MOST_ARRAYS,
    _compute,
    _fake,
    _save,
    _backward,
    loop_over_batch(_call),
    autocasts=False,
)


def _call_best(*args: Any) -> Tensor:
    result: Tensor = BEST(*args)
    return result


BEST = Operator(
    f"task_best({_arrays}, float[] numbers, str text, int n, bool fast) -> Tensor",
    MOST_ARRAYS,
    _compute_best,
    _fake_best,
    _no_gradient,
    _no_gradient,
    loop_over_batch(_call_best),
    autocasts=False,
)
