"""The kernel that computes, for each pair (i, j) of a list, the sum over k of the step of A[i,k] and B[j,k] (for
example their product), and passes the sums to a sink.

A warp computes 32 sums one after the other, with a part of k in each lane, and keeps one sum in each lane; then the
lanes pass them to the sink together. The number of pairs is in device memory, because an earlier kernel may list them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from ptxgen.codegen.listed_pairs import PAIRS, ROOM, Launched, ListedPairs
from ptxgen.codegen.parts.parameters import (
    ParameterList,
    Parameters,
    given,
    other_addresses,
    scalar_parameters,
    sink_parameters,
)
from ptxgen.codegen.parts.selected_lists import SelectedLists
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import WARP, ceil_div
from ptxgen.lowering.algebra import PLUS_TIMES, InnerExpression
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.sink import SelectValues


class Sums(NamedTuple):
    """The registers of the sums that are passed to the sink."""

    vector: Tile


@dataclass(frozen=True)
class PairProducts(ListedPairs):
    """The kernel of sums of listed pairs. ``problem``: a problem of its class: sums in f32 of K-major operands, a step
    that is 0 for two zeros, and a sink that selects values."""

    kernel: ClassVar[str] = "kernel/pair_products.mako"
    BLOCKS: ClassVar[int] = 4  #: the most blocks per multiprocessor

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
        """The lines of the module's header that say what the kernel computes."""
        return [f"products of listed pairs, f32, accesses of {self.vec} elements", f"sink {self.problem.sink.template}"]

    def roundings(self, k: int) -> int:
        """The most roundings that a term of a sum of ``k`` terms is subject to."""
        lane: int = ceil_div(k, WARP)
        return lane + self.vec + 6

    @property
    def warps(self) -> int:
        return self.threads // WARP

    # ---- registers and parts that the sink reads

    @cached_property
    def selected(self) -> SelectedLists:
        return SelectedLists(self.problem)

    @cached_property
    def epilogue(self) -> Sums:
        return Sums(Tile("total", "f32", (1,)))

    @cached_property
    def tiles(self) -> tuple[Tile, Tile, Tile]:
        """The registers of loaded elements of A, of those of B, and of the parts of a lane's sum."""
        loads = (self.unrolled, self.vec)
        return Tile("a_load", "f32", loads), Tile("b_load", "f32", loads), Tile("lane_sum", "f32", (self.vec,))

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
        return [line for n in elements for line in self.step(total[n], a[u, n], b[u, n])]

    # ---- launches

    @property
    def rows(self) -> ParameterList:
        """The parameters of the kernel."""
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
        """The steps that compute ``p``. ``pairs``: the capacity of the list of pairs."""
        blocks = max(1, min(self.device.sms * self.BLOCKS, ceil_div(pairs, self.warps)))
        resets = (Step("", (x.bytes, 1, 1), arguments=(("u64", x.array),)) for x in p.sink.resets)
        arguments: Any = self.rows.arguments(Launched(p))
        return (*resets, Step(self.entry, (blocks, 1, 1), (self.threads, 1, 1), 0, arguments))

    @property
    def warp_elements(self) -> int:
        """The number of elements along k that a warp loads at once."""
        return WARP * self.vec
