"""The records of one launch of a product's kernels: its problem, batch items and buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ptxgen.codegen.launches.result_ranges import ResultRange
from ptxgen.lowering.kernel_problem import KernelProblem


@dataclass(frozen=True)
class BatchRange:
    """Consecutive batch items that one launch computes. ``first``: the index of the first; ``items``: their number."""

    first: int
    items: int

    @classmethod
    def split(cls, items: int, limit: int) -> list[BatchRange]:
        """The ranges of at most ``limit`` batch items that ``items`` batch items are split into."""
        if 0 < items <= limit:
            return [cls(0, items)]
        return [cls(first, min(limit, items - first)) for first in range(0, items, limit)]


@dataclass(frozen=True)
class Buffers:
    """Offsets of buffers in the workspace, by operand. ``packed``: packed operands, which the product reads;
    ``staging``: operands that one packing kernel stores for the next."""

    packed: Mapping[str, int] = field(default_factory=dict)
    staging: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Launched:
    """The kernel problem ``p`` and the batch items ``run`` of a launch, and its ``buffers`` of packed operands.
    ``sink_offset``: the byte offset of the sink's workspace; ``mirror_parts``: the number of the first state of a
    result (j, i) there; ``part``: the results of the launch, None: all; ``packed``: the operands that an earlier launch
    packed to the same buffers."""

    p: KernelProblem
    run: BatchRange
    buffers: Buffers = field(default_factory=Buffers)
    sink_offset: int = 0
    mirror_parts: int = 0
    part: ResultRange | None = None
    packed: frozenset[str] = frozenset()
