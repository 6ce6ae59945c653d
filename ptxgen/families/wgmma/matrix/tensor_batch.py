"""The batch of wgmma kernels: batch items are the third direction of the tensors."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.codegen.parts.batch import Batch
from ptxgen.codegen.parts.parameters import Parameters


@dataclass(frozen=True)
class TensorBatch(Batch):
    """The batch, whose items are a direction of the tensors. A tensor that all items share has one item. ``names``:
    names of the operands X and Y; ``planes``: True if these are planes of the launch's items."""

    names: str
    planes: bool

    skipped = "%min_iters"  #: register with the K iterations of the other warpgroup's tile, for pingpong
    frees_last = "%arrives_empty"  #: predicate that is true if the thread frees the last stage of a tile

    @property
    def coordinates(self) -> list[str]:
        """For each tensor, the register with the coordinate of an item."""
        return [f"%item_{name}" for name in self.names] if self.active else []

    @property
    def last(self) -> list[str]:
        """For each tensor, the register with its last item."""
        return [f"%last_{name}" for name in self.names] if self.active else []

    @property
    def number(self) -> str:
        """The register with the number of an item in the tensors."""
        return "%item" if self.planes else "%batch_index"

    @property
    def parameters(self) -> list[Parameters]:
        """The parameters of a batch, with the last items of tensors A and B in place of strides."""
        if not self.active:
            return []
        return [
            Parameters("u64", ("batch_stride_c",), lambda x: x.p.offsets[2:]),
            Parameters("u32", ("first_item", "items"), lambda x: (x.run.first, x.run.items), same_line=True),
            Parameters("u32", ("last_a", "last_b"), lambda x: (x.p.batch - 1 if n else 0 for n in x.p.offsets[:2])),
        ]

    @property
    def coordinate_registers(self) -> str:
        return ", ".join([*self.coordinates, *self.last])
