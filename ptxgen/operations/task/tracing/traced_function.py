"""A Python function as a task: the function is called once with expressions in place of its arguments, and a program is
made from its result.

Numbers that are parameters of the function, or that it reads from around it, are scalars, whose values are known when
the task is called; numbers that are written in the function are constants. Errors name the user's file and line.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np

from ptxgen.errors import TaskError
from ptxgen.expr.node import Node, substituted, variable, variables, walk
from ptxgen.operations.task.assembling import RESERVED, array_of, axes_of, number_type, program_of, roots_of, stored
from ptxgen.operations.task.program import (
    AXES,
    EXTENTS,
    Aggregate,
    Distinct,
    Output,
    Program,
    RowReduce,
    Select,
    Store,
    Top,
)
from ptxgen.operations.task.tracing.operands import (
    Operand,
    Parameter,
    Reduced,
    Trace,
    current,
    depends,
    lifted,
    tracing,
)
from ptxgen.operations.task.tracing.places import OWN_FOLDERS, error_at
from ptxgen.operations.task.typed import INPUT_TYPES

#: a name in the text form of tasks
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _number_class(value: Any) -> str:
    """The type of a value around a function if it is a number, else an empty string."""
    if isinstance(value, bool | np.bool_):
        return ""
    if isinstance(value, np.floating | np.integer) and not isinstance(value, float | int):
        name = value.dtype.name.replace("float", "f").replace("uint", "u").replace("int", "s")
        return name if name in INPUT_TYPES else "int" if isinstance(value, np.integer) else "float"
    return "int" if isinstance(value, int) else "float" if isinstance(value, float) else ""


@dataclass(frozen=True)
class Reference:
    """A name that a function reads from around it, in a cell of its closure or among its globals."""

    name: str
    holder: CellType | dict[str, Any]

    def value(self) -> Any:
        if isinstance(self.holder, dict):
            return self.holder.get(self.name)
        try:
            return self.holder.cell_contents
        except ValueError:
            return None  # it has no value yet


def _globals_read(code: CodeType) -> Iterator[str]:
    """The names of globals and attributes that the code, and functions defined in it, read."""
    yield from code.co_names
    for x in code.co_consts:
        if isinstance(x, CodeType):
            yield from _globals_read(x)


def references(function: FunctionType) -> list[Reference]:
    """The names that a function reads from around it."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    names = dict.fromkeys(_globals_read(function.__code__))
    known = [name for name in names if name in function.__globals__]
    return [*(Reference(*x) for x in cells), *(Reference(name, function.__globals__) for name in known)]


def _state(value: Any) -> Any:
    """A key of a value around a function: if it is the same, so is the program."""
    return _number_class(value) or (value if isinstance(value, bool | str | bytes | None) else id(value))


class Surroundings:
    """The numbers around a function and around the functions that it calls. ``places``: name of a scalar of the task ->
    the reference to its number."""

    def __init__(self, function: FunctionType, taken: Iterable[str]) -> None:
        self.places: dict[str, Reference] = {}
        self._taken = {*taken, *RESERVED}
        self._names: dict[tuple[int, str], str] = {}
        self._functions: dict[int, FunctionType] = {}
        self._read: list[tuple[Reference, Any]] = []
        self._visit(function)
        self.state = tuple(_state(value) for _, value in self._read)

    def _visit(self, function: FunctionType) -> None:
        self._functions[id(function)] = function
        for x in references(function):
            value = x.value()
            self._read.append((x, value))  # it lives as long as its id is used
            if _number_class(value):
                if (id(x.holder), x.name) not in self._names:
                    free = x.name if _NAME.fullmatch(x.name) else "number"
                    while free in self._taken:
                        free += "_"
                    self._taken.add(free)
                    self._names[id(x.holder), x.name] = free
                    self.places[free] = x
                continue
            own = isinstance(value, FunctionType) and not value.__code__.co_filename.startswith(OWN_FOLDERS)
            if own and id(value) not in self._functions:
                self._visit(value)

    @property
    def current(self) -> bool:
        """True if tracing the function now would give the same program."""
        return self.state == tuple(_state(x.value()) for x, _ in self._read)

    def rebound(
        self, function: FunctionType, types: Mapping[str, str], made: dict[int, FunctionType] | None = None
    ) -> FunctionType:
        """A copy of the function that reads parameters in place of the numbers around it. ``types``: name of a scalar
        -> its type; ``made``: id of a function -> the copy that exists already."""
        made = {} if made is None else made
        if id(function) in made:
            return made[id(function)]
        names, code = dict(function.__globals__), function.__code__
        cells = {name: CellType() for name in code.co_freevars}
        copy = FunctionType(code, names, function.__name__, function.__defaults__, tuple(cells.values()) or None)
        copy.__kwdefaults__ = function.__kwdefaults__
        made[id(function)] = copy
        for x in references(function):
            value = x.value()
            place = self._names.get((id(x.holder), x.name))
            if place is not None:
                value = Parameter(place, types[place])
            elif isinstance(value, FunctionType) and id(value) in self._functions:
                value = self.rebound(value, types, made)
            if isinstance(x.holder, dict):
                names[x.name] = value
            else:
                cells[x.name].cell_contents = value
        return copy


