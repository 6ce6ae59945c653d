"""Programs that list the pairs among which are the greatest or least values of a program's output. The n-th best value
of some pairs is a bound: the n best values of all pairs are not behind it. So a call first lists the pairs of a part of
the rows and columns, takes the bound from their values, and then lists the pairs of the whole task that are not behind
the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from ptxgen.expr.node import Node, constant, node, substituted, variable, variables
from ptxgen.expr.value_types import PRED, type_of
from ptxgen.operations.task.assembling import array_of, axes_of, mapped, program_of, roots
from ptxgen.operations.task.program import (
    AXES,
    EXTENTS,
    LONGEST_KEPT,
    MOST_KEPT,
    Input,
    Program,
    RowReduce,
    Select,
    Store,
    Top,
)
from ptxgen.operations.task.roles import exchanged
from ptxgen.operations.task.typed import Number, binary

LEAST_ROOM, PAIRS = 1 << 10, 64
INDICES = tuple(variable(axis, "s32") for axis in "ij")
#: names of inputs that no text can have: the value of the bound; its indices i and j; the other index of the bound of a
#: row
VALUE, BOUND_I, BOUND_J, BOUND_INDEX = "%t", "%ti", "%tj", "%tq"
#: which pairs are listed: those not behind the bound by value; those not behind it by value, then by index; those not
#: behind a bound that is NaN
LOOSE, EXACT, NAN = "loose", "exact", "nan"


@dataclass(frozen=True)
class Part:
    """A part of the indices of an axis: the first ``count`` of ``first``, ``first + step``, …"""

    first: int
    step: int
    count: int

    @classmethod
    def every(cls, step: int, extent: int) -> Part:
        """The part with every ``step``-th index, starting at the middle of the first ``step`` indices."""
        first = min(step // 2, max(extent - 1, 0))
        return cls(first, step, len(range(first, extent, step)))

    @property
    def slice(self) -> slice:
        return slice(self.first, self.first + self.step * self.count, self.step)


def array_name(name: str, axes: tuple[str, ...]) -> str:
    """The name of the array for one use of the array ``name`` in a program ``of_parts``."""
    return f"{name}%{''.join(axes)}"


@lru_cache(maxsize=256)
def of_parts(program: Program) -> Program:
    """The program whose arrays have only parts of the indices i and j. The scalars ``%first_i`` and ``%step_i`` say
    which indices i are in the part, and ``%M`` is the extent of all of them; those of j are similar. Each use of an
    array becomes an array of its own, named by ``array_name``."""
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
    """The index in the whole axis, from the index in a part."""
    step, first = (Input(f"%{name}_{axis}", "s32").variable() for name in ("step", "first"))
    return node("+", "s32", node("*", "s32", variable(axis, "s32"), step), first)


def part_numbers(parts: Mapping[str, Part], extents: Mapping[str, int]) -> dict[str, int]:
    """Name -> value of the scalars of a program ``of_parts``. ``parts``: axis -> its part."""
    numbers = {f"%{EXTENTS[AXES.index(axis)]}": extents[axis] for axis in "ij"}
    for axis in "ij":
        part = parts.get(axis, Part(0, 1, 0))
        numbers |= {f"%first_{axis}": part.first, f"%step_{axis}": part.step}
    return numbers


@lru_cache(maxsize=256)
def listing(program: Program, bound: str = "", parts: bool = False) -> Program:
    """The program that lists the value, i and j of the pairs that satisfy the condition and are not behind a bound.
    ``bound``: ``LOOSE``, ``EXACT`` or ``NAN``; empty: there is no bound; ``parts``: True: the program is made
    ``of_parts``."""
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
    """True if all pairs satisfy the condition, so that a matrix of their values can replace a list."""
    output = program.outputs[0]
    assert isinstance(output, Top)
    return program.when is None and output.condition.op == "constant" and bool(output.condition.value)


@lru_cache(maxsize=256)
def keeping(program: Program, n: int) -> Program:
    """The program for the ``n`` best values of each row i; i and j are exchanged if the output of ``program`` has axis
    j."""
    output = program.outputs[0]
    assert isinstance(output, Top)
    best = replace(output, count=constant(n, "s32"))
    kept = program_of(program.step, program.reduction, program.accumulator, (best,), program.initial, program.when)
    return kept if output.axis == "i" else exchanged(kept)


def keeps_best(program: Program, k: int) -> bool:
    """True if kernels may keep the best values of each row i: f32 values that read no array along j, up to
    ``MOST_KEPT`` of a row, with K from 1 to ``LONGEST_KEPT``."""
    return 0 < k <= LONGEST_KEPT and _keeps_best(program)


@lru_cache(maxsize=256)
def _keeps_best(program: Program) -> bool:
    output = program.outputs[0]
    if not isinstance(output, Top) or len(program.outputs) > 1 or output.axis != "i":
        return False
    few = output.count.op == "constant" and 0 < int(output.count.value) <= MOST_KEPT
    read = variables(output.value, output.condition, *([] if program.when is None else [program.when]))
    of_rows = all("j" not in axes_of(name) for name in read)
    return few and of_rows and output.value.type == "f32"


@lru_cache(maxsize=256)
def storing(program: Program) -> Program:
    """The program that stores the value of each pair, made ``of_parts``."""
    output = program.outputs[0]
    shape = program.step, program.reduction, program.accumulator
    return of_parts(program_of(*shape, (Store(output.name, output.value),), program.initial))


@lru_cache(maxsize=256)
def extremes(program: Program) -> Program:
    """The program that stores the best value of each row, made ``of_parts``."""
    output = program.outputs[0]
    assert isinstance(output, Top)
    shape = program.step, program.reduction, program.accumulator
    best = RowReduce(output.name, output.value, output.axis, "max" if output.greatest else "min")
    return of_parts(program_of(*shape, (best,), program.initial))


def reads_indices(program: Program) -> bool:
    """True if the program reads an index or an extent of the rows or columns."""
    return not {"i", "j", "M", "N"}.isdisjoint(variables(*roots(program)))


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
    """The negation of a comparison: it also holds where a value is NaN."""
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
    """The number of elements that lists of so many pairs have room for, as fields of problems; calls may pass another
    number."""
    return min(pairs, max(LEAST_ROOM, pairs // PAIRS))


def missing(value_type: str, greatest: bool) -> float:
    """The value of a place without a pair: the worst value, which no number is behind."""
    t = type_of(value_type)
    return t.least if greatest else t.greatest


def no_bound(value_type: str, greatest: bool) -> float:
    """The value of a row's bound that no value is behind, so that all pairs of the row are listed."""
    return float("nan") if type_of(value_type).floating and not greatest else missing(value_type, greatest)
