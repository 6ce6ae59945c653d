"""Random programs of the language, with arrays for them: tests compute them by kernels and by the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from ptxgen.errors import TaskError
from ptxgen.expr.evaluate import numpy_type
from ptxgen.expr.node import Node, constant, variable
from ptxgen.expr.value_types import PRED, type_of
from ptxgen.operations.task.assembling import (
    AGGREGATES,
    REDUCTIONS,
    ROW_REDUCTIONS,
    check_nesting,
    initial_of,
    program_of,
    reduced,
    step_of,
    stored,
)
from ptxgen.operations.task.program import (
    ACCUMULATOR,
    MEAN,
    POSITIONS,
    Aggregate,
    Output,
    Program,
    RowReduce,
    Select,
    Store,
    Top,
)
from ptxgen.operations.task.typed import (
    FLOAT_FUNCTIONS,
    INPUT_TYPES,
    Number,
    Value,
    binary,
    both,
    call,
    cast,
    choice,
    condition,
    fixed,
    unary,
)

STEP_AXES: tuple[tuple[str, ...], ...] = (
    ("i", "k"),
    ("k", "i"),
    ("k", "j"),
    ("j", "k"),
    ("i", "j"),
    ("j", "i"),
    ("i",),
    ("j",),
    ("k",),
)
PAIR_AXES = tuple(axes for axes in STEP_AXES if "k" not in axes)
OUTPUTS = ("store", "aggregate", "rows", "select")
KEY_TYPES = ("s32", "u32", "s16", "u8")


@dataclass(frozen=True)
class Choices:
    """What random programs are made of. ``types``: of arrays and scalars; ``functions``: those that kernels
    approximate, too; ``depth``: the greatest number of nested operators of a step; ``most``: the number of outputs;
    ``sides``: the step reads one array at [i,k] and one at [k,j], in either order of the axes, and every other array is
    read with one kind of axes; ``indices``: expressions have indices and extents; ``narrow``: some accumulators are
    f16 or bf16; ``step_axes``, ``pair_axes``: of the elements that steps and other expressions read; ``stores``: the
    axes of stored matrices."""

    reductions: tuple[str, ...] = REDUCTIONS
    outputs: tuple[str, ...] = OUTPUTS
    aggregates: tuple[str, ...] = AGGREGATES
    rows: tuple[str, ...] = ROW_REDUCTIONS
    types: tuple[str, ...] = INPUT_TYPES
    functions: bool = True
    when: bool = True
    initial: bool = True
    depth: int = 4
    most: int = 3
    sides: bool = False
    indices: bool = True
    narrow: bool = True
    step_axes: tuple[tuple[str, ...], ...] = STEP_AXES
    pair_axes: tuple[tuple[str, ...], ...] = PAIR_AXES
    stores: tuple[tuple[str, str], ...] = (("i", "j"), ("j", "i"))


ALL = Choices()


def random_program(draw: Random, choices: Choices = ALL) -> Program:
    """A random program. Each axis has an array."""
    while True:
        try:
            return _Maker(draw, choices).program()
        except TaskError:
            continue  # a cast that the choices do not allow, or too many operators


class _Maker:
    def __init__(self, draw: Random, choices: Choices) -> None:
        self.draw, self.choices = draw, choices
        self.arrays: dict[str, tuple[str, int | str]] = {}
        self.kinds = tuple(x for x in choices.step_axes if not choices.sides or len(x) == 1 or "k" not in x)
        self.accumulator: Node | None = None

    def program(self) -> Program:
        draw, choices = self.draw, self.choices
        reduction = draw.choice(choices.reductions)
        step = self.expression(draw.randint(1, choices.depth))
        if choices.sides or draw.random() < 0.7:  # the usual two operands
            left = self.element(draw.choice((("i", "k"), ("k", "i"))))
            right = self.element(draw.choice((("k", "j"), ("j", "k"))))
            product = self.applied(draw.choice(("+", "*", "-", "max", "min")), left, right)
            step = product if draw.random() < 0.5 else self.applied(draw.choice(("+", "-", "*", "max")), product, step)
        if reduction in ("&", "|", "^"):
            step = self.integer(step)
        elif reduction in (MEAN, "fmin", "fmax"):
            step = self.floating(step)
        wide = {"f16": "f16", "bf16": "bf16"}.get(draw.choice(choices.types)) if draw.random() < 0.1 else None
        narrow = choices.narrow and wide is not None and reduction not in (*POSITIONS, "&", "|", "^")
        try:
            term, accumulator = step_of(reduction, step, wide if narrow else None)
        except TaskError:
            term, accumulator = step_of(reduction, step, None)
        if draw.random() < 0.05 and reduction not in POSITIONS and accumulator == "f32" and "f64" in choices.types:
            term, accumulator = step_of(reduction, step, "f64")
        self.kinds = choices.pair_axes
        initial = None
        if choices.initial and reduction not in (*POSITIONS, MEAN) and draw.random() < 0.3:
            try:
                initial = initial_of(reduction, self.leaf(), accumulator)
            except TaskError:
                initial = initial_of(reduction, Number(draw.randint(0, 3)), accumulator)
        when = None
        if choices.when and draw.random() < 0.3:
            when = check_nesting(self.test(draw.randint(1, 2)))
        self.accumulator = variable(ACCUMULATOR, accumulator)
        number = draw.randint(1, choices.most) if draw.random() < 0.3 else 1
        outputs = tuple(self.output(f"C{n}") for n in range(number))
        program = program_of(term, reduction, accumulator, outputs, initial, when)
        if {axis for x in program.inputs for use in x.uses for axis in use} != {"i", "j", "k"}:
            raise TaskError("an axis has no array")
        return program

    def output(self, name: str) -> Output:
        draw = self.draw
        form = draw.choice(self.choices.outputs)
        value: Value = self.accumulator if draw.random() < 0.4 else self.expression(draw.randint(1, 3))  # type: ignore[assignment]
        if form == "store":
            return Store(name, stored(value), draw.choice(self.choices.stores))
        if form == "aggregate":
            op = draw.choice(self.choices.aggregates)
            keys = self.key("i"), self.key("j")
            if {x.value for x in keys} == {"i", "j"}:
                raise TaskError("each pair has an element of its own")
            row, column = keys if draw.random() < 0.8 else reversed(keys)
            return Aggregate(name, reduced(op, self.fitting(op, value)), row, column, op)
        if form == "rows":
            op = draw.choice(self.choices.rows)
            return RowReduce(name, reduced(op, self.fitting(op, value)), draw.choice("ij"), op)
        if form == "top":
            axis, greatest = draw.choice(("", "i", "j")), draw.random() < 0.5
            return Top(
                name, stored(value), constant(True, PRED), constant(draw.choice((1, 3, 9)), "s32"), axis, greatest
            )
        values = tuple(stored(x) for x in (value, *self.places()))
        test = constant(True, PRED) if draw.random() < 0.05 else check_nesting(self.test(2))
        return Select(name, values[0], test, values)

    def places(self) -> list[Value]:
        where = [variable("i", "s32"), variable("j", "s32")]
        return [] if self.draw.random() < 0.3 else [*where, *([self.leaf()] if self.draw.random() < 0.2 else [])]

    def fitting(self, op: str, value: Value) -> Value:
        if op in ("&", "|", "^"):
            return self.integer(value)
        return self.floating(value) if op in (MEAN, "logsumexp") else value

    def key(self, axis: str) -> Node:
        if self.choices.indices and self.draw.random() < 0.15:
            return variable(axis, "s32")
        types = [t for t in KEY_TYPES if t in self.choices.types] or ["s32"]
        return variable(f"g{axis}[{axis}]", types[len(self.choices.types) % len(types)])

    def element(self, axes: tuple[str, ...]) -> Node:
        """An element of a new array or one that exists, or a scalar."""
        if not axes:
            types = [t for t in self.choices.types if type_of(t).bits >= 32] or ["f32"]
            return self.named("c", self.draw.choice(types), 0, "")
        return self.named("x", self.draw.choice(self.choices.types), len(axes), f"[{','.join(axes)}]")

    def named(self, prefix: str, type: str, rank: int, index: str) -> Node:
        shape = index if self.choices.sides else rank
        old = [name for name, (_, other) in self.arrays.items() if other == shape]
        if old and self.draw.random() < 0.4:
            name = self.draw.choice(old)
        else:
            name = f"{prefix}{len(self.arrays)}"
            self.arrays[name] = type, shape
        return variable(name + index, self.arrays[name][0])

    def leaf(self) -> Value:
        draw = self.draw
        chance = draw.random()
        if self.accumulator is not None and chance < 0.45:
            return self.accumulator
        if chance < 0.78:
            return self.element(draw.choice(self.kinds))
        if chance < 0.84:
            return self.element(())
        if chance < 0.89 and self.choices.indices:
            names = ["i", "j", "M", "N", "K"] + ["k"] * (("k",) in self.kinds)
            return variable(draw.choice(names), "s32")
        return Number(draw.choice((0, 1, 2, -1, 3, 7, 0.5, -2.25, 1.5)))

    def expression(self, depth: int) -> Value:
        draw = self.draw
        if depth <= 0:
            return self.leaf()
        a = self.expression(depth - draw.randint(1, 2))
        chance = draw.random()
        if chance < 0.12:
            return self.floating(a) if chance < 0.06 else cast(a, draw.choice(self.choices.types))
        if chance < 0.2:
            return unary(draw.choice(("neg", "abs")), self.signed(a))
        if chance < 0.28 and self.choices.functions:
            return unary(draw.choice(FLOAT_FUNCTIONS), self.floating(a))
        b = self.expression(depth - draw.randint(1, 3))
        if chance < 0.36:
            return choice(self.test(depth - 2), a, self.alike(a, b))
        if chance < 0.42:
            op = draw.choice(("&", "|", "^", "<<", ">>", "~", "popcount"))
            x, y = self.integer(a), self.integer(b)
            if op == "popcount":
                return unary(op, cast(x, "u32"))
            return unary(op, x) if op == "~" else self.applied(op, x, y if op in "&|^" else Number(draw.randint(0, 9)))
        if chance < 0.46 and self.choices.functions:
            return self.applied("/", self.floating(a), self.floating(b))
        if chance < 0.5:
            x = self.floating(a)
            return call("fma", (x, self.alike(x, b), self.alike(x, self.leaf())))
        if chance < 0.54:
            return self.applied(draw.choice(("fmin", "fmax")), self.floating(a), self.floating(b))
        if chance < 0.6:
            return self.test(depth - 1)
        return self.applied(draw.choice(("+", "-", "*", "*", "+", "min", "max")), a, b)

    def test(self, depth: int) -> Node:
        draw = self.draw
        a, b = (self.expression(min(depth - 1, 1)) for _ in range(2))
        if depth > 0 and draw.random() < 0.2:
            return both(draw.choice("&|"), self.test(depth - 1), self.test(depth - 1))
        if draw.random() < 0.1:
            negated = unary("not", self.test(depth - 1))
            return condition(negated)
        return condition(self.applied(draw.choice(("<", "<=", ">", ">=", "==", "!=")), a, b))

    def applied(self, op: str, a: Value, b: Value) -> Value:
        """The operator, after a cast of ``b`` if the types do not meet."""
        try:
            return binary(op, a, b)
        except TaskError:
            a, b = fixed(a), fixed(b)
            return binary(op, a, cast(b, a.type)) if a.type != PRED else binary(op, cast(a, "s32"), cast(b, "s32"))

    def alike(self, a: Value, b: Value) -> Value:
        return cast(fixed(b), fixed(a).type) if fixed(a).type != PRED else binary("<", Number(0), fixed(b))

    def floating(self, a: Value) -> Value:
        return a if type_of(fixed(a).type).floating else cast(fixed(a), "f32")

    def integer(self, a: Value) -> Value:
        return a if type_of(fixed(a).type).integer else cast(fixed(a), "s32")

    def signed(self, a: Value) -> Value:
        return cast(fixed(a), "s32") if type_of(fixed(a).type).group == "unsigned" else a


def random_arrays(
    program: Program, extents: Mapping[str, int], draw: Random, special: float = 0.0, groups: int = 5
) -> dict[str, Any]:
    """Arrays and scalars of a program. ``extents``: of i, j and k. Floats are multiples of 1/4 in [−4, 4], so that sums
    of products are exact. ``special``: the part of floats that are NaN, infinite, −0, large or small, and of integers
    that are the ends of their type; ``groups``: keys are less."""
    random = np.random.default_rng(draw.getrandbits(63))
    keys = {
        x.value.partition("[")[0]
        for output in program.outputs
        if isinstance(output, Aggregate)
        for x in (output.row, output.column)
    }
    made = {}
    for x in program.inputs:
        t, type = type_of(x.dtype), numpy_type(x.dtype)
        shape = tuple(extents[axis] for axis in x.uses[0]) if x.uses else ()
        for use in x.uses[1:]:
            if tuple(extents[axis] for axis in use) != shape:
                raise TaskError(f"{x.name} has two shapes; its axes must have equal extents")
        if x.name in keys:
            array: Any = random.integers(0, groups, shape)
            extreme = np.array([], type)
        elif t.floating:
            array = random.integers(-16, 17, shape) / 4
            with np.errstate(over="ignore"):
                extreme = np.array([np.nan, np.inf, -np.inf, -0.0, 60000, -1e-7, 3e38]).astype(type)
        else:
            array = random.integers(0 if t.group == "unsigned" else -9, 10, shape)
            extreme = np.array([t.least, t.greatest, 0], type)
        array = np.asarray(array).astype(type)
        if special and len(extreme):
            where = random.random(shape) < special
            array = np.where(where, random.choice(extreme, shape), array).astype(type)
        made[x.name] = array
    return made


def square(program: Program) -> list[set[str]]:
    """Axes that must have equal extents, because an array is read with each in one place."""
    groups = {axis: {axis} for axis in "ijk"}
    for x in program.inputs:
        for others in zip(*x.uses, strict=True):
            together = set[str]().union(*(groups[axis] for axis in others))
            groups |= dict.fromkeys(together, together)
    return [group for axis, group in groups.items() if min(group) == axis]
