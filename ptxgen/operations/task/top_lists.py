"""Programs that list the pairs among which are the greatest or least values of a program's output.

The n-th best of some pairs is a bound: the n best of all pairs are not behind it. So a call lists the pairs of a part
of the rows and columns, takes the bound of their values, and lists those of all pairs that are not behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ptxgen.expr.node import Node, node, substituted, variable, variables
from ptxgen.expr.value_types import PRED, type_of
from ptxgen.operations.task.assembling import array_of, axes_of, mapped, program_of, roots
from ptxgen.operations.task.program import AXES, EXTENTS, Input, Program, Select, Store, Top
from ptxgen.operations.task.typed import Number, binary

LEAST_ROOM, PAIRS = 1 << 10, 64
INDICES = tuple(variable(axis, "s32") for axis in "ij")
#: inputs that no text has: the value of the bound; its indices, or of a row its other index
VALUE, BOUND_I, BOUND_J, BOUND_INDEX = "%t", "%ti", "%tj", "%tq"
#: which pairs are not behind a bound: by the value alone, also by the index, of a bound that is NaN, that of each row
LOOSE, EXACT, NAN = "loose", "exact", "nan"


@dataclass(frozen=True)
class Part:
    """Some indices of an axis: ``count`` of ``first``, ``first + step``, …"""

    first: int
    step: int
    count: int

    @classmethod
    def every(cls, step: int, extent: int) -> Part:
        """Every ``step``-th index, from the middle of the first ``step`` on."""
        first = min(step // 2, max(extent - 1, 0))
        return cls(first, step, len(range(first, extent, step)))

    @property
    def slice(self) -> slice:
        return slice(self.first, self.first + self.step * self.count, self.step)


def array_name(name: str, axes: tuple[str, ...]) -> str:
    """The name that one use of an array has in a program of parts."""
    return f"{name}%{''.join(axes)}"


@lru_cache(maxsize=256)
def of_parts(program: Program) -> Program:
    """The program whose arrays have parts of i and of j: the scalars ``%first_i``, ``%step_i`` and ``%M`` say which,
    and the extent of all; j is alike. Each use of an array is an array of its own, ``array_name``."""
    changes: dict[str, Node] = {}
    for name in variables(*roots(program)):
        axes = axes_of(name)
        if axes and array_of(name) not in (VALUE, BOUND_INDEX):  # these are of the part
            of = next(x for x in program.inputs if x.name == array_of(name))
            changes[name] = Input(array_name(of.name, axes), of.dtype).variable(axes)
        elif name in ("i", "j"):
            changes[name] = index_of(name)
        elif name in ("M", "N"):
            changes[name] = Input(f"%{name}", "s32").variable()
    return mapped(program, lambda x: substituted(x, changes))


def index_of(axis: str) -> Node:
    """The index of an axis in all of it."""
    step, first = (Input(f"%{name}_{axis}", "s32").variable() for name in ("step", "first"))
    return node("+", "s32", node("*", "s32", variable(axis, "s32"), step), first)


def part_numbers(parts: Mapping[str, Part], extents: Mapping[str, int]) -> dict[str, int]:
    """The scalars of ``of_parts``."""
    numbers = {f"%{EXTENTS[AXES.index(axis)]}": extents[axis] for axis in "ij"}
    for axis in "ij":
        part = parts.get(axis, Part(0, 1, 0))
        numbers |= {f"%first_{axis}": part.first, f"%step_{axis}": part.step}
    return numbers


@lru_cache(maxsize=256)
def listing(program: Program, bound: str = "", parts: bool = False) -> Program:
    """The program that lists the value, i and j of the pairs that count and are not behind a bound, ``LOOSE``,
    ``EXACT`` or ``NAN``; empty: there is none. ``parts``: it is ``of_parts``."""
    output = program.outputs[0]
    assert isinstance(output, Top)
    condition = output.condition
    if bound:
        condition = binary("&", condition, _not_behind(output, bound))  # type: ignore[assignment]
        if output.condition.op == "constant":
            condition = _not_behind(output, bound)
    shape = program.step, program.reduction, program.accumulator
    listed = Select(output.name, output.value, condition, (output.value, *INDICES))
    lists = program_of(*shape, (listed,), program.initial, program.when)
    return of_parts(lists) if parts else lists


def stores_values(program: Program) -> bool:
    """True if all pairs count, so that a matrix of their values has what lists have."""
    output = program.outputs[0]
    assert isinstance(output, Top)
    return program.when is None and output.condition.op == "constant" and bool(output.condition.value)


@lru_cache(maxsize=256)
def storing(program: Program) -> Program:
    """The program that stores the value of each pair, ``of_parts``."""
    output = program.outputs[0]
    shape = program.step, program.reduction, program.accumulator
    return of_parts(program_of(*shape, (Store(output.name, output.value),), program.initial))


def _not_behind(output: Top, bound: str) -> Node:
    axis, value = output.axis, output.value
    of_row = (axis,) if axis else ()
    t = Input(VALUE, value.type, (of_row,) if axis else ()).variable(of_row)
    if bound == LOOSE and output.greatest:
        return _not("<", value, t)
    if bound == LOOSE:
        return _or(_test("<=", value, t), _is_nan(t)) if axis and _floating(t) else _test("<=", value, t)
    if axis:
        other = variable("j" if axis == "i" else "i", "s32")
        not_after = _test("<=", other, Input(BOUND_INDEX, "s32", (of_row,)).variable(of_row))
    else:
        i, j, row, column = (*INDICES, *(Input(name, "s32").variable() for name in (BOUND_I, BOUND_J)))
        not_after = _or(_test("<", i, row), _and(_test("==", i, row), _test("<=", j, column)))
    if bound == NAN:
        nan = _is_nan(value)
        return _and(nan, not_after) if output.greatest else _or(node("not", PRED, nan), not_after)
    better, equal = _not("<=", value, t) if output.greatest else _test("<", value, t), _test("==", value, t)
    if axis and _floating(t):
        nan, bound_nan = _is_nan(value), _is_nan(t)
        equal = _or(equal, _and(nan, bound_nan))
        if output.greatest:
            better = _and(better, node("not", PRED, bound_nan))
        else:
            better = _or(better, _and(bound_nan, node("not", PRED, nan)))
    return _or(better, _and(equal, not_after))


def _floating(x: Node) -> bool:
    return type_of(x.type).floating


def _test(op: str, a: Node, b: Node) -> Node:
    test = binary(op, a, b)
    assert isinstance(test, Node)
    return test


def _not(op: str, a: Node, b: Node) -> Node:
    """The comparison does not hold, also where a value is NaN."""
    return node("not", PRED, _test(op, a, b))


def _is_nan(x: Node) -> Node:
    ordered = binary("<=", x, Number(float("inf")))
    assert isinstance(ordered, Node)
    return node("not", PRED, ordered)


def _and(a: Node, b: Node) -> Node:
    return node("&", PRED, a, b)


def _or(a: Node, b: Node) -> Node:
    return node("|", PRED, a, b)


def typical_room(pairs: int) -> int:
    """The room of the lists of so many pairs, as problems have it; calls pass another one."""
    return min(pairs, max(LEAST_ROOM, pairs // PAIRS))


def missing(value_type: str, greatest: bool) -> float:
    """The value of a place without a pair: no number is behind it."""
    t = type_of(value_type)
    return t.least if greatest else t.greatest


def no_bound(value_type: str, greatest: bool) -> float:
    """The bound of a row that no pair is behind."""
    return float("nan") if type_of(value_type).floating and not greatest else missing(value_type, greatest)
