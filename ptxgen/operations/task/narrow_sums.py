"""Reductions that a program declares f16 or bf16, as kernels compute them: in f32, from steps that are rounded as the
program says.

Minima, maxima and signs of 16-bit floats are exact in f32. Sums, differences, products, quotients and square roots are
computed in f32 and rounded to 16 bits: f32 has more than twice the bits, so the result is that of one rounding.
"""

from __future__ import annotations

from dataclasses import replace

from ptxgen.expr.node import Node, constant, node, variable
from ptxgen.expr.value_types import PRED
from ptxgen.operations.task.program import ACCUMULATOR, MEAN, Program, Store

NARROW = ("f16", "bf16")
WIDE = "f32"
EXACT = ("min", "max", "fmin", "fmax", "neg", "abs")
ROUNDED = ("+", "-", "*", "/", "sqrt")


def is_narrow(program: Program) -> bool:
    return program.accumulator in NARROW


def stores_sums(program: Program) -> bool:
    """True if the result is the reduction of all pairs, as it is."""
    output, whole = program.outputs[0], variable(ACCUMULATOR, program.accumulator)
    stored = isinstance(output, Store) and output.axes == ("i", "j") and output.value is whole
    every = len(program.outputs) == 1 and program.when is None and program.initial is None
    return stored and every and program.reduction != MEAN


def widened(program: Program) -> tuple[Program, Node]:
    """(the program whose reduction is f32, the reduction of ``program`` as an expression of it). Products that are
    summed are not rounded before; minima and maxima are rounded once, because rounding keeps the order."""
    step, sums = program.step, program.reduction in ("+", MEAN)
    rounds = not (program.reduction in EXACT or (sums and step.op == "*"))
    made = replace(program, step=_Wide(program.accumulator).value(step, rounds), accumulator=WIDE, initial=None)
    return made, node("cast", program.accumulator, variable(ACCUMULATOR, WIDE))


class _Wide:
    """Expressions of type ``kind`` as expressions of f32 with their values."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._made: dict[Node, Node] = {}

    def value(self, x: Node, rounds: bool = True) -> Node:
        """The value of an expression of 16 bits in f32. ``rounds``: False: its last operator is computed in f32."""
        if x.type != self.kind:
            return node("cast", WIDE, self.same(x)) if x.type != WIDE else self.same(x)
        if x.op == "constant":
            return constant(x.value, WIDE)
        if x.op == "select":
            condition, yes, no = x.arguments
            return node("select", WIDE, self.same(condition), self.value(yes), self.value(no))
        if x.op in EXACT or x.op in ROUNDED:
            found = node(x.op, WIDE, *map(self.value, x.arguments))
            if x.op in EXACT or not rounds:
                return found
            return node("cast", WIDE, node("cast", self.kind, found))
        return node("cast", WIDE, self.same(x))

    def same(self, x: Node) -> Node:
        """The expression in its own type, from parts that are computed in f32."""
        if not x.arguments:
            return x
        if x not in self._made:
            if x.type == self.kind and (x.op in (*EXACT, *ROUNDED, "select")):
                made = node("cast", self.kind, self.value(x, rounds=False))
            elif x.type == PRED and all(y.type == self.kind for y in x.arguments):
                made = node(x.op, x.type, *map(self.value, x.arguments))
            else:
                made = node(x.op, x.type, *map(self.same, x.arguments), value=x.value)
            self._made[x] = made
        return self._made[x]
