"""Kernels that pack operands into the workspace before the product: one mechanism for every kind of packing.

A packing allocates its buffers behind what the product itself keeps in the workspace, launches its kernels, and gives
the product's tensor maps the addresses of the buffers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ptxgen.codegen.plan import BatchRange, Plan
from ptxgen.codegen.source import Argument, Launch, Step, TensorMap
from ptxgen.codegen.vectorized import ceil_div
from ptxgen.families.wgmma.layout import OperandPath
from ptxgen.families.wgmma.operand_packing import ROW
from ptxgen.lowering.kernel_gemm import KernelGemm

POINTERS: tuple[Argument, ...] = (("u64", "A"), ("u64", "B"), ("u64", "C"), ("u64", "W"))


@dataclass(frozen=True)
class Buffers:
    """Offsets in the workspace: ``packed``, by operand, of what the product reads; ``staging``, by operand, of what one
    packing kernel leaves to the next; ``end``: of all of them."""

    packed: dict[str, int]
    staging: dict[str, int]
    end: int


@dataclass(frozen=True)
class Packing:
    """No packing: the product reads A and B where they are. ``entry``: name of the product's kernel."""

    problem: KernelGemm
    entry: str
    batched: bool

    template = "addr/no_packing.mako"
    packs_empty = False  #: whether it runs where K is zero

    @property
    def names(self) -> list[str]:
        """The operands that it packs."""
        return []

    @property
    def summary(self) -> str:
        """What the header says about it."""
        return ""

    def packed_map(self, p: KernelGemm, x: OperandPath, kind: str, direct: TensorMap) -> TensorMap:
        """The map that the product has of an operand; ``direct``: the map of the operand where it is."""
        return direct

    def placed_map(self, p: KernelGemm, run: BatchRange, x: OperandPath, packed: TensorMap, offset: int) -> TensorMap:
        """The map of an operand whose buffer is ``offset`` bytes into the workspace."""
        return replace(packed, offset=offset)

    def allocate(self, p: KernelGemm, run: BatchRange, start: int) -> Buffers:
        """Buffers from ``start`` on."""
        return Buffers({}, {}, start)

    def steps(self, p: KernelGemm, run: BatchRange, buffers: Buffers) -> tuple[Step, ...]:
        """The launches of the packing kernels."""
        return ()

    def launch(
        self, p: KernelGemm, run: BatchRange, product: Launch, operands: tuple[OperandPath, OperandPath]
    ) -> Launch:
        """``product`` behind the packing kernels, its maps of packed operands at their buffers."""
        if not self.names or (p.k == 0 and not self.packs_empty):
            return product
        buffers = self.allocate(p, run, ceil_div(product.workspace, ROW) * ROW)
        paths = iter([x for x in operands if x.name in buffers.packed])
        steps = []
        for step in product.steps:
            arguments: list[Argument] = []
            for kind, value in step.arguments:
                if isinstance(value, TensorMap) and value.operand == "W":
                    x = next(paths)
                    value = self.placed_map(p, run, x, value, buffers.packed[x.name])
                arguments.append((kind, value))
            steps.append(replace(step, arguments=tuple(arguments)))
        return Launch((*self.steps(p, run, buffers), *steps), buffers.end)

    @staticmethod
    def array_arguments(p: KernelGemm) -> tuple[Argument, ...]:
        """Addresses of the epilogue's arrays, which every kernel of a plan takes."""
        return Plan._epilogue_arguments(p)
