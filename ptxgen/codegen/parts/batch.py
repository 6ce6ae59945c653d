"""The part for the batch items of a launch."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.parts.part import Part
from ptxgen.problem.base import ARRAYS_LIKE_C


@dataclass(frozen=True)
class Batch(Part):
    """The part that finds a block's batch item. ``active``: True if the problem is a batch; one kernel serves every
    batch size above 1."""

    active: bool

    @property
    def items(self) -> str:
        """The slot that computes a block's batch item from the block's number."""
        return "sched/batch.mako" if self.active else "sched/one_item.mako"

    @property
    def template(self) -> str:
        """The slot that schedules include to find the block's batch item."""
        return self.items

    @property
    def c_base(self) -> str:
        """The register with the address of C of the block's batch item."""
        return "%item_c" if self.active else "%C"

    @property
    def bases(self) -> dict[str, str]:
        """C, or an array of its shape that fused operations have located -> the register with its address for the
        block's batch item."""
        return {"C": self.c_base, **dict.fromkeys(ARRAYS_LIKE_C, "%operand_ptr")}

    @property
    def parameters(self) -> list[Parameters]:
        """The parameters: byte strides of A, B and C, the launch's first item, and its number of items."""
        if not self.active:
            return []
        return [
            Parameters("u64", ("batch_stride_a", "batch_stride_b", "batch_stride_c"), lambda x: x.p.offsets),
            Parameters("u32", ("first_item", "items"), lambda x: (x.run.first, x.run.items)),
        ]

    @property
    def text(self) -> str:
        return " of the block's batch item" if self.active else ""
