"""Packing of A and B to rows of whole 128 bytes.

One kernel copies all operands that TMA cannot map, 16 bytes a thread. Another transposes each operand whose packed form
must have K contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.batch import BatchRange
from ptxgen.codegen.c_kernels import AUX_KERNEL_THREADS
from ptxgen.codegen.config import Config
from ptxgen.codegen.packing import ROW, Buffers, MappedOperand, Packing
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import Argument, Step, TensorMap
from ptxgen.families.wgmma.operand_packing import PackedMatrix, mapped, packed_operand, packs, row_copy, transposes
from ptxgen.families.wgmma.tensor_maps import matrix_map, stored
from ptxgen.families.wgmma.transpose_kernel import TransposeKernel
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
    def copy_arguments(self) -> list[tuple[str, str]]:
        """Type and name of the numbers that the copy kernel takes for an operand."""
        return [
            ("u64", "bytes"),
            ("u64", "ld"),
            ("u32", "rows"),
            ("u32", "columns"),
            ("u32", "copy_offset128"),
            ("u32", "chunk_stride"),
            *([("u64", "batch_stride"), ("u32", "items"), ("u64", "copy_item_bytes")] if self.batch.active else []),
        ]

    @property
    def copy_parameters(self) -> list[str]:
        """The parameters of the copy kernel after the addresses, in lines."""
        first = [".param .u32 blocks_a"] * (len(self.copied) > 1) + [".param .u32 first_item"] * self.batch.active
        names = self.copy_arguments
        lines = [*first, *(", ".join(f".param .{kind} {n}_{x}" for kind, n in names) for x in self.copied)]
        return [*(f"{line}," for line in lines[:-1]), *lines[-1:]]

    def tensor_map(
        self, p: KernelProblem, run: BatchRange, x: MappedOperand, kind: str, direct: TensorMap, buffers: Buffers
    ) -> TensorMap:
        if x.name not in buffers.packed:
            return direct
        matrix, offset = packed_operand(p, x.name).matrix, buffers.packed[x.name]
        return matrix_map(p, "W", kind, matrix, p.element.bytes, x.box, x.span, self.batch.active, offset)

    def buffer_bytes(self, p: KernelProblem, run: BatchRange) -> tuple[dict[str, int], dict[str, int]]:
        staged = [name for name in self.copied if name in self.transposed]
        packed = {name: packed_operand(p, name).bytes for name in self.names}
        return packed, {name: row_copy(p, name).bytes for name in staged}

    def steps(self, p: KernelProblem, run: BatchRange, buffers: Buffers) -> tuple[Step, ...]:
        if not self.packs(p):
            return ()
        copy = (self._copy_step(p, run, {**buffers.packed, **buffers.staging}),) if self.copied else ()
        return (*copy, *(self._transpose_step(p, run, name, buffers) for name in self.transposed))

    def _copy_step(self, p: KernelProblem, run: BatchRange, offsets: dict[str, int]) -> Step:
        """The launch of the copy kernel: the items of the run, or the one that all items have."""
        size = p.element.bytes
        copies = {name: row_copy(p, name) for name in self.copied}
        chunks = [x.matrix[1] * -(-x.matrix[0] * size // CHUNK) for x in copies.values()]
        rounds = ROUNDS if sum(chunks) > LARGE else 1
        blocks = [-(-n // (AUX_KERNEL_THREADS * rounds)) for n in chunks]
        numbers: list[Argument] = [("u32", blocks[0])] if len(blocks) > 1 else []
        if self.batch.active:
            numbers.append(("u32", run.first))
        for (name, x), n in zip(copies.items(), blocks, strict=True):
            numbers += self._copy_numbers(p, run, name, x, offsets[name], n * AUX_KERNEL_THREADS)
        grid = (sum(blocks), 1, run.items if any(x.items > 1 for x in copies.values()) else 1)
        arguments = (*self.pointers, *numbers)
        return Step(f"{self.entry}_pack_rows", grid, (AUX_KERNEL_THREADS, 1, 1), 0, arguments)

    def _copy_numbers(
        self, p: KernelProblem, run: BatchRange, name: str, copy: PackedMatrix, offset: int, stride: int
    ) -> list[Argument]:
        columns, rows, _, item_bytes = copy.matrix
        _, _, ld, item_stride = stored(p, name)
        size = p.element.bytes
        span = ((rows - 1) * ld + columns) * size
        out: list[Argument] = [("u64", span), ("u64", ld * size)]
        out += [("u32", n) for n in (rows, columns, offset // ROW, stride)]
        if self.batch.active:
            out += [("u64", item_stride), ("u32", run.items if item_bytes else 1), ("u64", item_bytes)]
        return out

    def _transpose_step(self, p: KernelProblem, run: BatchRange, name: str, buffers: Buffers) -> Step:
        """The launch of the transpose kernel: the items of the run, or the one that all items have. It reads the
        operand, or the copy of it that TMA can map."""
        t, copy, size = self.transpose_kernel, packed_operand(p, name), p.element.bytes
        kind = "s32" if size == 4 else "u8"
        source = (name.upper(), stored(p, name), 0)
        if name in buffers.staging:
            source = ("W", row_copy(p, name).matrix, buffers.staging[name])
        maps = (
            matrix_map(p, source[0], kind, source[1], size, (t.side, t.DEPTH), t.ROW, self.batch.active, source[2]),
            matrix_map(
                p, "W", kind, copy.matrix, size, (t.side, t.side), t.ROW, self.batch.active, buffers.packed[name]
            ),
        )
        k_tiles, extent = -(-p.k // t.DEPTH), copy.matrix[1]
        first, items = (0, 1) if copy.items == 1 else (run.first, run.items)
        arguments: tuple[Argument, ...] = (
            ("u64", "C"),
            ("u64", "W"),
            *self.fused_ops.arguments,
            ("u32", k_tiles),
            ("u32", first),
            *(("map", m) for m in maps),
        )
        grid = (k_tiles * -(-extent // t.side), 1, items)
        return Step(f"{self.entry}_transpose", grid, (t.threads, 1, 1), t.shared, arguments)
