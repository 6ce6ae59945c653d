"""Packing of A and B to rows of whole 128 bytes.

One kernel copies all operands that TMA cannot map, 16 bytes a thread. Another transposes each operand whose packed form
must have K contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.launches.c_kernels import AUX_KERNEL_THREADS
from ptxgen.codegen.launches.launched import BatchRange, Launched
from ptxgen.codegen.launches.packing import ROW, MappedOperand, Packing
from ptxgen.codegen.parts.parameters import (
    ParameterList,
    Parameters,
    TensorMaps,
    given,
    on_one_line,
    other_addresses,
)
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import Step, TensorMap
from ptxgen.families.wgmma.operand_packing import mapped, packed_operand, packs, row_copy, transposes
from ptxgen.families.wgmma.packing.transpose_kernel import TransposeKernel
from ptxgen.families.wgmma.tensor_maps import matrix_map, stored
from ptxgen.lowering.kernel_problem import KernelProblem

CHUNK = 16  #: bytes that a thread copies at once
ROUNDS = 4  #: chunks of a thread where there are more than LARGE of them, so that many bytes are in flight
LARGE = 1 << 18


class RowCopyKernel:
    """Numbers of the kernel that copies rows of elements of ``size`` bytes."""

    THREADS, CHUNK, ROW, ROUNDS = AUX_KERNEL_THREADS, CHUNK, ROW, ROUNDS

    def __init__(self, size: int) -> None:
        self.size, self.bits = size, 8 * size
        #: elements of a chunk
        self.chunk_elements = CHUNK // size
        #: two aligned chunks; their words after 8 bytes or none are skipped, then after 4 or none
        self.loaded = Tile("loaded", "b32", (ROUNDS, 8))
        self.shifted_8 = Tile("shifted_by8_", "b32", (6,))
        self.shifted_4 = Tile("shifted_by4_", "b32", (5,))
        self.stored = Tile("stored", "b32", (4,)) if size < 4 else self.shifted_4


@dataclass(frozen=True)
class RowPacking(Packing):
    """Operands with rows of whole 128 bytes; K contiguous where wgmma needs that."""

    config: Config

    template = "copy/pack_kernels.mako"

    @cached_property
    def names(self) -> list[str]:
        return [name for name in "ab" if packs(self.config, name)]

    @cached_property
    def transposed(self) -> list[str]:
        """Operands that the transpose kernel packs, all items of them."""
        return [name for name in self.names if transposes(self.problem, name)]

    @cached_property
    def copied(self) -> list[str]:
        """Operands that the copy kernel packs, or copies for the transpose kernel."""
        return [name for name in self.names if not (name in self.transposed and mapped(self.problem, name))]

    @cached_property
    def copy_kernel(self) -> RowCopyKernel:
        return RowCopyKernel(self.problem.element.bytes)

    @cached_property
    def transpose_kernel(self) -> TransposeKernel:
        return TransposeKernel(self.problem.element.bytes)

    @property
    def parameters(self) -> list[Parameters]:
        """The parameters of the copy kernel after the addresses."""
        first = Parameters("u32", ("blocks_a",), lambda x: self._blocks(x.p)[:1])
        item = Parameters("u32", ("first_item",), lambda x: (x.run.first,))
        return [
            *([first] if len(self.copied) > 1 else []),
            *([item] if self.batch.active else []),
            *(row for name in self.copied for row in self._copy_numbers(name)),
        ]

    def _copy_numbers(self, name: str) -> list[Parameters]:
        """The parameters of the copy kernel for an operand."""

        def sizes(x: Launched) -> tuple[int, int]:
            columns, rows, _, _ = row_copy(x.p, name).matrix
            size, ld = x.p.element.bytes, stored(x.p, name)[2]
            return ((rows - 1) * ld + columns) * size, ld * size

        def counts(x: Launched) -> tuple[int, ...]:
            columns, rows, _, _ = row_copy(x.p, name).matrix
            offset = {**x.buffers.packed, **x.buffers.staging}[name]
            stride = self._blocks(x.p)[self.copied.index(name)] * AUX_KERNEL_THREADS
            return rows, columns, offset // ROW, stride

        def items(x: Launched) -> tuple[int]:
            return (x.run.items if row_copy(x.p, name).matrix[3] else 1,)

        batch = [
            Parameters("u64", ("batch_stride",), lambda x: stored(x.p, name)[3:]),
            Parameters("u32", ("items",), items),
            Parameters("u64", ("copy_item_bytes",), lambda x: row_copy(x.p, name).matrix[3:]),
        ]
        numbers = [
            Parameters("u64", ("bytes", "ld"), sizes),
            *on_one_line(
                [
                    Parameters("u32", ("rows", "columns", "copy_offset128", "chunk_stride"), counts),
                    *(batch if self.batch.active else []),
                ]
            ),
        ]
        return [replace(row, names=tuple(f"{n}_{name}" for n in row.names)) for row in numbers]

    def copy_registers(self, name: str) -> list[tuple[str, str]]:
        """Type and register of each number that the copy kernel takes for an operand."""
        rows = self._copy_numbers(name)
        return [(row.ptx_type, n.removesuffix(f"_{name}")) for row in rows for n in row.names]

    def transpose_rows(self, name: str) -> ParameterList:
        """The parameters of the transpose kernel for an operand."""
        numbers = Parameters("u32", ("k_tiles", "first_item"), lambda x: (self._k_tiles(x.p), self._items(x, name)[0]))
        others = on_one_line([*other_addresses(self.problem), numbers])
        maps = TensorMaps("map", ("map_from", "map_to"), lambda x: self._transpose_maps(x, name))
        return ParameterList((given("u64", "C", "W"), *others, maps))

    def tensor_map(self, launched: Launched, x: MappedOperand, kind: str, direct: TensorMap) -> TensorMap:
        p, packed = launched.p, launched.buffers.packed
        if x.name not in packed:
            return direct
        matrix, offset = packed_operand(p, x.name).matrix, packed[x.name]
        return matrix_map(p, "W", kind, matrix, p.element.bytes, x.box, x.span, self.batch.active, offset)

    def buffer_bytes(self, p: KernelProblem, run: BatchRange) -> tuple[dict[str, int], dict[str, int]]:
        staged = [name for name in self.copied if name in self.transposed]
        packed = {name: packed_operand(p, name).bytes for name in self.names}
        return packed, {name: row_copy(p, name).bytes for name in staged}

    def steps(self, launched: Launched) -> tuple[Step, ...]:
        if not self.packs(launched.p):
            return ()
        copy = (self._copy_step(launched),) if self.copied else ()
        return (*copy, *(self._transpose_step(launched, name) for name in self.transposed))

    def _blocks(self, p: KernelProblem) -> list[int]:
        """The blocks of the copy kernel for each operand."""
        copies = [row_copy(p, name) for name in self.copied]
        chunks = [x.matrix[1] * -(-x.matrix[0] * p.element.bytes // CHUNK) for x in copies]
        rounds = ROUNDS if sum(chunks) > LARGE else 1
        return [-(-n // (AUX_KERNEL_THREADS * rounds)) for n in chunks]

    def _copy_step(self, launched: Launched) -> Step:
        """The launch of the copy kernel: the items of the run, or the one that all items have."""
        p = launched.p
        items = launched.run.items if any(row_copy(p, name).items > 1 for name in self.copied) else 1
        grid, block = (sum(self._blocks(p)), 1, items), (AUX_KERNEL_THREADS, 1, 1)
        return Step(f"{self.entry}_pack_rows", grid, block, 0, self.parameter_list.arguments(launched))

    def _k_tiles(self, p: KernelProblem) -> int:
        tiles: int = -(-p.k // self.transpose_kernel.DEPTH)
        return tiles

    def _items(self, launched: Launched, name: str) -> tuple[int, int]:
        """The first item that the transpose kernel packs, and their number: those of the run, or the one that all items
        have."""
        shared = packed_operand(launched.p, name).items == 1
        return (0, 1) if shared else (launched.run.first, launched.run.items)

    def _transpose_maps(self, launched: Launched, name: str) -> tuple[TensorMap, TensorMap]:
        """The maps of the operand, or of the copy of it that TMA can map, and of its packed form."""
        p, t, buffers = launched.p, self.transpose_kernel, launched.buffers
        size, batched = p.element.bytes, self.batch.active
        kind = "s32" if size == 4 else "u8"
        operand, matrix, offset = name.upper(), stored(p, name), 0
        if name in buffers.staging:
            operand, matrix, offset = "W", row_copy(p, name).matrix, buffers.staging[name]
        packed = packed_operand(p, name).matrix
        return (
            matrix_map(p, operand, kind, matrix, size, (t.side, t.DEPTH), t.ROW, batched, offset),
            matrix_map(p, "W", kind, packed, size, (t.side, t.side), t.ROW, batched, buffers.packed[name]),
        )

    def _transpose_step(self, launched: Launched, name: str) -> Step:
        """The launch of the transpose kernel."""
        t, extent = self.transpose_kernel, packed_operand(launched.p, name).matrix[1]
        grid = (self._k_tiles(launched.p) * -(-extent // t.side), 1, self._items(launched, name)[1])
        found = self.transpose_rows(name).arguments(launched)
        return Step(f"{self.entry}_transpose", grid, (t.threads, 1, 1), t.shared, found)
