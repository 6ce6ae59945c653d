"""Rewrites reductions that a program declares in 16 bits to those that kernels compute: floats in f32, from steps that
are rounded as the program says; integers in 32 bits, from steps that wrap around.

Minima, maxima and signs of 16-bit floats are exact in f32. Sums, differences, products, quotients and square roots are
computed in f32 and rounded to 16 bits: f32 has more than twice the bits, so the result is that of one rounding. Minima,
maxima, right shifts and logic of integers of 16 bits are exact in 32; the low bits of the other results are extended
again. Reductions by sums, products and logic omit this extension, because only the low bits of the reduction are read.
"""

from __future__ import annotations

from dataclasses import replace

from ptxgen.expr.node import Node, constant, node, variable
from ptxgen.expr.value_types import PRED, type_of
from ptxgen.operations.task.program import ACCUMULATOR, MEAN, Program, Store

#: declared type -> type in kernels
WIDE = {"f16": "f32", "bf16": "f32", "s16": "s32", "u16": "u32"}
#: operators whose results are exact in the wide type, and operators whose results are rounded or extended; True: of
#: floats, False: of integers
EXACT = {True: ("min", "max", "fmin", "fmax", "neg", "abs"), False: ("min", "max", "&", "|", "^", ">>")}
ROUNDED = {True: ("+", "-", "*", "/", "sqrt"), False: ("+", "-", "*", "neg", "abs", "~", "<<")}


def is_narrow(program: Program) -> bool:
    return program.accumulator in WIDE


def stores_sums(program: Program) -> bool:
    """True if the result is the reduction itself, of all pairs."""
    output, whole = program.outputs[0], variable(ACCUMULATOR, program.accumulator)
    stored = isinstance(output, Store) and output.axes == ("i", "j") and output.value is whole
    every = len(program.outputs) == 1 and program.when is None and program.initial is None
    return stored and every and program.reduction != MEAN


def widened(program: Program) -> tuple[Program, Node]:
    """The program with a 32-bit reduction, and the reduction of ``program`` as an expression of it. Products of floats
    are not rounded before they are summed; minima and maxima are rounded once, at the end, because rounding keeps the
    order."""
    step, accumulator, reduction = program.step, program.accumulator, program.reduction
    extremes = reduction in ("min", "max", "fmin", "fmax")
    products = reduction in ("+", MEAN) and step.op == "*"
    rounds = not (extremes or products) if type_of(accumulator).floating else extremes
    made = replace(program, step=_Wide(accumulator).value(step, rounds), accumulator=WIDE[accumulator], initial=None)
    return made, node("cast", accumulator, variable(ACCUMULATOR, WIDE[accumulator]))


class _Wide:
    """Converts expressions of type ``narrow`` to expressions of the wide type with the same values."""

    def __init__(self, narrow: str) -> None:
        self.narrow, self.wide = narrow, WIDE[narrow]
        floating = type_of(narrow).floating
        self.exact, self.rounded = EXACT[floating], ROUNDED[floating]
        self._made: dict[Node, Node] = {}

    def value(self, x: Node, rounds: bool = True) -> Node:
        """A 16-bit expression as an expression of the wide type. ``rounds``: False: the result of the last operator is
        not rounded or extended."""
        if x.type != self.narrow:
            return node("cast", self.wide, self.same(x)) if x.type != self.wide else self.same(x)
        if x.op == "constant":
            return constant(x.value, self.wide)
        if x.op == "select":
            condition, yes, no = x.arguments
            return node("select", self.wide, self.same(condition), self.value(yes), self.value(no))
        if x.op in self.exact or x.op in self.rounded:
            wide = node(x.op, self.wide, *map(self.value, x.arguments))
            if x.op in self.exact or not rounds:
                return wide
            return node("cast", self.wide, node("cast", self.narrow, wide))
        return node("cast", self.wide, self.same(x))

    def same(self, x: Node) -> Node:
        """The expression in its own type, computed from parts in the wide type."""
        if not x.arguments:
            return x
        if x not in self._made:
            if x.type == self.narrow and x.op in (*self.exact, *self.rounded, "select"):
                made = node("cast", self.narrow, self.value(x, rounds=False))
            elif x.type == PRED and all(y.type == self.narrow for y in x.arguments):
                made = node(x.op, x.type, *map(self.value, x.arguments))
            else:
                made = node(x.op, x.type, *map(self.same, x.arguments), value=x.value)
            self._made[x] = made
        return self._made[x]
