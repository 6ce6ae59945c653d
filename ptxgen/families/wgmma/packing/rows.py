"""The packing of A and B to rows of whole 128 bytes.

One kernel copies all operands that TMA cannot map, 16 bytes per thread. Another kernel transposes each operand whose
packed form must be K-major.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.config.config import Config, packs
from ptxgen.codegen.launches.copy_kernel import CopyPacking
from ptxgen.codegen.launches.launched import BatchRange, Launched
from ptxgen.codegen.launches.packing import MappedOperand
from ptxgen.codegen.parts.parameters import (
    ParameterList,
    Parameters,
    TensorMaps,
    given,
    on_one_line,
    other_addresses,
)
from ptxgen.codegen.source import Step, TensorMap
from ptxgen.families.wgmma.operand_packing import all_bytes, mapped, packed_operand, row_copy, transposes
from ptxgen.families.wgmma.packing.transpose_kernel import TransposeKernel
from ptxgen.families.wgmma.tensor_maps import Matrix, matrix_map, stored
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.packed_copy import PackedCopy


@dataclass(frozen=True)
class RowPacking(CopyPacking):
    """The packing to rows of whole 128 bytes, K-major if wgmma needs that."""

    config: Config

    template = "copy/pack_kernels.mako"

    @cached_property
    def names(self) -> list[str]:
        return [name for name in "ab" if packs(self.config, name)]

    @cached_property
    def transposed(self) -> list[str]:
        """The operands that the transpose kernel packs, each with all its items."""
        return [name for name in self.names if transposes(self.problem, name)]

    @cached_property
    def copied(self) -> list[str]:
        """The operands that the copy kernel packs, or copies for the transpose kernel."""
        return [name for name in self.names if not (name in self.transposed and mapped(self.problem, name))]

    @cached_property
    def transpose_kernel(self) -> TransposeKernel:
        return TransposeKernel(self.problem.element.bytes)

    def copy(self, p: KernelProblem, name: str) -> PackedCopy:
        return row_copy(p, name)

    def offset(self, x: Launched, name: str) -> int:
        first = x.run.first * self.copy_bytes(x.p, name) if self.item_bytes(x.p, name) else 0
        return {**x.buffers.packed, **x.buffers.staging}.get(name, 0) + first

    # ---- the kernel that transposes

    def transpose_rows(self, name: str) -> ParameterList:
        """The parameters of the transpose kernel for an operand."""
        numbers = Parameters("u32", ("k_tiles", "first_item"), lambda x: (self._k_tiles(x.p), self._items(x, name)[0]))
        others = on_one_line([*other_addresses(self.problem), numbers])
        maps = TensorMaps("map", ("map_from", "map_to"), lambda x: self._transpose_maps(x, name))
        return ParameterList((given("u64", "C", "W"), *others, maps))

    def tensor_map(self, launched: Launched, x: MappedOperand, element_type: str, direct: TensorMap) -> TensorMap:
        p, packed = launched.p, launched.buffers.packed
        if x.name not in packed:
            return direct
        matrix, offset = self._matrix(p, x.name, packed_operand(p, x.name)), packed[x.name]
        return matrix_map(p, "W", element_type, matrix, p.element.bytes, x.box, x.span, self.batch.active, offset)

    def buffer_bytes(self, p: KernelProblem, run: BatchRange) -> tuple[dict[str, int], dict[str, int]]:
        staged = [name for name in self.copied if name in self.transposed]
        packed = {name: all_bytes(p, name, packed_operand(p, name)) for name in self.names}
        return packed, {name: all_bytes(p, name, row_copy(p, name)) for name in staged}

    def _matrix(self, p: KernelProblem, name: str, copy: PackedCopy) -> Matrix:
        """The matrix of a copy in the workspace."""
        return copy.depth, copy.row_count, copy.pitch, copy.size * p.element.bytes if p.offsets["ab".index(name)] else 0

    def steps(self, launched: Launched) -> tuple[Step, ...]:
        transposed = self.transposed if self.packs(launched.p) else []
        return (*super().steps(launched), *(self._transpose_step(launched, name) for name in transposed))

    def _k_tiles(self, p: KernelProblem) -> int:
        tiles: int = -(-p.k // self.transpose_kernel.DEPTH)
        return tiles

    def _items(self, launched: Launched, name: str) -> tuple[int, int]:
        """The first item that the transpose kernel packs, and the number of items: those of the launch, or one that all
        items share."""
        return (launched.run.first, launched.run.items) if launched.p.offsets["ab".index(name)] else (0, 1)

    def _transpose_maps(self, launched: Launched, name: str) -> tuple[TensorMap, TensorMap]:
        """The tensor map of the operand, or of its copy that TMA can map; and the tensor map of its packed form."""
        p, t, buffers = launched.p, self.transpose_kernel, launched.buffers
        size, batched = p.element.bytes, self.batch.active
        element_type = "s32" if size == 4 else "u8"
        operand, matrix, offset = name.upper(), stored(p, name), 0
        if name in buffers.staging:
            operand, matrix, offset = "W", self._matrix(p, name, row_copy(p, name)), buffers.staging[name]
        packed = self._matrix(p, name, packed_operand(p, name))
        return (
            matrix_map(p, operand, element_type, matrix, size, (t.side, t.DEPTH), t.ROW, batched, offset),
            matrix_map(p, "W", element_type, packed, size, (t.side, t.side), t.ROW, batched, buffers.packed[name]),
        )

    def _transpose_step(self, launched: Launched, name: str) -> Step:
        """The launch of the transpose kernel."""
        t, extent = self.transpose_kernel, packed_operand(launched.p, name).row_count
        grid = (self._k_tiles(launched.p) * -(-extent // t.side), 1, self._items(launched, name)[1])
        arguments = self.transpose_rows(name).arguments(launched)
        return Step(f"{self.entry}_transpose", grid, (t.threads, 1, 1), t.shared, arguments)

    @property
    def transpose_coordinates(self) -> tuple[int, str]:
        """The rank of the transposed tensors, and their last coordinate."""
        return (3, ", %item") if self.batch.active else (2, "")

    @property
    def transposed_text(self) -> str:
        return " and ".join(name.upper() for name in self.transposed)
