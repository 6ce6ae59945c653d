"""The packing of f32 operands to bf16 planes, and the operand path that loads all planes of a stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxgen.codegen.launches.launched import BatchRange, Launched
from ptxgen.codegen.launches.packing import MappedOperand, Packing
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.source import Step, TensorMap
from ptxgen.codegen.vectorized import ceil_div
from ptxgen.families.wgmma import bf16x3
from ptxgen.families.wgmma.layout import Box, OperandPath
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.packed_copy import ROW


class SplitOperand(OperandPath):
    """The path of an operand's planes, which follow each other in a stage. The planes are the last direction of the
    tensor."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: bytes from one plane to the next
        self.plane_bytes = self.tile * self.depth * self.element
        self.boxes = [
            Box(i * self.plane_bytes + b.offset, b.inner, b.unit, f", {i}")
            for i in range(bf16x3.PLANES)
            for b in self.boxes
        ]
        self.tma_rank += 1
        self.tx_bytes *= bf16x3.PLANES


@dataclass(frozen=True)
class SplitPacking(Packing):
    """The packing of A and B to bf16 planes."""

    template = "addr/split_bf16x3.mako"
    numbers = bf16x3

    @property
    def names(self) -> list[str]:
        return ["a", "b"]

    @property
    def operands(self) -> list[bf16x3.PlanesOperand]:
        """The planes of A and of B."""
        return [bf16x3.planes_of(self.problem, name) for name in "ab"]

    @property
    def parameters(self) -> list[Parameters]:
        strides = Parameters("u64", ("batch_stride_a", "batch_stride_b"), lambda x: x.p.offsets[:2])
        first = Parameters("u32", ("first_item",), lambda x: (x.run.first,), same_line=True)
        return [
            Parameters("u32", ("K", "pitch", "blocks_a"), self._numbers),
            *([strides, first] if self.batch.active else []),
            *(row for name in self.names for row in self._operand(name)),
        ]

    def _numbers(self, launched: Launched) -> tuple[int, int, int]:
        p = launched.p
        return p.k, bf16x3.planes_of(p, "a").pitch, self._blocks(launched)[0]

    def _blocks(self, launched: Launched) -> list[int]:
        """The numbers of blocks for A and for B; 0: an earlier launch packed the operand."""
        operands = [(bf16x3.planes_of(launched.p, name), name in launched.packed) for name in self.names]
        return [
            0 if packed else ceil_div(o.rows, bf16x3.BLOCK_ROWS) * o.pitch // bf16x3.BLOCK_K for o, packed in operands
        ]

    def _operand(self, name: str) -> list[Parameters]:
        """The parameters of an operand."""
        items = tuple(f"{n}_{name}" for n in ("copy_item128", "items")) if self.batch.active else ()

        def numbers(x: Launched) -> tuple[int, ...]:
            o = bf16x3.planes_of(x.p, name)
            return o.rows, o.ld, x.buffers.packed[name] // ROW

        def batch(x: Launched) -> tuple[int, int]:
            return bf16x3.planes_of(x.p, name).bytes // ROW, bf16x3.distinct_items(x.p, name, x.run.items)

        return [
            Parameters("u32", tuple(f"{n}_{name}" for n in ("rows", "ld", "copy_offset128")), numbers),
            Parameters("u32", items, batch, same_line=True),
        ]

    def tensor_map(self, launched: Launched, x: MappedOperand, element_type: str, direct: TensorMap) -> TensorMap:
        p, packed = launched.p, launched.buffers.packed
        items, offset = (launched.run.items, packed[x.name]) if packed else (p.batch, 0)
        return self._planes_map(p, x, items, offset)

    def _planes_map(self, p: KernelProblem, x: MappedOperand, items: int, offset: int) -> TensorMap:
        """The tensor map of the planes of ``items`` batch items, ``offset`` bytes into the workspace. If K is zero, it
        has one element, a zero in the workspace."""
        o, distinct = bf16x3.planes_of(p, x.name), bf16x3.distinct_items(p, x.name, items)
        pitch, plane = o.pitch * bf16x3.FACTOR_BYTES, o.bytes // bf16x3.PLANES
        batch, item_bytes, one = ((distinct,), (o.bytes,), (1,)) if self.batch.active else ((), (), ())
        extents = (p.k, o.rows, *batch, bf16x3.PLANES)
        return TensorMap(
            "W",
            "bf16",
            extents if p.k else (1,) * len(extents),
            (pitch, *item_bytes, plane),
            (*x.box, *one, 1),
            x.span,
            offset=offset,
        )

    def buffer_bytes(self, p: KernelProblem, run: BatchRange) -> tuple[dict[str, int], dict[str, int]]:
        return {name: bf16x3.all_bytes(p, name, run.items) for name in self.names}, {}

    def steps(self, launched: Launched) -> tuple[Step, ...]:
        if not self.packs(launched.p):
            return ()
        grid, block = (sum(self._blocks(launched)), 1, launched.run.items), (bf16x3.THREADS, 1, 1)
        shared = 4 * bf16x3.BLOCK_ROWS * bf16x3.BLOCK_PITCH
        return (Step(f"{self.entry}_split_bf16x3", grid, block, shared, self.parameter_list.arguments(launched)),)
