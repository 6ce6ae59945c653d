"""Bit products: the number of common or of different bits of two words, summed over K by tensor cores.

Three sorts of steps have a bit product as a form. Steps that count bits, ``popcount(a & b)`` and ``popcount(a ^ b)``,
reduced by +. Steps that combine common bits by |, if the results only compare the reduction with 0: the sum of counts
is 0 if no word has a common bit. Steps that depend only on the truth values of two bytes, ``a != 0 and b != 0`` or ``(a
!= 0) != (b != 0)``, reduced by + or by |: kernels first pack 32 truth values into a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, ClassVar

from ptxgen.expr.evaluate import evaluate
from ptxgen.expr.node import Node, constant, node, rewritten, select, variable, variables, walk
from ptxgen.expr.simplify import simplified
from ptxgen.expr.value_types import PRED, type_of
from ptxgen.lowering.algebra import ACCUMULATOR, Algebra, InnerExpression
from ptxgen.lowering.kernel_problem import GemmExtents, KernelProblem, MirroredExtents, at_least_one
from ptxgen.lowering.strided import Strided
from ptxgen.problem.device import Device

WORD, BITS = "u32", 32  #: type of a word of packed truth values, and the number of its bits
COMPUTE = "b1"  #: the value of ``compute`` of bit products
PITCH = 4  #: rows of packed words are padded with zero words to a multiple of this number

FIRST, LAST = 80, 90  #: first and last target whose tensor cores count bits; later targets emulate the instruction
#: from this target on, different bits are counted as the common bits of each word with the other word inverted
INVERTED_FROM = 90

COMMON_BITS = Algebra("common_bits", "+", 0.0, pads_with_zero=True, atomic=True)
DIFFERENT_BITS = Algebra("different_bits", "+", 0.0, pads_with_zero=True, atomic=True)
#: operator on two bits -> the algebra that counts the bits for which it gives 1
ALGEBRAS = {"&": COMMON_BITS, "^": DIFFERENT_BITS}


@dataclass(frozen=True)
class TruthWords(Strided):
    """A matrix of words of 32 truth values along K, which kernels pack from ``source``, a matrix of bytes. Bit k % 32
    of word k // 32 is 1 if byte k of the row is not 0."""

    source: Strided | None = None

    capability: ClassVar[str] = "truth_words"

    def offset(self, mn: int, size: int) -> int:
        assert self.source is not None
        return self.source.offset(mn, 1)


def bit_form_on(p: KernelProblem, d: Device) -> KernelProblem | None:
    """The bit-product form of a lowered problem. None: it has none, or the device lacks the instructions."""
    if not FIRST <= d.sm <= LAST:
        return None
    return next((x for x in p.forms if x.compute == COMPUTE), None)


def bit_form(p: KernelProblem) -> KernelProblem | None:
    """Makes the bit-product form of a problem. None: its step is not of the sorts above."""
    algebra = p.algebra
    if not isinstance(algebra, InnerExpression):
        return None
    results = [*p.sink.expressions, *([] if p.sink.guard is None else [p.sink.guard])]
    if (op := word_operator(algebra, results)) is not None:
        return replace(p, algebra=ALGEBRAS[op], compute=COMPUTE, forms=())
    plain = type(p.extents) in (GemmExtents, MirroredExtents) and p.batch == 1 and not p.sink.reads_k
    op = truth_operator(algebra) if plain else None
    return None if op is None else _of_bytes(p, algebra, op)


def word_operator(algebra: InnerExpression, results: Sequence[Node]) -> str | None:
    """The operator on words, & or ^, whose bits the step counts, or combines by | if no more is needed. None: the step
    is another one. ``results``: the sink's expressions of the reduction."""
    step = algebra.step
    if step.op == "cast" and type_of(step.type).bits == BITS and type_of(step.type).integer:
        step = step.arguments[0]
    counts = algebra.reduce == "+" and step.op == "popcount"
    bits = step.arguments[0] if counts else step
    if bits.type != WORD or bits.op not in ALGEBRAS or set(bits.arguments) != {algebra.a, algebra.b}:
        return None
    joins = algebra.reduce == "|" and bits.op == "&" and _ask_for_bits(results)
    return bits.op if joins or (counts and algebra.a.op == algebra.b.op == "variable") else None


