"""The reduction of slices of K in global memory: its workspace, and the auxiliary kernels over C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ptxgen.codegen.arithmetic import Arithmetic
from ptxgen.codegen.batch import Batch, BatchRange
from ptxgen.codegen.c_access import CAccess
from ptxgen.codegen.fused_ops import FusedOps
from ptxgen.codegen.parts import Allocator, Part, Reduction
from ptxgen.codegen.source import Argument, Step
from ptxgen.codegen.vectorized import log2
from ptxgen.cuda_abi import GRID_LIMIT
from ptxgen.lowering.kernel_problem import KernelProblem

AUX_KERNEL_THREADS = 256  #: threads per block of auxiliary kernels


class Slicing(Protocol):
    """The numbers of the tile scheduler that the reduction depends on."""

    def slices(self, p: KernelProblem) -> int:
        """Slices of K that store partial sums."""

    def tiles(self, p: KernelProblem) -> tuple[int, int, int]:
        """Tiles of one batch item along both sides, and their product."""


@dataclass(frozen=True)
class CKernels(Part):
    """The kernel that scales C by beta before the main kernel, or the one that adds partial sums after it. ``entry``:
    name of the main kernel."""

    entry: str
    reduction: Reduction
    arithmetic: Arithmetic
    batch: Batch
    fused_ops: FusedOps
    c: CAccess
    scheduler: Slicing

    THREADS = AUX_KERNEL_THREADS
    template = "epilogue/splitk_kernels.mako"

    @property
    def names(self) -> tuple[str, ...]:
        """The auxiliary kernels: scale, reduce or none."""
        if self.reduction.prescales_c:
            return ("scale",)
        return ("reduce",) if self.reduction.stores_partials else ()

    def claim(self, p: KernelProblem, items: int, workspace: Allocator) -> None:
        if self.reduction.stores_partials:
            size = self.scheduler.slices(p) * items * p.m * p.n * self.arithmetic.bytes
            workspace.claim(size, "partial sums [slice][item][M][N]")
        if self.reduction.uses_flag:
            workspace.claim(4 * self.scheduler.tiles(p)[2] * items, "flags [item][tile]", zeroed=True)

    def steps(self, main: Step, p: KernelProblem, run: BatchRange) -> tuple[Step, ...]:
        """The launch of the main kernel with those that precede or follow it."""
        if self.reduction.prescales_c:
            return self._step("scale", p, run, ()), main
        if self.reduction.stores_partials:
            return main, self._step("reduce", p, run, (("u32", self.scheduler.slices(p)),))
        return (main,)

    def _step(self, name: str, p: KernelProblem, run: BatchRange, slices: tuple[Argument, ...]) -> Step:
        """The launch of an auxiliary kernel over C: 2^shift threads of a block along a row; grid.z counts batch
        items."""
        vectors = -(-p.n // self.c.vec)
        shift = min(log2(self.THREADS), (vectors - 1).bit_length())
        rows = self.THREADS >> shift
        grid = (-(-vectors // (1 << shift)), min(-(-p.m // rows), GRID_LIMIT), run.items)
        arguments: tuple[Argument, ...] = (
            ("u64", "C"),
            ("u64", "W"),
            *self.fused_ops.arguments,
            *self.batch.arguments(p, run),
            *self.c.addressing.arguments(p),
            ("u32", p.m),
            ("u32", p.n),
            ("u32", p.operand("C").access.ld),
            ("u32", shift),
            (self.arithmetic.type, "beta"),
            *slices,
        )
        return Step(f"{self.entry}_{name}", grid, (self.THREADS, 1, 1), 0, arguments)
