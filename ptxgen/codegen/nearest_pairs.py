"""Kernels that find the best of the listed pairs of each row: the least or greatest sum over k, and the first of equal
ones.

Each thread computes whole sums, in the order of k. The number of pairs is in device memory, because an earlier kernel
may list them. A pair becomes a record of 64 bits: the value in the upper half, the column in the lower, both encoded so
that better ones are greater. Atomic max finds the greatest record of a row, so results do not depend on timing. A
second kernel writes the results.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from ptxgen.codegen.listed_pairs import PAIRS, ROOM, Launched, ListedPairs
from ptxgen.codegen.parts.parameters import ParameterList, Parameters, given, other_addresses, scalar_parameters
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import ceil_div
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.row_reduce import RowReduce
from ptxgen.lowering.states import POSITIONS

RECORDS = "row_records"
RECORD_BYTES = 8
GREATEST = ("max", "argmax")  #: the reductions that find greatest values


@dataclass(frozen=True)
class NearestPairs(ListedPairs):
    """The kernels that reduce the listed pairs of each row by min, max, argmin or argmax. ``problem``: a problem of
    their class: sums in f32 of K-major operands."""

    kernel: ClassVar[str] = "kernel/nearest_pairs.mako"
    BLOCKS: ClassVar[int] = 8  #: the most blocks per multiprocessor

    @property
    def sink(self) -> RowReduce:
        sink = self.problem.sink
        assert isinstance(sink, RowReduce)
        return sink

    @property
    def entry(self) -> str:
        return f"nearest_{self.problem.name}"

    @property
    def description(self) -> list[str]:
        """The lines of the module's header that say what the kernels compute."""
        return [f"{self.sink.op} of listed pairs, f32, accesses of {self.vec} elements"]

    def roundings(self, k: int) -> int:
        """The most roundings that a term of a sum of ``k`` terms is subject to."""
        return k

    # ---- registers and instructions

    @property
    def value(self) -> str:
        """The register of the value of a pair."""
        return self.values.of(0)[0]

    @cached_property
    def tiles(self) -> tuple[Tile, Tile]:
        """The registers of loaded elements of A and of B."""
        return Tile("a_load", "f32", (self.unrolled, self.vec)), Tile("b_load", "f32", (self.unrolled, self.vec))

    @property
    def step_lines(self) -> list[str]:
        """The instructions of the steps of all loads, in the order of k."""
        return [line for u in range(self.unrolled) for n in range(self.vec) for line in self._step(u, n)]

    @property
    def last_step(self) -> list[str]:
        """The instructions of the step of one element, for the remainder of k."""
        return self._step(0, 0)

    def _step(self, u: int, n: int) -> list[str]:
        a, b = self.tiles
        return self.step("%total", a[u, n], b[u, n])

    @property
    def loads(self) -> list[tuple[str, str, int]]:
        """For each load in flight: the registers of A, the registers of B, and the byte offset."""
        a, b = self.tiles
        return [(a[u, :], b[u, :], u * self.vec * 4) for u in range(self.unrolled)]

    @property
    def step_elements(self) -> int:
        """The number of elements along k of all loads in flight."""
        return self.unrolled * self.vec

    @property
    def step_bytes(self) -> int:
        return 4 * self.step_elements

    @property
    def step_mask(self) -> int:
        """The bit mask that rounds K down to a multiple of ``step_elements``."""
        return -self.step_elements & 0xFFFFFFFF

    @property
    def least(self) -> bool:
        """True if results are least values."""
        return self.sink.op not in GREATEST

    @property
    def stores_index(self) -> bool:
        """True if results are indices of columns."""
        return self.sink.op in POSITIONS

    @property
    def best_parameters(self) -> ParameterList:
        rows = Parameters("u32", ("M",), lambda x: (x.p.m,))
        return ParameterList((given("u64", RECORDS, "C"), rows))

    # ---- launches

    @property
    def rows(self) -> ParameterList:
        """The parameters of the kernel that computes pairs."""
        return ParameterList(
            [
                given("u64", *(x.name for x in self.problem.operands), *PAIRS, RECORDS),
                *other_addresses(self.problem),
                given(ROOM.type, ROOM.name),
                Parameters("u32", ("K",), lambda x: (x.p.k,)),
                Parameters("u32", ("lda", "ldb"), lambda x: (x.p.operand(name).access.ld for name in "AB")),
                *scalar_parameters(self.problem.scalars),
            ]
        )

    def steps(self, p: KernelProblem, pairs: int) -> tuple[Step, ...]:
        """The steps that compute ``p``. ``pairs``: the capacity of the list of pairs."""
        blocks = max(1, min(self.device.sms * self.BLOCKS, ceil_div(pairs, self.threads)))
        block, x = (self.threads, 1, 1), Launched(p)
        arguments: Any = self.rows.arguments(x)
        return (
            Step("", (p.m * RECORD_BYTES, 1, 1), arguments=(("u64", RECORDS),)),
            Step(self.entry, (blocks, 1, 1), block, 0, arguments),
            Step("best_rows", (ceil_div(p.m, self.threads), 1, 1), block, 0, self.best_parameters.arguments(x)),
        )
