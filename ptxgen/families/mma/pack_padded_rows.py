"""The kernel that packs operands whose rows are too unaligned for wide accesses, to rows of whole 128 bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.batch import BatchRange
from ptxgen.codegen.c_kernels import AUX_KERNEL_THREADS
from ptxgen.codegen.config import Config
from ptxgen.codegen.packing import ROW, Buffers, Packing
from ptxgen.codegen.registers import Tile, braces
from ptxgen.codegen.source import Argument, Step
from ptxgen.codegen.vectorized import ceil_div
from ptxgen.families.mma.operand_packing import copied_items, inside, packed_operand, packs
from ptxgen.lowering.kernel_problem import KernelProblem


@dataclass(frozen=True)
class PaddedRowPacking(Packing):
    """A or B or both in padded rows; each thread copies 16 bytes."""

    config: Config

    packs_empty = True
    THREADS = AUX_KERNEL_THREADS

    @property
    def template(self) -> str:  # type: ignore[override]
        return "copy/pack_padded_rows.mako" if self.names else "copy/no_packing.mako"

    @cached_property
    def names(self) -> list[str]:
        return [name for name in "ab" if packs(self.config, name)]

    def product_problem(self, p: KernelProblem) -> KernelProblem:
        return inside(p, self.config)

    # ---- the kernel

    @property
    def element_bytes(self) -> int:
        return self.problem.element.bytes

    @property
    def chunk(self) -> int:
        """Elements of 16 bytes."""
        return 16 // self.element_bytes

    @cached_property
    def elements(self) -> Tile:
        """The elements that a thread copies."""
        return Tile("element", f"b{8 * max(self.element_bytes, 2)}", (self.chunk,))

    @cached_property
    def words(self) -> Tile:
        """The words that small elements are packed to."""
        return Tile("word", "b32", (4,))

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """(word, its two halves). The half of a word holds two bytes, where elements are bytes."""
        if self.element_bytes > 2:
            return []
        step = 2 if self.element_bytes == 2 else 4
        halves = [(n * step, n * step + step // 2) for n in range(4)]
        return [(self.words[n], braces([self.elements[i] for i in pair])) for n, pair in enumerate(halves)]

    @property
    def store_type(self) -> str:
        return "v2.b64" if self.element_bytes == 8 else "v4.b32"

    @property
    def vector(self) -> str:
        """The operand of the store."""
        whole = self.elements if self.element_bytes > 2 else self.words
        return whole.vector(0, n=whole.size)

    @property
    def parameters(self) -> list[str]:
        """The parameters of the kernel after the addresses, in lines."""
        batched = self.batch.active
        names = (
            ("rows", "columns", "ld", "pitch"),
            ("padded_rows", "copy_offset128", *(("copy_item128", "items") if batched else ())),
        )
        lines = [", ".join(f".param .u32 {n}_{x}" for n in part) for x in self.names for part in names]
        first = [".param .u64 batch_stride_a, .param .u64 batch_stride_b, .param .u32 first_item,"] if batched else []
        return [*first, *(f"{line}," for line in lines[:-1]), *lines[-1:]]

    # ---- launches

    def buffer_bytes(self, p: KernelProblem, run: BatchRange) -> tuple[dict[str, int], dict[str, int]]:
        return {name: packed_operand(p, name).bytes * copied_items(p, name, run.items) for name in self.names}, {}

    @property
    def product_parameters(self) -> list[str]:
        return [", ".join(f".param .u32 copy_offset128_{name}" for name in self.names)] if self.names else []

    def product_arguments(self, buffers: Buffers) -> tuple[Argument, ...]:
        return tuple(("u32", offset // ROW) for offset in buffers.packed.values())

    def steps(self, p: KernelProblem, run: BatchRange, buffers: Buffers) -> tuple[Step, ...]:
        if not self.names:
            return ()
        numbers: list[Argument] = []
        if self.batch.active:
            numbers = [*(("u64", n) for n in p.offsets[:2]), ("u32", run.first)]
        chunks = 0
        for name, offset in buffers.packed.items():
            copy = packed_operand(p, name)
            batch = (copy.bytes // ROW, copied_items(p, name, run.items)) if self.batch.active else ()
            values = (copy.rows, copy.columns, copy.ld, copy.pitch, copy.filled, offset // ROW, *batch)
            numbers += [("u32", n) for n in values]
            chunks = max(chunks, copy.filled * copy.pitch // self.chunk)
        grid = (max(ceil_div(chunks, self.THREADS), 1), len(self.names), run.items)
        return (Step(f"{self.entry}_repack", grid, (self.THREADS, 1, 1), 0, (*self.pointers, *numbers)),)
