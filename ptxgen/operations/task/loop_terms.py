"""Takes terms that do not depend on k out of the loop over k.

- The maximum or minimum of e(k) + f is that of e(k), plus f: rounding keeps the order of floats, so results have the
  same bits where all values are finite. Integers wrap around, and keep the term in the loop.
- The sum of e(k) + f is that of e(k), plus K·f: for integers modulo a power of two; for floats only where e and f are
  proven not to be negative, because a sum in which they cancel would lose digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from ptxgen.expr.node import Node, node, variable
from ptxgen.expr.ranges import ranges
from ptxgen.expr.simplify import cast
from ptxgen.expr.value_types import type_of
from ptxgen.operations.task.assembling import depends_on
from ptxgen.operations.task.program import ACCUMULATOR, MEAN, Program

EXTREMES = ("max", "min", "fmax", "fmin")


@lru_cache(maxsize=256)
def without_terms(program: Program) -> tuple[Program, Node]:
    """The program with terms that do not depend on k removed from the loop; and the original reduction, as an
    expression of the ``accum`` of the new loop."""
    accumulator = program.accumulator
    sums = variable(ACCUMULATOR, accumulator)
    if program.step.type != accumulator or type_of(accumulator).bits < 32:
        return program, sums
    floating = type_of(accumulator).floating
    if program.reduction in EXTREMES and floating:
        step, whole = _taken(program.step, sums, lambda e, f, op: f)
    elif program.reduction in ("+", MEAN):

        def times(e: Node, f: Node, op: str) -> Node | None:
            if floating and (op == "-" or ranges(e)[e].low < 0 or ranges(f)[f].low < 0):
                return None
            return node("*", accumulator, cast(variable("K", "s32"), accumulator), f)

        step, whole = _taken(program.step, sums, times)
    else:
        return program, sums
    return replace(program, step=step), whole


def _taken(step: Node, sums: Node, outside: Callable[[Node, Node, str], Node | None]) -> tuple[Node, Node]:
    """The step without its outermost terms that do not depend on k, and the reduction with these terms applied to
    ``sums``. ``outside(e, f, op)``: returns the value to combine with the reduction of e in place of the term f; None:
    the term stays."""
    if step.op not in ("+", "-"):
        return step, sums
    a, b = step.arguments
    if depends_on("k", a) and not depends_on("k", b) and (term := outside(a, b, step.op)) is not None:
        inner, whole = _taken(a, sums, outside)
        return inner, node(step.op, step.type, whole, term)
    if step.op == "+" and depends_on("k", b) and not depends_on("k", a) and (term := outside(b, a, "+")) is not None:
        inner, whole = _taken(b, sums, outside)
        return inner, node("+", step.type, term, whole)
    return step, sums
