"""The batch items of a launch."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.parts import Part
from ptxgen.codegen.source import Argument
from ptxgen.lowering.kernel_problem import KernelProblem


@dataclass(frozen=True)
class BatchRange:
    """Consecutive batch items that one launch computes: ``items`` of them, the first is number ``first``."""

    first: int
    items: int

    @classmethod
    def split(cls, items: int, limit: int) -> list[BatchRange]:
        """``items`` batch items in ranges of at most ``limit``."""
        if 0 < items <= limit:
            return [cls(0, items)]
        return [cls(first, min(limit, items - first)) for first in range(0, items, limit)]


@dataclass(frozen=True)
class Batch(Part):
    """The batch. ``active``: whether the problem is one; a kernel serves every batch size above 1."""

    active: bool

    template = "sched/batch.mako"

    @property
    def c_base(self) -> str:
        """The register with the address of C of the block's batch item."""
        return "%item_c" if self.active else "%C"

    @property
    def parameters(self) -> list[str]:
        """Kernel parameters: byte strides of A, B and C, the launch's first item, its number of items."""
        if not self.active:
            return []
        return [
            ".param .u64 batch_stride_a, .param .u64 batch_stride_b, .param .u64 batch_stride_c,",
            ".param .u32 first_item, .param .u32 items,",
        ]

    def arguments(self, p: KernelProblem, run: BatchRange) -> tuple[Argument, ...]:
        """The values of ``parameters``."""
        if not self.active:
            return ()
        return (*(("u64", offset) for offset in p.offsets), ("u32", run.first), ("u32", run.items))
