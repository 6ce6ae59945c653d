"""The steps per clock that a multiprocessor can compute, from the instructions of a step.

A step is the work of one element of each operand: one multiply-add of a product, or the instructions of an inner
expression. Counts are of the table in ``expr.instructions``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ptxgen.expr.cost import instructions_by_pipe
from ptxgen.expr.instructions import PIPES
from ptxgen.expr.node import Node, variable
from ptxgen.lowering.algebra import ACCUMULATOR, InnerExpression
from ptxgen.lowering.bit_products import DIFFERENT_BITS, INVERTED_FROM, bit_form_on
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device
from ptxgen.problem.peak_rates import peak_rate, scalar_rate

ISSUED = 128.0  #: instructions of threads that a multiprocessor issues per clock
#: instructions of threads per clock and multiprocessor; those of fma and fp64 are facts of devices
RATES = {"imad": 64.0, "alu": 64.0, "xu": 16.0}
#: issue slots of a step besides its instructions: loads of operands from shared memory, bank conflicts of registers;
#: and those that an instruction of pipe alu takes more than one. Fitted to nine operators measured on an H100
READS, MIXED = 0.26, 0.22


@dataclass(frozen=True)
class Instructions:
    """The instructions of a step. ``by_pipe``: (pipe, count)."""

    by_pipe: tuple[tuple[str, int], ...]

    @property
    def issued(self) -> int:
        return sum(count for _, count in self.by_pipe)

    @property
    def mixed(self) -> float:
        """Issue slots that instructions of pipe alu take more, in a step that is not one multiply-add."""
        return MIXED * dict(self.by_pipe).get("alu", 0)

    def limit(self, d: Device) -> float:
        """Steps per clock and multiprocessor that the busiest pipe allows."""
        rates = {"fma": float(d.fma), "fp64": float(d.fma64), **RATES}
        return 1 / max(count / rates[pipe] for pipe, count in self.by_pipe)


#: of a product by multiply-adds, whichever pipe has them
PRODUCT = Instructions((("fma", 1),))


@lru_cache(maxsize=1024)
def _of_step(roots: tuple[Node, ...], a: Node, b: Node, sm: int) -> Instructions:
    known = {variable(ACCUMULATOR, roots[0].type): "accum", a: "a", b: "b"}
    count = instructions_by_pipe(roots, sm, known)
    return Instructions(tuple((pipe, count[pipe]) for pipe in PIPES if count[pipe]) or PRODUCT.by_pipe)


def of_expression(algebra: InnerExpression, d: Device) -> Instructions:
    """The instructions of a step of an inner expression on a device."""
    return _of_step(algebra.next, algebra.a, algebra.b, d.sm)


def instructions(p: KernelProblem, d: Device) -> Instructions:
    """The instructions of a step of a problem; those of a product count as one multiply-add."""
    return of_expression(p.algebra, d) if isinstance(p.algebra, InnerExpression) else PRODUCT


def bound(algebra: InnerExpression, d: Device) -> float:
    """Steps per clock and multiprocessor that no kernel exceeds."""
    found = of_expression(algebra, d)
    return min(ISSUED / found.issued, found.limit(d))


def ceiling(p: KernelProblem, d: Device) -> float:
    """Steps per clock and multiprocessor of the fastest loop that loads its operands from shared memory, predicted.

    It is the lesser of 128 / (instructions + READS + MIXED · instructions of pipe alu) and what the busiest pipe
    allows. A product that tensor cores compute has their rate, also where it is another form of the problem."""
    if (form := bit_form_on(p, d)) is not None:
        pairs = 2 if form.algebra is DIFFERENT_BITS and d.sm >= INVERTED_FROM else 1
        steps = max(p.k, 1) / max(form.k, 1)  # of the problem in one of the form
        return float(steps * peak_rate(form.element, form.compute, d) / pairs)
    if not isinstance(p.algebra, InnerExpression):
        scalar = scalar_rate(p.accumulator, d)
        rate = peak_rate(p.element, p.compute, d)
        return min(float(rate), ISSUED / (1 + READS)) if rate <= scalar else float(rate)
    found = of_expression(p.algebra, d)
    return min(ISSUED / (found.issued + READS + found.mixed), found.limit(d))
