"""Reductions on elements of 16 bits as reductions of pairs: instructions compute two adjacent columns at once.

A reduction of wider values is computed in 16 bits where the results are the same, bit for bit:

- Minima and maxima of elements, and bits of integers, are elements of 16 bits themselves.
- Minima and maxima of floats may be rounded to the type of the elements by their last operation: the rounded greatest
  value is the greatest of the rounded ones, and f32 has more than twice the bits, so rounding to f32 before changes
  nothing. Products of bf16 may be subnormal numbers of f32, and are left alone unless the program declares
  bf16.
- Sums and bits of integers of which only the low 16 bits are read need only these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ptxgen.expr.node import Node, constant, node, rewritten, variable, walk
from ptxgen.expr.ptx import is_computed
from ptxgen.expr.value_types import PAIRS, type_of
from ptxgen.lowering.algebra import ACCUMULATOR, InnerExpression, paired_expression
from ptxgen.operations.task.typed import rounded

#: True (floats) or False (integers) -> the operators whose result has 16 bits if the operands have
EXACT = {True: ("min", "max", "fmin", "fmax", "neg", "abs"), False: ("min", "max", "&", "|", "^")}
#: True (floats) -> the operators whose result on 16-bit operands may be rounded once to 16 bits; False (integers) ->
#: those whose low 16 bits depend only on the low 16 bits of the operands
ROUNDED = {True: ("+", "-", "*"), False: ("+", "&", "|", "^", "~")}
EXTREMES = ("max", "min", "fmax", "fmin")
NEWEST = 1000  #: a compute capability with every instruction


def with_paired_steps(
    whole: InnerExpression, types: Sequence[str], declared: bool, read: Sequence[Node]
) -> InnerExpression:
    """``whole`` with its reduction of pairs, if it has one. ``types``: the types of A and B; ``declared``: True if the
    program declares a reduction in 16 bits; ``read``: the expressions that read the result of the reduction."""
    element, other = types
    if element not in PAIRS or element != other or whole.state is not None or whole.vectors or whole.scalars:
        return whole
    if type_of(whole.type).bits != 32 or type_of(whole.type).floating != type_of(element).floating:
        return whole
    narrow = _Narrow(element, declared)
    low = _reads_low_bits(read, whole.type, element)
    if whole.reduce in EXTREMES:
        step = narrow.rounded(whole.step) if low and narrow.floating else narrow.exact(whole.step)
    elif not narrow.floating and whole.reduce in ("+", "&", "|", "^"):
        step = narrow.rounded(whole.step) if low else narrow.exact(whole.step) if whole.reduce != "+" else None
    else:
        step = None
    if step is None:
        return whole
    step, a, b = (_in_pairs(x) for x in (step, *(variable(name, element) for name in _elements(whole))))
    made = paired_expression(whole, step, a, b)
    return replace(whole, paired=made) if is_computed(made.next, NEWEST) else whole


def _elements(whole: InnerExpression) -> list[str]:
    """The names of the variables that are the elements of A and of B."""
    return [next(x.value for x in walk(held) if x.op == "variable") for held in (whole.a, whole.b)]


def _reads_low_bits(roots: Sequence[Node], type: str, narrow: str) -> bool:
    """True if expressions read the reduction, a value of ``type``, only as a value of ``narrow``, or only its low 16
    bits."""
    sums = variable(ACCUMULATOR, type)
    users = [x for x in walk(*roots) if sums in x.arguments]
    casts = {narrow} if type_of(narrow).floating else {"s16", "u16", "s8", "u8"}
    return sums not in roots and all(x.op == "cast" and x.type in casts for x in users)


def _in_pairs(root: Node) -> Node:
    """The expression on 16-bit values, rewritten for pairs of them."""
    return rewritten(root, lambda x: node(x.op, PAIRS[x.type], *x.arguments, value=x.value))


class _Narrow:
    """Rewrites expressions of 32 bits as expressions of the 16-bit type ``narrow``. Methods return None if the values
    would change."""

    def __init__(self, narrow: str, declared: bool) -> None:
        self.narrow, self.declared = narrow, declared
        self.floating = type_of(narrow).floating
        self._known: dict[tuple[Node, bool], Node | None] = {}

    def exact(self, x: Node) -> Node | None:
        """The expression of type ``narrow`` with the same values as ``x``."""
        return self._made(x, False)

    def rounded(self, x: Node) -> Node | None:
        """The expression of type ``narrow`` with the values of ``x``, rounded to ``narrow`` (floats), or with their low
        bits (integers)."""
        return self._made(x, True)

    def _made(self, x: Node, rounds: bool) -> Node | None:
        key = x, rounds
        if key not in self._known:
            self._known[key] = self._changed(x, rounds)
        return self._known[key]

    def _changed(self, x: Node, rounds: bool) -> Node | None:
        t = type_of(self.narrow)
        if x.type == self.narrow and x.op == "variable":
            return x
        if x.op == "cast":
            return self._cast(x, rounds)
        if x.op == "constant":
            if self.floating:
                return constant(x.value, self.narrow) if rounded(x.value, self.narrow) == x.value else None
            low = (int(x.value) - int(t.least)) % (1 << 16) + int(t.least)
            return constant(low, self.narrow) if rounds or low == x.value else None
        if x.op in EXACT[self.floating]:
            return self._applied(x, rounds and (self.floating or x.op not in EXTREMES))
        if rounds and x.op in ROUNDED[self.floating] and (x.op != "*" or self.narrow == "f16" or self.declared):
            return self._applied(x, not self.floating)
        return None

    def _cast(self, x: Node, rounds: bool) -> Node | None:
        (of,), to = x.arguments, type_of(x.type)
        if x.type == self.narrow:
            return self.rounded(of)
        if to.floating != self.floating or to.bits < 16:
            return None
        wraps = rounds and not self.floating and type_of(of.type).integer
        return self._made(of, rounds) if of.type == self.narrow or wraps else None

    def _applied(self, x: Node, rounds: bool) -> Node | None:
        """The operator of ``x``, applied to its operands rewritten in 16 bits."""
        operands = [self._made(y, rounds) for y in x.arguments]
        made = [y for y in operands if y is not None]
        return node(x.op, self.narrow, *made) if len(made) == len(operands) else None
