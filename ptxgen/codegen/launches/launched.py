"""What one launch of the kernels of a product computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
class Buffers:
    """Offsets in the workspace: ``packed``: of the operands that the product reads, by name; ``staging``: of those
    that one packing kernel stores for the next."""

    packed: Mapping[str, int] = field(default_factory=dict)
    staging: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Launched:
    """The problem ``p`` and the batch items ``run`` of a launch, and the buffers of its packed operands.
    ``sink_offset``: of the sink's workspace, in bytes."""

    p: KernelProblem
    run: BatchRange
    buffers: Buffers = field(default_factory=Buffers)
    sink_offset: int = 0
