"""Reductions over rows or columns of results. A thread keeps a state, whose changes are expressions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from ptxgen.expr.node import Node, constant, node, select
from ptxgen.expr.operators import OPERATORS
from ptxgen.expr.value_types import PRED, type_of

State = tuple[Node, ...]
INDEX = "s32"  #: the type of positions and counts
NO_INDEX = (1 << 31) - 1  #: the position in a state that has no values
POSITIONS = ("argmin", "argmax")
MEAN, LOGSUMEXP = "mean", "logsumexp"
LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class StateReduction:
    """Reduces values of type ``type``. ``op``: an operator, argmin, argmax, mean or logsumexp.

    ``types`` are the types of a state: for an operator, the reduced value; for argmin and argmax, the best value and
    its position; for mean, the sum and the number of values; for logsumexp, the greatest value and the sum of exp(value
    − greatest). ``joined`` is associative and commutative up to rounding, and ``identity`` is its identity. argmin and
    argmax keep the least position of equal values or of NaNs.
    """

    op: str
    type: str

    @property
    def types(self) -> tuple[str, ...]:
        if self.op in POSITIONS or self.op == MEAN:
            return self.type, INDEX
        return (self.type, self.type) if self.op == LOGSUMEXP else (self.type,)

    @property
    def result(self) -> str:
        """The type of the result."""
        return INDEX if self.op in POSITIONS else self.type

    @property
    def identity(self) -> State:
        if self.op in POSITIONS:
            accumulator = type_of(self.type)
            worst = accumulator.greatest if self.op == "argmin" else accumulator.least
            return constant(worst, self.type), constant(NO_INDEX, INDEX)
        if self.op == MEAN:
            return constant(0, self.type), constant(0, INDEX)
        if self.op == LOGSUMEXP:
            return constant(-math.inf, self.type), constant(0, self.type)
        identity = OPERATORS[self.op].identity
        assert identity is not None
        return (constant(identity(type_of(self.type)), self.type),)

    def lifted(self, value: Node, index: Node) -> State:
        """The state of one value at position ``index``."""
        if self.op in POSITIONS:
            return value, index
        if self.op == MEAN:
            return value, constant(1, INDEX)
        return (value, constant(1, self.type)) if self.op == LOGSUMEXP else (value,)

    def joined(self, x: State, y: State) -> State:
        """The state of the values of both ``x`` and ``y``."""
        if self.op in POSITIONS:
            better = self._better(x, y)
            return select(better, y[0], x[0]), select(better, y[1], x[1])
        if self.op == MEAN:
            return node("+", self.type, x[0], y[0]), node("+", INDEX, x[1], y[1])
        if self.op == LOGSUMEXP:
            top = node("max", self.type, x[0], y[0])
            return top, node("+", self.type, *(self._scaled(s, top) for s in (x, y)))
        return (node(self.op, self.type, x[0], y[0]),)

    def added(self, x: State, value: Node, index: Node) -> State:
        """The state of the values of ``x`` and of ``value``, whose position is greater than theirs."""
        if self.op == LOGSUMEXP:
            return self._with_exponential(x, value)
        if self.op not in POSITIONS:
            return self.joined(x, self.lifted(value, index))
        best, position = x
        keeps = node("<=", PRED, *((best, value) if self.op == "argmin" else (value, best)))
        better = node("not", PRED, keeps)
        if type_of(self.type).floating:  # a NaN is kept, and replaces any number
            better = node("&", PRED, better, node("==", PRED, best, best))
        better = node("|", PRED, better, node("==", PRED, position, constant(NO_INDEX, INDEX)))
        return select(better, value, best), select(better, index, position)

    def added_all(self, x: State, values: Sequence[Node], positions: Sequence[Node]) -> State:
        """The state of the values of ``x`` and of ``values``, whose positions ascend and are greater than those in
        ``x``."""
        if self.op != LOGSUMEXP:
            for value, position in zip(values, positions, strict=True):
                x = self.added(x, value, position)
            return x
        top = reduce(lambda a, b: node("max", self.type, a, b), values, x[0])
        terms = self._exponentials(values, top)
        return top, reduce(lambda a, b: node("+", self.type, a, b), terms, self._scaled(x, top))

    def _with_exponential(self, x: State, value: Node) -> State:
        """The state of logsumexp with one more value. It takes one exponential, exp(−|value − greatest|)."""
        (top, total), one = x, constant(1, self.type)
        keeps = node("<=", PRED, value, top)
        distance = node("abs", self.type, node("-", self.type, value, top))
        smaller = node("exp", self.type, node("neg", self.type, distance))
        smaller = select(node("==", PRED, value, top), one, smaller)  # infinities are not subtracted from themselves
        scaled = node("*", self.type, total, select(keeps, one, smaller))
        return node("max", self.type, top, value), node("+", self.type, scaled, select(keeps, smaller, one))

    def _exponentials(self, values: Sequence[Node], top: Node) -> list[Node]:
        """The terms exp(value − top). In f32 a term is exp2(fma(value, log2 e, -top · log2 e)); the rounding of the
        second product is common to all terms, and smaller than the rounding of the greatest value in the result. An
        infinite ``top`` is not subtracted; terms are then 0 or infinity."""
        if self.type != "f32":
            return [self._scaled((v, constant(1, self.type)), top) for v in values]
        infinite = node("==", PRED, node("abs", "f32", top), constant(math.inf, "f32"))
        factor = constant(LOG2_E, "f32")
        shift = select(infinite, constant(0, "f32"), node("neg", "f32", node("*", "f32", top, factor)))
        return [node("exp2", "f32", node("fma", "f32", v, factor, shift)) for v in values]

    def _better(self, x: State, y: State) -> Node:
        """True if the value of ``y`` is to be kept, not that of ``x``."""
        (a, n), (b, m) = x, y
        beats = node("<", PRED, *((b, a) if self.op == "argmin" else (a, b)))
        same = node("==", PRED, a, b)
        if type_of(self.type).floating:
            nan_a, nan_b = (node("!=", PRED, v, v) for v in (a, b))
            beats = node("|", PRED, beats, node("&", PRED, nan_b, node("not", PRED, nan_a)))
            same = node("|", PRED, same, node("&", PRED, nan_a, nan_b))
        return node("|", PRED, beats, node("&", PRED, same, node("<", PRED, m, n)))

    def _scaled(self, x: State, top: Node) -> Node:
        """The sum of ``x`` converted to be relative to ``top``. Infinities are not subtracted from themselves."""
        factor = node("exp", self.type, node("-", self.type, x[0], top))
        return node("*", self.type, x[1], select(node("==", PRED, x[0], top), constant(1, self.type), factor))

    @staticmethod
    def position(kept: Node) -> Node:
        """The position that is returned for a state with position ``kept``; −1 if the state has no values."""
        return select(node("==", PRED, kept, constant(NO_INDEX, INDEX)), constant(-1, INDEX), kept)

    def finished(self, x: State) -> Node:
        """The result of state ``x``."""
        if self.op in POSITIONS:
            return self.position(x[1])
        if self.op == MEAN:
            return node("/", self.type, x[0], node("cast", self.type, x[1]))
        if self.op == LOGSUMEXP:
            # the sum is 0 if there is no value, and its logarithm minus infinity
            return node("+", self.type, x[0], node("log", self.type, x[1]))
        return x[0]
