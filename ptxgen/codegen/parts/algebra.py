"""The reduction over K in registers: its identity, its steps, and how partial results are joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.part import Part
from ptxgen.expr.instructions import literal
from ptxgen.expr.node import Node, variable
from ptxgen.expr.ptx import Temporaries, statements
from ptxgen.lowering.algebra import InnerExpression
from ptxgen.lowering.kernel_problem import KernelProblem


@dataclass(frozen=True)
class Reducer(Part):
    """The part that joins partial results of a reduction. ``arithmetic``: the arithmetic of sums; ``identity``: the
    identity of the reduction as a PTX literal."""

    problem: KernelProblem
    arithmetic: Arithmetic
    sm: int

    @classmethod
    def of(cls, p: KernelProblem, arithmetic: Arithmetic, sm: int) -> Reducer:
        """The reducer of the algebra of ``p``."""
        reducer_class = ExpressionReducer if isinstance(p.algebra, InnerExpression) else cls
        return reducer_class(p, arithmetic, sm)

    @property
    def identity(self) -> str:
        return self.arithmetic.zero

    def identity_in(self, ptx_type: str) -> str:
        """The PTX literal of the identity in accumulators whose registers have the type ``ptx_type``."""
        return self.identity if ptx_type == self.arithmetic.type else "0"

    @property
    def temporaries(self) -> list[str]:
        """The declarations of the temporary registers of ``join``."""
        return []

    def join(self, into: str, other: str, guard: str = "") -> list[str]:
        """The instructions that join ``other`` to ``into``, which receives the result. ``guard``: a guard predicate."""
        return [f"{guard}{self.arithmetic.add} {into}, {into}, {other};"]


@dataclass(frozen=True)
class ExpressionReducer(Reducer):
    """The part that computes the steps of an expression and joins partial results. ``contracts``: True if a product
    that is added becomes a fused multiply-add."""

    contracts: ClassVar[bool] = True

    @property
    def algebra(self) -> InnerExpression:
        algebra = self.problem.algebra
        assert isinstance(algebra, InnerExpression)
        return algebra

    @property
    def identity(self) -> str:
        return self.identities[0]

    def identity_in(self, ptx_type: str) -> str:
        return self.identity if ptx_type == self.arithmetic.type else self.paired.identity

    @property
    def identities(self) -> list[str]:
        """The initial values of the components of an accumulator, as PTX literals."""
        return [literal(x) for x in self.algebra.identities]

    @property
    def temporaries(self) -> list[str]:
        used = Temporaries("j")
        numbers = range(len(self.algebra.components))
        self._join([f"%into{n}" for n in numbers], [f"%other{n}" for n in numbers], "", used)
        return used.declarations

    def join(self, into: str, other: str, guard: str = "") -> list[str]:
        return self.join_components([into], [other], guard)

    def join_components(self, into: Sequence[str], other: Sequence[str], guard: str = "") -> list[str]:
        """The instructions that join the accumulator ``other`` to ``into``; each accumulator has several registers."""
        return self._join(into, other, guard, Temporaries("j"))

    def _join(self, into: Sequence[str], other: Sequence[str], guard: str, used: Temporaries) -> list[str]:
        first = self.algebra.components
        second = tuple(variable(f"partial{n}", x.type) for n, x in enumerate(first))
        known = dict(zip((*first, *second), (*into, *other), strict=True))
        roots = self.algebra.joined(first, second)
        return statements(roots, known, list(into), sm=self.sm, temporaries=used, guard=guard).lines

    # ---- steps

    @property
    def guarded(self) -> bool:
        """True if steps beyond K must not be computed, because zeros as elements would change the result."""
        return not self.algebra.pads_with_zero

    def step(self, into: Sequence[str], registers: Mapping[Node, str]) -> list[str]:
        """The instructions that reduce one step into the accumulator with the registers ``into``. ``registers``: the
        registers of the elements and indices that the step reads."""
        return self._step(into, registers, Temporaries())

    def step_pattern(self, leaves: Sequence[Node]) -> str:
        """A format string of the lines of ``step``. Its arguments are the registers of an accumulator, then those of
        ``leaves``, the elements and indices that the step reads. Formatting is faster than ``step``, and a kernel has
        thousands of steps that differ only in registers."""
        numbers = range(len(self.algebra.components) + len(leaves))
        places = [f"\x01{n}\x02" for n in numbers]
        into, held = places[: len(self.algebra.components)], places[len(self.algebra.components) :]
        text = "\n".join(self.step(into, dict(zip(leaves, held, strict=True))))
        text = text.replace("{", "{{").replace("}", "}}")
        return text.replace("\x01", "{").replace("\x02", "}")

    def _step(self, into: Sequence[str], registers: Mapping[Node, str], used: Temporaries) -> list[str]:
        scalars = {variable(s.name, s.type): f"%{s.name}" for s in self.algebra.scalars}
        extents = {variable(name, "s32"): f"%{name}" for name in ("M", "N", "K")}
        accumulators = dict(zip(self.algebra.components, into, strict=True))
        known = {**accumulators, **scalars, **extents, **registers}
        made = statements(self.algebra.next, known, list(into), sm=self.sm, temporaries=used, contract=self.contracts)
        return made.lines

    @cached_property
    def step_temporaries(self) -> list[str]:
        """The declarations of the temporary registers of a step."""
        used = Temporaries()
        elements = [self.algebra.a, self.algebra.b, *(v.element for v in self.algebra.vectors)]
        elements += [variable(axis, "s32") for axis in "ijk"]
        into = [f"%into{n}" for n in range(len(self.algebra.components))]
        self._step(into, {x: f"%read{n}" for n, x in enumerate(elements)}, used)
        return used.declarations

    @property
    def paired(self) -> PairReducer:
        """The reducer of the same expression for pairs of 16-bit values."""
        return PairReducer(self.problem, self.arithmetic, self.sm)


@dataclass(frozen=True)
class PairReducer(ExpressionReducer):
    """The reducer of two adjacent columns, whose 16-bit values share one register. Each operation rounds to the element
    type."""

    contracts = False

    @property
    def algebra(self) -> InnerExpression:
        paired = super().algebra.paired
        assert paired is not None
        return paired
