"""The kernel that makes the descriptor table of a jagged group from offsets on the device."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.batch import BatchRange
from ptxgen.codegen.grouped import DescriptorTable
from ptxgen.codegen.packing import ROW, Buffers, Packing
from ptxgen.codegen.parts import Allocator
from ptxgen.codegen.source import Argument, Step
from ptxgen.codegen.vectorized import WARP, ceil_div
from ptxgen.lowering.descriptor_table import items_of
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.dtypes import bits_of, dtype

THREADS = 256  #: threads of the block


@dataclass(frozen=True)
class JaggedTable(Packing):
    """One block makes the table in the workspace before the product; each of its threads makes descriptors.

    The offsets are clamped to the extent of the whole array, so that no item is outside it.
    """

    layout: DescriptorTable

    template = "sched/jagged_table.mako"
    THREADS = THREADS
    WARPS = THREADS // WARP

    @property
    def arrays(self) -> list[str]:
        """The arrays whose addresses a descriptor has: A, B, C and the operands of the epilogue."""
        return ["a", "b", "c", *self.layout.operands]

    @property
    def along_k(self) -> bool:
        """Whether items differ in K. They are then sorted, the longest first."""
        return items_of(self.problem).jagged == "k"

    @property
    def one(self) -> str:
        """1 in the type of alpha and beta, as PTX writes it."""
        return bits_of(1.0, dtype(self.layout.kind)) if self.layout.kind != "s32" else "1"

    def allocate(self, p: KernelProblem, run: BatchRange, workspace: Allocator) -> Buffers:
        size = self.layout.bytes(len(items_of(p).items))
        return Buffers({"table": workspace.claim(size, "descriptor table", ROW).offset})

    @property
    def parameters(self) -> list[str]:
        """The parameters of the kernel, after the addresses. ``by_x``: bytes from the array x of one item to that of
        the next; ``along_x``: bytes per element along the jagged axis."""
        return [
            ".param .u64 table, .param .u32 items, .param .u32 extent,",
            ".param .u32 M, .param .u32 N, .param .u32 K, .param .u32 lda, .param .u32 ldb, .param .u32 ldc,",
            ", ".join(f".param .u64 by_{x}, .param .u64 along_{x}" for x in self.arrays),
        ]

    def steps(self, p: KernelProblem, run: BatchRange, buffers: Buffers) -> tuple[Step, ...]:
        group = items_of(p)
        m, n, k = (int(x) for x in group.extents.max(axis=0, initial=0))
        ends = group.offsets
        arguments: tuple[Argument, ...] = (
            *self.pointers,
            ("u64", buffers.packed["table"]),
            ("u32", len(group.items)),
            ("u32", int(ends[-1]) if len(ends) else 0),
            *(("u32", x) for x in (m, n, k, *(int(ld) for ld in group.lds.max(axis=0, initial=1)))),
            *(("u64", step) for name in self.arrays for step in group.steps(name)),
        )
        shared = 4 * (self.WARPS + (len(group.items) if self.along_k else 0))
        return (Step(f"{self.entry}_table", (1, 1, 1), (self.THREADS, 1, 1), ceil_div(shared, 16) * 16, arguments),)
