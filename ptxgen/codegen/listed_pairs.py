"""The common base of kernels that compute sums over k for a list of pairs (i, j) of rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

from ptxgen.codegen.device_text import DeviceText
from ptxgen.codegen.parts.algebra import ExpressionReducer
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.parameters import ScalarGroup
from ptxgen.codegen.parts.result_values import ResultValues
from ptxgen.codegen.registers import width
from ptxgen.lowering.algebra import InnerExpression, Scalar
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

#: the arrays of the list of pairs: i and j, of 32 bits each, and the number of pairs, of 64 bits
PAIRS = ("pairs_i", "pairs_j", "pair_count")
ROOM = Scalar("pair_room", "u64")  #: capacity of the list; if there are more pairs, the kernel computes none


class Launched(NamedTuple):
    """A launch. ``p``: its problem; ``sink_offset``: 0, because these sinks have no workspace."""

    p: KernelProblem
    sink_offset: int = 0


@dataclass(frozen=True)
class ListedPairs(DeviceText):
    """The base class of kernels of listed pairs. ``problem``: a problem of their class: sums in f32 of K-major
    operands."""

    problem: KernelProblem
    device: Device

    threads: ClassVar[int] = 256
    unrolled: ClassVar[int] = 4  #: loads of each operand that are in flight

    @property
    def vec(self) -> int:
        """The number of elements of one access to A or B."""
        return int(min(4, *(x.access.vec for x in self.problem.operands)))

    @property
    def access_type(self) -> str:
        return width(self.vec, "f32")

    @cached_property
    def values(self) -> ResultValues:
        return ResultValues(self.problem, self.device.sm, 1, 1, 1)

    @cached_property
    def _reducer(self) -> ExpressionReducer | None:
        """The reducer of the step; None: the step is a product."""
        if not isinstance(self.problem.algebra, InnerExpression):
            return None
        return ExpressionReducer(self.problem, Arithmetic.of(self.problem), self.device.sm)

    @property
    def scalars_after_sums(self) -> list[ScalarGroup]:
        return [ScalarGroup(s.type, [s.name]) for s in self.problem.sink.scalars]

    @property
    def step_temporaries(self) -> list[str]:
        """The declarations of the registers that steps use besides their operands."""
        return [] if self._reducer is None else self._reducer.step_temporaries

    def step(self, total: str, a: str, b: str) -> list[str]:
        """The instructions that add the step of the elements ``a`` and ``b`` to ``total``; all three are registers."""
        pattern = "fma.rn.f32 {0}, {1}, {2}, {0};"
        if (reducer := self._reducer) is not None:
            pattern = reducer.step_pattern([reducer.algebra.a, reducer.algebra.b])
        return pattern.format(total, a, b).split("\n")
