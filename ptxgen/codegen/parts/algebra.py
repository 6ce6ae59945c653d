"""The reduction over K in registers: its identity, its steps, and how partial results are joined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.part import Part
from ptxgen.expr.instructions import literal
from ptxgen.expr.node import Node, node, variable
from ptxgen.expr.ptx import Temporaries, statements
from ptxgen.lowering.algebra import ACCUMULATOR, InnerExpression
from ptxgen.lowering.kernel_problem import KernelProblem


@dataclass(frozen=True)
class Reducer(Part):
    """Joins partial results of a reduction. ``arithmetic``: that of sums; ``identity``: as PTX writes it."""

    problem: KernelProblem
    arithmetic: Arithmetic
    sm: int

    @classmethod
    def of(cls, p: KernelProblem, arithmetic: Arithmetic, sm: int) -> Reducer:
        """The reducer of the algebra of ``p``."""
        kind = ExpressionReducer if isinstance(p.algebra, InnerExpression) else cls
        return kind(p, arithmetic, sm)

    @property
    def identity(self) -> str:
        return self.arithmetic.zero

    @property
    def temporaries(self) -> list[str]:
        """The declarations of the registers that ``join`` uses besides its operands."""
        return []

    def join(self, into: str, other: str, guard: str = "") -> list[str]:
        """The instructions of ``into`` = ``into`` joined with ``other``."""
        return [f"{guard}{self.arithmetic.add} {into}, {into}, {other};"]


@dataclass(frozen=True)
class ExpressionReducer(Reducer):
    """The reduction of an expression: its steps too."""

    @property
    def algebra(self) -> InnerExpression:
        found = self.problem.algebra
        assert isinstance(found, InnerExpression)
        return found

    @property
    def identity(self) -> str:
        return literal(self.algebra.identity_node)

    @cached_property
    def accumulator(self) -> Node:
        return variable(ACCUMULATOR, self.algebra.type)

    @property
    def temporaries(self) -> list[str]:
        used = Temporaries("j")
        self._join("%into", "%other", "", used)
        return used.declarations

    def join(self, into: str, other: str, guard: str = "") -> list[str]:
        return self._join(into, other, guard, Temporaries("j"))

    def _join(self, into: str, other: str, guard: str, used: Temporaries) -> list[str]:
        partial = variable("partial", self.algebra.type)
        root = node(self.algebra.reduce, self.algebra.type, self.accumulator, partial)
        known = {self.accumulator: into, partial: other}
        return statements([root], known, [into], sm=self.sm, temporaries=used, guard=guard).lines

    # ---- steps

    @property
    def guarded(self) -> bool:
        """True if steps beyond K must not be reduced: zeros there change the result."""
        return not self.algebra.pads_with_zero

    def step(self, into: str, registers: Mapping[Node, str], guard: str) -> list[str]:
        """The instructions that reduce one step into the register ``into``. ``registers``: of what the step reads,
        besides scalars; ``guard``: of the reduction."""
        return self._step(into, registers, guard, Temporaries())

    def _step(self, into: str, registers: Mapping[Node, str], guard: str, used: Temporaries) -> list[str]:
        scalars = {variable(s.name, s.type): f"%{s.name}" for s in self.algebra.scalars}
        extents = {variable(name, "s32"): f"%{name}" for name in ("M", "N", "K")}
        known = {self.accumulator: into, **scalars, **extents, **registers}
        return statements([self.algebra.reduced], known, [into], sm=self.sm, temporaries=used, guard=guard).lines

    @cached_property
    def step_temporaries(self) -> list[str]:
        """The declarations of the registers that a step uses besides those that it reads."""
        used = Temporaries()
        elements = [self.algebra.a, self.algebra.b, *(v.element for v in self.algebra.vectors)]
        elements += [variable(axis, "s32") for axis in "ijk"]
        self._step("%into", {x: f"%read{n}" for n, x in enumerate(elements)}, "", used)
        return used.declarations
