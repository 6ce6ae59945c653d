"""Sums over k of listed pairs of rows: what their kernels share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

from ptxgen.codegen.device_text import DeviceText
from ptxgen.codegen.parts.algebra import ExpressionReducer
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.result_values import ResultValues
from ptxgen.codegen.registers import width
from ptxgen.lowering.algebra import InnerExpression, Scalar
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

#: the arrays of the list: i, j, each of 32 bits, and their number, of 64 bits
PAIRS = ("pairs_i", "pairs_j", "pair_count")
ROOM = Scalar("pair_room", "u64")  #: elements of the list; if there are more pairs, the kernel computes none


class Launched(NamedTuple):
    """What a launch computes. ``p``: its problem; ``sink_offset``: of a workspace, which no sink here has."""

    p: KernelProblem
    sink_offset: int = 0


@dataclass(frozen=True)
class ListedPairs(DeviceText):
    """Kernels for problems like ``problem``: sums of f32 of rows of operands that are K-major."""

    problem: KernelProblem
    device: Device

    threads: ClassVar[int] = 256
    unrolled: ClassVar[int] = 4  #: loads of each operand in flight

    @property
    def vec(self) -> int:
        """Elements of an access to A and to B."""
        return int(min(4, *(x.access.vec for x in self.problem.operands)))

    @property
    def access_type(self) -> str:
        return width(self.vec, "f32")

    @cached_property
    def values(self) -> ResultValues:
        return ResultValues(self.problem, self.device.sm, 1, 1, 1)

    @cached_property
    def _reducer(self) -> ExpressionReducer | None:
        """The reducer of a step that is no product."""
        if not isinstance(self.problem.algebra, InnerExpression):
            return None
        return ExpressionReducer(self.problem, Arithmetic.of(self.problem), self.device.sm)

    @property
    def step_temporaries(self) -> list[str]:
        """The declarations of the registers that steps use besides their operands."""
        return [] if self._reducer is None else self._reducer.step_temporaries

    def step(self, total: str, a: str, b: str) -> list[str]:
        """The instructions that add the step of ``a`` and ``b`` to ``total``."""
        pattern = "fma.rn.f32 {0}, {1}, {2}, {0};"
        if (reducer := self._reducer) is not None:
            pattern = reducer.step_pattern([reducer.algebra.a, reducer.algebra.b])
        return pattern.format(total, a, b).split("\n")