def _ask_for_bits(results: Sequence[Node]) -> bool:
    """True if the results depend on the reduction only by comparing it with 0."""
    users = [x for x in walk(*results) if any(_is_sum(y) for y in x.arguments)]
    asked = all(x.op in ("==", "!=") and any(y.value == 0 for y in x.arguments) for x in users)
    return asked and not any(map(_is_sum, results))


def _is_sum(x: Node) -> bool:
    return x.op == "variable" and x.value == ACCUMULATOR


def _of_bytes(p: KernelProblem, algebra: InnerExpression, op: str) -> KernelProblem:
    """The bit-product form of a step on truth values of bytes, with packed words as operands."""
    words, pitch = (-(-k // (BITS * PITCH)) * PITCH for k in (p.k, at_least_one(p.k)))
    operands = tuple(
        replace(x, dtype=WORD, access=TruthWords(True, rows, words, pitch, 0, 16, PITCH, source=x.access))
        for x, rows in zip(p.operands, (p.m, p.n), strict=True)
    )
    sink = p.sink if algebra.reduce == "+" else _of_any(p.sink, algebra.type)
    extents = replace(p.extents, k=words)
    return replace(p, extents=extents, operands=operands, sink=sink, algebra=ALGEBRAS[op], compute=COMPUTE, forms=())


def truth_operator(algebra: InnerExpression) -> str | None:
    """The operator on truth values, & or ^, whose result (0 or 1) is the step of two bytes. None: the step is another
    one."""
    elements = (algebra.a, algebra.b)
    if algebra.reduce not in ("+", "|") or any(x.op != "variable" or type_of(x.type).bits != 8 for x in elements):
        return None
    truths = {x: variable(name, PRED) for x, name in ((algebra.a, "%a"), (algebra.b, "%b"))}

    def truth(x: Node) -> Node:
        if x.op not in ("==", "!=") or constant(0, x.arguments[0].type) not in x.arguments:
            return x
        other = next((y for y in x.arguments if y.op != "constant"), x)
        truth = truths.get(other.arguments[0] if other.op == "cast" else other)
        return x if truth is None else truth if x.op == "!=" else node("not", PRED, truth)

    step = rewritten(algebra.step, truth)
    if set(variables(step)) != {"%a", "%b"}:
        return None
    values = [int(evaluate(step, {"%a": a, "%b": b})) for a, b in product((False, True), repeat=2)]
    return "&" if values == [0, 0, 0, 1] else "^" if values == [0, 1, 1, 0] else None


def _of_any(sink: Any, result_type: str) -> Any:
    """The sink for a reduction by | of values 0 and 1, changed to read the sum of the values. ``result_type``: the type
    of the reduction."""
    total = variable(ACCUMULATOR, result_type)
    holds = select(
        node("!=", PRED, total, constant(0, result_type)), constant(1, result_type), constant(0, result_type)
    )

    def changed(x: Any) -> Any:
        if isinstance(x, Node):
            return simplified(rewritten(x, lambda y: holds if y is total else y))
        return tuple(map(changed, x)) if isinstance(x, tuple) and x and isinstance(x[0], Node) else x

    return replace(sink, **{f.name: changed(getattr(sink, f.name)) for f in fields(sink)})


def packs_bits(p: KernelProblem) -> bool:
    """True if A and B are packed into words."""
    return isinstance(p.operands[0].access, TruthWords)


def packed_bytes(x: TruthWords) -> Any:
    """The bytes of a packed operand."""
    return x.rows * x.ld * (BITS // 8)
