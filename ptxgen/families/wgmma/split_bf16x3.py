"""Packing of f32 operands to bf16 planes, and the operand path that loads all planes of a stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ptxgen.codegen.batch import BatchRange
from ptxgen.codegen.config import Config
from ptxgen.codegen.packing import ROW, Buffers, MappedOperand, Packing
from ptxgen.codegen.source import Argument, Step, TensorMap
from ptxgen.codegen.vectorized import ceil_div
from ptxgen.families.wgmma import bf16x3
from ptxgen.families.wgmma.geometry import WgmmaGeometry
from ptxgen.families.wgmma.layout import Box, Multicast, OperandPath
from ptxgen.lowering.kernel_problem import KernelProblem


class SplitOperand(OperandPath):
    """The planes of an operand, one after the other in a stage: they are the last direction of its tensor."""

    def __init__(
        self,
        role: str,
        name: str,
        g: WgmmaGeometry,
        config: Config,
        base: int,
        multicast: Multicast | None,
        outer: Sequence[str] = (),
    ) -> None:
        super().__init__(role, name, g, config, base, multicast, outer)
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
    """A and B as bf16 planes."""

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
    def parameters(self) -> list[str]:
        """The parameters of the kernel after the addresses, in lines."""
        names = ("rows", "ld", "copy_offset128", *(("copy_item128", "items") if self.batch.active else ()))
        lines = [", ".join(f".param .u32 {n}_{x}" for n in names) for x in "ab"]
        items = (
            [".param .u64 batch_stride_a, .param .u64 batch_stride_b, .param .u32 first_item,"]
            if self.batch.active
            else []
        )
        return [".param .u32 K, .param .u32 pitch, .param .u32 blocks_a,", *items, f"{lines[0]},", lines[1]]

    def tensor_map(
        self, p: KernelProblem, run: BatchRange, x: MappedOperand, kind: str, direct: TensorMap, buffers: Buffers
    ) -> TensorMap:
        packed = buffers.packed
        return self._planes_map(p, x, run.items, packed[x.name]) if packed else self._planes_map(p, x, p.batch, 0)

    def _planes_map(self, p: KernelProblem, x: MappedOperand, items: int, offset: int) -> TensorMap:
        """The map of the planes of ``items`` batch items, ``offset`` bytes into the workspace. Where K is zero: of
        zeros in the workspace."""
        o, distinct = bf16x3.planes_of(p, x.name), bf16x3.distinct_items(p, x.name, items)
        pitch, plane = o.pitch * bf16x3.FACTOR_BYTES, o.bytes // bf16x3.PLANES
        extents = (p.k, o.rows) if p.k else (1, 1)
        batch, item_bytes, one = ((distinct,), (o.bytes,), (1,)) if self.batch.active else ((), (), ())
        return TensorMap(
            "W",
            "bf16",
            (*extents, *batch, bf16x3.PLANES),
            (pitch, *item_bytes, plane),
            (*x.box, *one, 1),
            x.span,
            offset=offset,
        )

    def buffer_bytes(self, p: KernelProblem, run: BatchRange) -> tuple[dict[str, int], dict[str, int]]:
        return {name: bf16x3.all_bytes(p, name, run.items) for name in self.names}, {}

    def steps(self, p: KernelProblem, run: BatchRange, buffers: Buffers) -> tuple[Step, ...]:
        if not self.packs(p):
            return ()
        operands = [bf16x3.planes_of(p, name) for name in self.names]
        blocks = [ceil_div(o.rows, bf16x3.BLOCK_ROWS) * o.pitch // bf16x3.BLOCK_K for o in operands]
        numbers: list[Argument] = [("u32", p.k), ("u32", operands[0].pitch), ("u32", blocks[0])]
        if self.batch.active:
            numbers += [("u64", p.offsets[0]), ("u64", p.offsets[1]), ("u32", run.first)]
        for o in operands:
            numbers += [("u32", n) for n in (o.rows, o.ld, buffers.packed[o.name] // ROW)]
            if self.batch.active:
                numbers += [("u32", o.bytes // ROW), ("u32", bf16x3.distinct_items(p, o.name, run.items))]
        shared = 4 * bf16x3.BLOCK_ROWS * bf16x3.BLOCK_PITCH
        arguments = (*self.pointers, *numbers)
        grid, block = (sum(blocks), 1, run.items), (bf16x3.THREADS, 1, 1)
        return (Step(f"{self.entry}_split_bf16x3", grid, block, shared, arguments),)
