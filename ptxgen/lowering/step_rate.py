"""The number of steps that a multiprocessor can compute per clock, from the instructions of a step.

A step is the work of one element of A and one of B: one multiply-add of a product, or the instructions of an inner
expression. Instructions are counted by the table in ``expr.instructions``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ptxgen.expr.cost import instructions_by_pipe
from ptxgen.expr.instructions import PIPES
from ptxgen.expr.node import Node, variable
from ptxgen.expr.ptx import is_computed
from ptxgen.expr.value_types import type_of
from ptxgen.lowering.algebra import ACCUMULATOR, Algebra, InnerExpression
from ptxgen.lowering.bit_products import DIFFERENT_BITS, INVERTED_FROM, bit_form_on
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device
from ptxgen.problem.peak_rates import peak_rate, scalar_rate

ISSUED = 128.0  #: thread instructions that a multiprocessor issues per clock
#: pipe -> thread instructions per clock and multiprocessor; the rates of pipes fma and fp64 are facts of devices
RATES = {"imad": 64.0, "alu": 64.0, "xu": 16.0}
#: READS: issue slots of a step besides its instructions, for loads of operands from shared memory and register bank
#: conflicts. MIXED: issue slots above one that an instruction of pipe alu takes. Both are fitted to nine operators
#: measured on an H100
READS, MIXED = 0.26, 0.22
PAIRS = 0.22  #: further issue slots of a minimum or maximum of two 16-bit floats, fitted to one operator


@dataclass(frozen=True)
class Instructions:
    """The instructions that compute ``values`` steps at once. ``by_pipe``: pairs (pipe, number of instructions);
    ``paired_floats``: True if they compute pairs of floats."""

    by_pipe: tuple[tuple[str, int], ...]
    values: int = 1
    paired_floats: bool = False

    @property
    def issued(self) -> int:
        return sum(count for _, count in self.by_pipe)

    @property
    def mixed(self) -> float:
        """Additional issue slots of the instructions of pipe alu, in steps that are not one multiply-add."""
        return (MIXED + PAIRS * self.paired_floats) * dict(self.by_pipe).get("alu", 0)

    @property
    def issue_slots(self) -> float:
        """The number of issue slots per step in a loop that loads its operands from shared memory."""
        return (self.issued + READS + self.mixed) / self.values

    def limit(self, d: Device) -> float:
        """The number of steps per clock and multiprocessor that the busiest pipe allows."""
        rates = {"fma": float(d.fma), "fp64": float(d.fma64), **RATES}
        return self.values / max(count / rates[pipe] for pipe, count in self.by_pipe)

    def bound(self, d: Device) -> float:
        """The number of steps per clock and multiprocessor that no kernel exceeds."""
        return min(ISSUED * self.values / self.issued, self.limit(d))


#: the instruction of a step of a product: one multiply-add, in whichever pipe
PRODUCT = Instructions((("fma", 1),))


@lru_cache(maxsize=1024)
def _of_step(roots: tuple[Node, ...], a: Node, b: Node, sm: int) -> Instructions:
    known = {variable(ACCUMULATOR, roots[0].type): "accum", a: "a", b: "b"}
    held = type_of(a.type)
    count = instructions_by_pipe(roots, sm, known, contract=held.values == 1)
    pipes = tuple((pipe, count[pipe]) for pipe in PIPES if count[pipe]) or PRODUCT.by_pipe
    return Instructions(pipes, held.values, held.values > 1 and held.floating)


def of_expression(algebra: InnerExpression, d: Device) -> Instructions:
    """The instructions of a step of an inner expression on device ``d``."""
    return _of_step(algebra.next, algebra.a, algebra.b, d.sm)


def instructions(p: KernelProblem, d: Device) -> Instructions:
    """The instructions of a step of a problem. Steps of a product are multiply-adds, in whichever pipe."""
    if isinstance(p.algebra, InnerExpression):
        return of_expression(p.algebra, d)
    return PRODUCT if p.algebra.fmas == 1 else Instructions((("fma", p.algebra.fmas),))


def of_pairs(algebra: Algebra, d: Device) -> Instructions | None:
    """The instructions of steps on pairs of 16-bit elements. None: the algebra has no such steps, or the device lacks
    an instruction of them."""
    if not isinstance(algebra, InnerExpression) or algebra.paired is None or not is_computed(algebra.paired.next, d.sm):
        return None
    return of_expression(algebra.paired, d)


def _each(algebra: InnerExpression, d: Device) -> list[Instructions]:
    """The instructions of each way to compute steps of an inner expression."""
    pairs = of_pairs(algebra, d)
    return [of_expression(algebra, d), *([] if pairs is None else [pairs])]


def bound(algebra: InnerExpression, d: Device) -> float:
    """The number of steps per clock and multiprocessor that no kernel exceeds."""
    return max(x.bound(d) for x in _each(algebra, d))


def ceiling(p: KernelProblem, d: Device) -> float:
    """The predicted steps per clock and multiprocessor of the fastest loop that loads its operands from shared memory.

    The prediction is the lesser of 128 / (instructions + READS + MIXED · instructions of pipe alu) and the limit of the
    busiest pipe; instructions on pairs compute two steps. If tensor cores compute the product, or a form of the
    problem, their rate is returned.
    """
    if (form := bit_form_on(p, d)) is not None:
        pairs = 2 if form.algebra is DIFFERENT_BITS and d.sm >= INVERTED_FROM else 1
        steps = max(p.k, 1) / max(form.k, 1)  # of the problem in one of the form
        return float(steps * peak_rate(form.element, form.compute, d) / pairs)
    if not isinstance(p.algebra, InnerExpression):
        scalar = scalar_rate(p.accumulator, d)
        rate = peak_rate(p.element, p.compute, d)
        return min(float(rate), ISSUED / (1 + READS)) if rate <= scalar else float(rate)
    return max(min(ISSUED / x.issue_slots, x.limit(d)) for x in _each(p.algebra, d))
