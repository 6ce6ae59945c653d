"""The best of the listed pairs of each row: sums over k in the order of k, of which the least or greatest, and the
first of equal ones, is the result of the row.

A thread computes one sum after the other. The number of pairs is in device memory, so that an earlier kernel may have
listed them. A pair becomes a record of 64 bits, its value above its column, both so that better ones are greater; the
greatest record of a row is found by atomic instructions, so results do not depend on timing. A second kernel writes
the results.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from ptxgen.codegen.listed_pairs import PAIRS, ROOM, Launched, ListedPairs
from ptxgen.codegen.parts.parameters import ParameterList, Parameters, given
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import ceil_div
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.row_reduce import RowReduce
from ptxgen.lowering.states import POSITIONS

RECORDS = "row_records"
RECORD_BYTES = 8
GREATEST = ("max", "argmax")  #: the reductions whose results are greatest values


@dataclass(frozen=True)
class NearestPairs(ListedPairs):
    """The kernels for problems like ``problem``: sums of f32 of operands that are K-major, whose sink reduces rows by
    min, max, argmin or argmax."""

    kernel: ClassVar[str] = "kernel/nearest_pairs.mako"
    BLOCKS: ClassVar[int] = 8  #: on each multiprocessor

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
        """What the kernels compute, for the header of the module."""
        return [f"{self.sink.op} of listed pairs, f32, accesses of {self.vec} elements"]

    def roundings(self, k: int) -> int:
        """Roundings of a sum over ``k`` along the longest path from a step."""
        return k

    # ---- registers and instructions

    @property
    def value(self) -> str:
        """The register of the value of a pair."""
        return self.values.of(0)[0]

    @cached_property
    def tiles(self) -> tuple[Tile, Tile]:
        """The registers of A and of B."""
        return Tile("a_load", "f32", (self.unrolled, self.vec)), Tile("b_load", "f32", (self.unrolled, self.vec))

    @property
    def step_lines(self) -> list[str]:
        """The instructions of the steps of all loads, in the order of k."""
        return [line for u in range(self.unrolled) for n in range(self.vec) for line in self._step(u, n)]

    @property
    def last_step(self) -> list[str]:
        """The instructions of the step of one element."""
        return self._step(0, 0)

    def _step(self, u: int, n: int) -> list[str]:
        a, b = self.tiles
        return self.step("%total", a[u, n], b[u, n])

    @property
    def loads(self) -> list[tuple[str, str, int]]:
        """The triples (registers of A, registers of B, offset) of the loads in flight."""
        a, b = self.tiles
        return [(a[u, :], b[u, :], u * self.vec * 4) for u in range(self.unrolled)]

    @property
    def step_elements(self) -> int:
        """Elements of k of all loads in flight."""
        return self.unrolled * self.vec

    @property
    def step_bytes(self) -> int:
        return 4 * self.step_elements

    @property
    def step_mask(self) -> int:
        """What rounds K down to whole steps."""
        return -self.step_elements & 0xFFFFFFFF

    @property
    def least(self) -> bool:
        """True if results are least values."""
        return self.sink.op not in GREATEST

    @property
    def stores_index(self) -> bool:
        """True if results are columns."""
        return self.sink.op in POSITIONS

    @property
    def best_parameters(self) -> ParameterList:
        rows = Parameters("u32", ("M",), lambda x: (x.p.m,))
        return ParameterList((given("u64", RECORDS, "C"), rows))

    # ---- launches

    @property
    def rows(self) -> ParameterList:
        """The parameters of the first kernel."""
        return ParameterList(
            [
                given("u64", *(x.name for x in self.problem.operands), *PAIRS, RECORDS),
                given(ROOM.type, ROOM.name),
                Parameters("u32", ("K",), lambda x: (x.p.k,)),
                Parameters("u32", ("lda", "ldb"), lambda x: (x.p.operand(name).access.ld for name in "AB")),
            ]
        )

    def steps(self, p: KernelProblem, pairs: int) -> tuple[Step, ...]:
        """The steps that compute ``p``, for a list of at most so many pairs."""
        blocks = max(1, min(self.device.sms * self.BLOCKS, ceil_div(pairs, self.threads)))
        block, x = (self.threads, 1, 1), Launched(p)
        arguments: Any = self.rows.arguments(x)
        return (
            Step("", (p.m * RECORD_BYTES, 1, 1), arguments=(("u64", RECORDS),)),
            Step(self.entry, (blocks, 1, 1), block, 0, arguments),
            Step("best_rows", (ceil_div(p.m, self.threads), 1, 1), block, 0, self.best_parameters.arguments(x)),
        )