class TracedFunction:
    """A Python function as a task. ``parameters``: the names of its parameters, which are arrays and scalars;
    ``place``: the function whose line is named by errors without another place, None: the function itself."""

    def __init__(self, function: Callable[..., Any], place: FunctionType | None = None) -> None:
        if not isinstance(function, FunctionType):
            raise TaskError(f"the task is {type(function).__name__}; it must be a function or a text")
        self.function, self.place = function, place or function
        self.parameters = tuple(inspect.signature(function).parameters)
        for x in inspect.signature(function).parameters.values():
            if x.kind in (x.VAR_POSITIONAL, x.VAR_KEYWORD):
                raise self._error(f"{x} is no parameter of one array; each array must have a parameter")
            if not _NAME.fullmatch(x.name):
                raise self._error(f"{x.name} has letters outside ASCII; the parameter must have another name")
            if x.name in RESERVED:
                raise self._error(f"{x.name} is a word of the language; the parameter must have another name")
        #: programs, and what they were traced with: it exists as long as its ids are keys
        self._programs: dict[Any, tuple[Program, Surroundings]] = {}
        self._last: Surroundings | None = None

    def _error(self, message: str) -> TaskError:
        code: CodeType = self.place.__code__
        return error_at(message, code.co_filename, code.co_firstlineno)

    def _around(self) -> Surroundings:
        if self._last is None or not self._last.current:
            self._last = Surroundings(self.function, self.parameters)
        return self._last

    def numbers(self) -> dict[str, Any]:
        """Name of a scalar of the task -> the number around the function that is its value."""
        return {name: x.value() for name, x in self._around().places.items()}

    def state(self) -> Any:
        """A key of the values around the function that determine its program: if states are equal, so are programs."""
        return self._around().state

    def program(self, types: Mapping[str, str | None]) -> Program:
        """The program of the function, which is called once for all equal ``types``. ``types``: name of a parameter ->
        its type; ``float`` and ``int`` stand for Python numbers, None for the argument None. A parameter without a type
        has its default value. Raises TaskError with file and line if the function breaks a rule."""
        around = self._around()
        key = (tuple(sorted(types.items())), around.state)
        if key not in self._programs:
            number_types = {name: _number_class(x.value()) for name, x in around.places.items()}
            try:
                self._programs[key] = self._traced(around, types, number_types), around
            except TaskError as broken:
                raise broken.with_traceback(None) from None
        return self._programs[key][0]

    def _traced(
        self, around: Surroundings, types: Mapping[str, str | None], number_types: Mapping[str, str]
    ) -> Program:
        given = {**types, **number_types}
        for name, type in given.items():
            if type is not None and type not in (*INPUT_TYPES, "float", "int"):
                raise self._error(f"{name} is {type}; it must be one of {', '.join(INPUT_TYPES)}")
        numbers = {name: type for name, type in given.items() if type in ("float", "int")}
        trace, result = self._called(around, given)
        if numbers:
            given |= {name: number_type(str(number), trace.wanted.get(name, ())) for name, number in numbers.items()}
            trace, result = self._called(around, given)
        return self._program(trace, result)

    def _called(self, around: Surroundings, types: Mapping[str, str | None]) -> tuple[Trace, Any]:
        arguments = {
            name: None if types[name] is None else Parameter(name, str(types[name]))
            for name in self.parameters
            if name in types
        }
        function = around.rebound(self.function, {name: str(type) for name, type in types.items()})
        with tracing(Trace()) as trace:
            return trace, function(**arguments)

    def _program(self, trace: Trace, result: Any) -> Program:
        if trace.axis is None or trace.reduction is None:
            raise self._error("the function has no reduction; it must have one: write ptxgen.sum(k, …)")
        op, step, accumulator, initial = trace.reduction
        with tracing(trace):
            outputs = self._outputs(result)
        spatial = sorted((x for x in trace.axes if x is not trace.axis), key=lambda x: x.order)
        if len(spatial) != 2:
            raise self._error(f"the number of spatial axes is {len(spatial)}; it must be 2")
        names = {x.name: axis for x, axis in zip((*spatial, trace.axis), AXES, strict=True)}
        when = trace.when
        roots = [step, *(x for x in (initial, when) if x is not None), *(x for y in outputs for x in roots_of(y))]
        for x in roots[1:]:
            late = [name for name in variables(x) if depends(trace.axis.name, name)]
            if late:
                raise self._error(
                    f"{late[0]} changes with the reduced axis; it must be in ptxgen.sum({trace.axis.name}, …)"
                )
        values = {}
        for name in variables(*roots):
            if axes_of(name):
                values[name] = f"{array_of(name)}[{','.join(names[axis] for axis in axes_of(name))}]"
            elif name in names:
                values[name] = names[name]
            elif name.endswith(".extent"):
                values[name] = EXTENTS[AXES.index(names[name.removesuffix(".extent")])]
        renamed = {x.value: variable(values[x.value], x.type) for x in _all_variables(roots) if x.value in values}

        def changed(x: Node) -> Node:
            return substituted(x, renamed)

        made = tuple(_mapped(output, changed, names) for output in outputs)
        try:
            return program_of(
                changed(step),
                op,
                accumulator,
                made,
                None if initial is None else changed(initial),
                None if when is None else changed(when),
            )
        except TaskError as broken:
            raise self._error(str(broken)) from None

    def _outputs(self, result: Any) -> list[Output]:
        if isinstance(result, Mapping):
            named = {str(name): x for name, x in result.items()}
        elif isinstance(result, tuple | list):
            named = {f"out{n}": x for n, x in enumerate(result)}
        else:
            named = {"out": result}
        outputs: list[Output] = []
        inputs = {*self.parameters, *current().ranks}
        for name, x in named.items():
            if not isinstance(result, Mapping):
                while name in inputs:
                    name += "_"
            if not _NAME.fullmatch(name) or name in RESERVED or name in inputs:
                raise self._error(f"the output {name} has the name of an input or a word; it must have another name")
            if isinstance(x, Reduced):
                outputs.append(x.make(name))
            elif isinstance(x, Operand):
                try:
                    outputs.append(Store(name, stored(lifted(x))))
                except TaskError as broken:
                    raise self._error(str(broken)) from None
            else:
                what = "nothing" if x is None else f"a {type(x).__name__}"
                raise self._error(f"the function returns {what}; it must return an expression, or outputs")
        if not outputs:
            raise self._error("the function returns no output; it must return an expression, or outputs")
        return outputs


def _all_variables(roots: list[Node]) -> Iterator[Node]:
    return (x for x in walk(*roots) if x.op == "variable")


def _mapped(output: Output, changed: Callable[[Node], Node], axes: Mapping[str, str]) -> Output:
    """The output with its expressions changed by ``changed``, and its axes renamed to i and j by ``axes``."""
    value = changed(output.value)
    if isinstance(output, RowReduce):
        other = "j" if axes[output.axis] == "i" else "i"
        return RowReduce(output.name, value, other, output.op)
    if isinstance(output, Aggregate):
        return Aggregate(output.name, value, changed(output.row), changed(output.column), output.op)
    if isinstance(output, Distinct):
        return Distinct(output.name, value, changed(output.row), changed(output.column))
    if isinstance(output, Top):
        other = "" if not output.axis else "j" if axes[output.axis] == "i" else "i"
        return Top(output.name, value, changed(output.condition), changed(output.count), other, output.greatest)
    if isinstance(output, Select):
        values = tuple(changed(x) for x in output.values)
        return Select(output.name, values[0], changed(output.condition), values)
    return Store(output.name, value)
