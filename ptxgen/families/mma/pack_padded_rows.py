"""The kernel that packs operands whose rows are too unaligned for wide accesses, to rows of whole 128 bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.launches.c_kernels import AUX_KERNEL_THREADS
from ptxgen.codegen.launches.launched import BatchRange, Launched
from ptxgen.codegen.launches.packing import ROW, Packing
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.registers import Tile, braces
from ptxgen.codegen.source import Step
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
    def parameters(self) -> list[Parameters]:
        batched = self.batch.active
        strides = Parameters("u64", ("batch_stride_a", "batch_stride_b"), lambda x: x.p.offsets[:2])
        first = Parameters("u32", ("first_item",), lambda x: (x.run.first,), same_line=True)
        return [*([strides, first] if batched else []), *(row for name in self.names for row in self._operand(name))]

    def _operand(self, name: str) -> list[Parameters]:
        """The parameters of an operand."""
        matrix = tuple(f"{n}_{name}" for n in ("rows", "columns", "ld", "pitch"))
        place = tuple(f"{n}_{name}" for n in ("padded_rows", "copy_offset128"))
        items = tuple(f"{n}_{name}" for n in ("copy_item128", "items")) if self.batch.active else ()

        def numbers(x: Launched) -> tuple[int, ...]:
            copy = packed_operand(x.p, name)
            return copy.rows, copy.columns, copy.ld, copy.pitch

        def placed(x: Launched) -> tuple[int, int]:
            return packed_operand(x.p, name).filled, x.buffers.packed[name] // ROW

        def batch(x: Launched) -> tuple[int, int]:
            return packed_operand(x.p, name).bytes // ROW, copied_items(x.p, name, x.run.items)

        return [
            Parameters("u32", matrix, numbers),
            Parameters("u32", place, placed),
            Parameters("u32", items, batch, same_line=True),
        ]

    # ---- launches

    def buffer_bytes(self, p: KernelProblem, run: BatchRange) -> tuple[dict[str, int], dict[str, int]]:
        return {name: packed_operand(p, name).bytes * copied_items(p, name, run.items) for name in self.names}, {}

    @property
    def product_parameters(self) -> list[Parameters]:
        names = tuple(f"copy_offset128_{name}" for name in self.names)
        return [Parameters("u32", names, lambda x: (offset // ROW for offset in x.buffers.packed.values()))]

    def steps(self, launched: Launched) -> tuple[Step, ...]:
        if not self.names:
            return ()
        copies = [packed_operand(launched.p, name) for name in launched.buffers.packed]
        chunks = max((copy.filled * copy.pitch // self.chunk for copy in copies), default=0)
        grid = (max(ceil_div(chunks, self.THREADS), 1), len(self.names), launched.run.items)
        return (Step(f"{self.entry}_repack", grid, (self.THREADS, 1, 1), 0, self.parameter_list.arguments(launched)),)
