"""Sums of listed pairs: for each pair (i, j) of a list, the sum over k of the step of A[i,k] and B[j,k], as their
product or the square of their difference, which a sink takes.

A warp adds one sum after the other, with a part of k in each lane, and keeps one for each of its lanes; then the lanes
give them to the sink together. The number of pairs is in device memory, so that an earlier kernel may have listed them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from ptxgen.codegen.device_text import DeviceText
from ptxgen.codegen.parts.algebra import ExpressionReducer
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.parameters import (
    ParameterList,
    Parameters,
    ScalarGroup,
    given,
    other_addresses,
    scalar_parameters,
    sink_parameters,
)
from ptxgen.codegen.parts.result_values import ResultValues
from ptxgen.codegen.parts.selected_lists import SelectedLists
from ptxgen.codegen.registers import Tile, width
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import WARP, ceil_div
from ptxgen.lowering.algebra import PLUS_TIMES, InnerExpression, Scalar
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.sink import SelectValues
from ptxgen.problem.device import Device

#: the arrays of the list: i, j, each of 32 bits, and their number, of 64 bits
PAIRS = ("pairs_i", "pairs_j", "pair_count")
ROOM = Scalar("pair_room", "u64")  #: elements of the list; if there are more pairs, the kernel computes none


class Sums(NamedTuple):
    """The registers of the sums that the sink takes."""

    vector: Tile


class Launched(NamedTuple):
    """What a launch computes. ``p``: its problem; ``sink_offset``: of a workspace, which no sink here has."""

    p: KernelProblem
    sink_offset: int = 0


@dataclass(frozen=True)
class PairProducts(DeviceText):
    """The kernel for problems like ``problem``: sums of f32 whose step is 0 for two zeros, of operands that are
    K-major, and whose sink selects values."""

    problem: KernelProblem
    device: Device

    kernel: ClassVar[str] = "kernel/pair_products.mako"
    threads: ClassVar[int] = 256
    unrolled: ClassVar[int] = 4  #: loads of each operand in flight
    BLOCKS: ClassVar[int] = 4  #: on each multiprocessor

    def __post_init__(self) -> None:
        p = self.problem
        assert p.algebra is PLUS_TIMES or (isinstance(p.algebra, InnerExpression) and p.algebra.pads_with_zero)
        assert isinstance(p.sink, SelectValues)
        assert p.batch == 1
        assert all(x.dtype == "f32" and x.access.kmajor for x in p.operands)

    @property
    def entry(self) -> str:
        return f"pairs_{self.problem.name}"

    @property
    def description(self) -> list[str]:
        """What the kernel computes, for the header of the module."""
        return [f"products of listed pairs, f32, accesses of {self.vec} elements", f"sink {self.problem.sink.template}"]

    @property
    def vec(self) -> int:
        """Elements of an access to A and to B."""
        return int(min(4, *(x.access.vec for x in self.problem.operands)))

    def roundings(self, k: int) -> int:
        """Roundings of a sum over ``k`` along the longest path from a product."""
        lane: int = ceil_div(k, WARP)
        return lane + self.vec + 6

    @property
    def warps(self) -> int:
        return self.threads // WARP

    # ---- registers and parts that the sink reads

    @cached_property
    def values(self) -> ResultValues:
        return ResultValues(self.problem, self.device.sm, 1, 1, 1)

    @cached_property
    def selected(self) -> SelectedLists:
        return SelectedLists(self.problem)

    @cached_property
    def epilogue(self) -> Sums:
        return Sums(Tile("total", "f32", (1,)))

    @cached_property
    def tiles(self) -> tuple[Tile, Tile, Tile]:
        """The registers of A, of B and of the parts of a sum."""
        loads = (self.unrolled, self.vec)
        return Tile("a_load", "f32", loads), Tile("b_load", "f32", loads), Tile("lane_sum", "f32", (self.vec,))

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

    @property
    def step_lines(self) -> list[list[str]]:
        """The instructions of the steps of each load."""
        return [self._steps(u, range(self.vec)) for u in range(self.unrolled)]

    @property
    def last_step(self) -> list[str]:
        """The instructions of the step of an element after the last whole vector."""
        return self._steps(0, range(1))

    def _steps(self, u: int, elements: range) -> list[str]:
        a, b, total = self.tiles
        pattern = "fma.rn.f32 {0}, {1}, {2}, {0};"
        if (reducer := self._reducer) is not None:
            pattern = reducer.step_pattern([reducer.algebra.a, reducer.algebra.b])
        steps = (pattern.format(total[n], a[u, n], b[u, n]) for n in elements)
        return [line for step in steps for line in step.split("\n")]

    @property
    def scalars_after_sums(self) -> list[ScalarGroup]:
        return [ScalarGroup(s.type, [s.name]) for s in self.problem.sink.scalars]

    # ---- launches

    @property
    def rows(self) -> ParameterList:
        """The parameters."""
        return ParameterList(
            [
                given("u64", *(x.name for x in (*self.problem.operands, *self.problem.outputs))),
                *other_addresses(self.problem),
                given("u64", *PAIRS),
                given(ROOM.type, ROOM.name),
                Parameters("u32", ("M", "N", "K"), lambda x: (x.p.m, x.p.n, x.p.k)),
                Parameters("u32", ("lda", "ldb"), lambda x: (x.p.operand(name).access.ld for name in "AB")),
                *scalar_parameters(self.problem.scalars),
                *sink_parameters(self.problem),
            ]
        )

    def steps(self, p: KernelProblem, pairs: int) -> tuple[Step, ...]:
        """The steps that compute ``p``, for a list of at most so many pairs."""
        blocks = max(1, min(self.device.sms * self.BLOCKS, ceil_div(pairs, self.warps)))
        resets = (Step("", (x.bytes, 1, 1), arguments=(("u64", x.array),)) for x in p.sink.resets)
        arguments: Any = self.rows.arguments(Launched(p))
        return (*resets, Step(self.entry, (blocks, 1, 1), (self.threads, 1, 1), 0, arguments))

    @property
    def warp_elements(self) -> int:
        """Elements of k that a warp loads at once."""
        return WARP * self.vec

    @property
    def access_type(self) -> str:
        return width(self.vec, "f32")
