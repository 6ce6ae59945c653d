"""The layouts of FMA kernels: global loads, shared-memory tiles, fragments. Python makes numbers; templates write
instructions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ptxgen.codegen.parts.addressing import OperandAddressing
from ptxgen.codegen.parts.multistage import CopiedTile, SharedStore, copy_template
from ptxgen.codegen.registers import Tile, braces, width
from ptxgen.codegen.vectorized import WARP, Mask, log2
from ptxgen.expr.instructions import OLDEST
from ptxgen.expr.node import node, variable
from ptxgen.expr.ptx import Temporaries, statements
from ptxgen.expr.value_types import type_of
from ptxgen.families.common.fma.geometry import FmaOperandGeometry
from ptxgen.problem.dtypes import Dtype

POINTERS_LIMIT = 4  #: if a thread has more loads, each adds a 32-bit offset to one shared pointer


@dataclass(frozen=True)
class GlobalLoad:
    """One of a thread's global loads of a stage. ``mn``, ``k``: elements from the thread's first load along M or N and
    along K; ``offset``: bytes from the first load's address in the stage; ``oob``: the predicate register that is true
    if the load is outside M or N (predicated bounds); the loads of one row share it."""

    index: int
    mn: int
    k: int
    offset: int
    oob: str


@dataclass(frozen=True)
class FragmentLoad:
    """One load of a fragment from shared memory."""

    ptx_type: str
    registers: str
    address: str


class OperandLayout(CopiedTile):
    """How A or B reaches the registers of a thread.

    ``g``: the operand's geometry for one configuration; ``threads``: threads of the block; ``depth``: U; ``ahead``:
    True if fragments are loaded one k step ahead; ``steps``: k steps of one thread group; ``held``: the type of
    fragments, a 16-bit type if a register has a pair of elements, or a pair type (``expr.value_types.PAIRS``) if it has
    one element twice; a complex element has a register for each part; ``element``: the type in global memory; ``base``:
    the operand's offset in a stage; ``copied``: True if a packing kernel copies the operand to longer rows first;
    ``addressing``: the address mode; ``ld``: the leading dimension that the kernel reads.
    """

    swizzled = False

    def __init__(
        self,
        g: FmaOperandGeometry,
        threads: int,
        depth: int,
        steps: int,
        ahead: bool,
        held: str,
        element: Dtype,
        base: int,
        copied: bool,
        addressing: str,
        ld: int,
    ) -> None:
        self.name: str = g.name
        self.extent = "M" if g.name == "a" else "N"
        self.kmajor, self.kmajor_smem, self.transposed = bool(g.kmajor), bool(g.kmajor_smem), bool(g.transposed)
        self.tile, self.thread, self.warp = int(g.tile), int(g.thread_tile), int(g.warp_threads)
        self.vec, self.row, self.size = int(g.vec), int(g.row_pitch), int(g.stage_bytes)
        self.held, self.dtype, self.parts = held, element, element.parts
        self.bytes, self.global_bytes, self.chunk = int(g.bytes), element.bytes, int(g.chunk)
        self.asynchronous = bool(g.cp_async)
        self.depth, self.steps, self.base, self.copied = depth, steps, base, copied
        self.packed = self.parts == 1 and type_of(held).bits == 16
        self.twice = self.parts == 1 and type_of(held).values == 2
        self.vectors, self.across = int(g.loads), int(g.row_loads)
        self.log2_across, self.log2_chunk, self.log2_tile = log2(self.across), log2(self.chunk), log2(self.tile)
        self.last_copies = self.vectors if self.vectors < threads else 0
        #: where a thread stores: in the stage that is being filled, and in a stage
        self.store_ptrs = [(f"%dst_{self.name}", f"%smem_off_{self.name}")]
        self.loads = self._global_loads(threads)
        self.shared_pointer = len(self.loads) > POINTERS_LIMIT and fits_32bit_offsets(self, ld)
        self.addressing = OperandAddressing.of(self.name, addressing, ((p.mn, p.k) for p in self.loads))
        self.copy = copy_template(self.asynchronous)
        self.oob_predicates = list(dict.fromkeys(p.oob for p in self.loads))
        # prefetching fragments across the loop's end needs an even number of fragment loads per K iteration
        self.reads_per_iteration = steps // self.chunk if self.kmajor_smem else steps
        self.prefetches = ahead and self.reads_per_iteration % 2 == 0
        buffers = 2 if self.prefetches else 1
        word = "b32" if self.packed else self.register
        shape = (
            (buffers, self.thread, self.chunk * self.parts)
            if self.kmajor_smem
            else (buffers, self.thread * self.parts // (2 if self.packed else 1))
        )
        self.fragment = Tile(f"frag_{self.name}", word, shape)
        self.contiguous = 1 if self.kmajor_smem else min(self.chunk, self.thread)
        self.swizzle_q = depth // self.chunk if self.kmajor_smem else 1
        self.swizzle_shift = 3 - log2(self.swizzle_q) if self.kmajor_smem else 0
        self.fragment_ptrs = Tile(f"frag_ptr_{self.name}", "b32", (self.swizzle_q,))
        self._staging()

    # ---- global memory

    def _global_loads(self, threads: int) -> list[GlobalLoad]:
        out: list[GlobalLoad] = []
        names: dict[int, str] = {}
        for first in range(0, self.vectors, threads):
            if self.kmajor_smem:
                mn, k = first // self.across, 0
                offset = mn * self.depth
            elif self.transposed:
                mn, k = first // self.across % self.tile, first // self.across // self.tile * self.across * self.vec
                offset = mn + k * self.row
            else:
                mn, k = first % self.across * self.vec, first // self.across
                offset = mn + k * self.row
            name = names.setdefault(mn, f"%oob_{self.name}{len(names)}")
            out.append(GlobalLoad(len(out), mn, k, offset * self.bytes, name))
        return out

    def store_ptr(self, p: GlobalLoad) -> str:
        """The register with the shared-memory address at which load ``p`` is stored in the stage being filled."""
        return self.store_ptrs[0][0]

    @property
    def limit(self) -> str:
        """The register with the extent that bounds the loads. The rows of a packed copy are filled to their ends."""
        return f"%ld{self.name}" if self.copied else f"%{self.extent}"

    @property
    def edge(self) -> int:
        """The number of elements from the last place where a load may start to the end of the extent."""
        return 1 if self.kmajor else self.vec

    @property
    def copy_bytes(self) -> int:  # type: ignore[override]
        return self.vec * self.global_bytes

    # ---- registers between global and shared memory

    @property
    def register(self) -> str:
        """The type of a register that holds an element, or a part of one; integers are held as bits."""
        if self.parts > 1:
            return self.dtype.real
        return self.held if self.held in ("f16", "f32", "f64") else f"b{8 * self.bytes}"

    def _staging(self) -> None:
        """Sets ``staging``, the registers that global loads fill; ``converted``, the registers to store;
        ``shared_stores``, the stores of each load."""
        x, size = self.dtype, self.copy_bytes
        bits = self.packed or self.twice  #: elements stay as they are
        narrow, halves = x.integer and x.bytes < 4 and not bits, x.bytes == 2 and self.vec > 1
        #: several narrow integers in a word are extracted, and extended to 32 bits; a load extends a single one
        self.extracts = narrow and self.vec > 1
        self.read_type = f"{x.name[0]}32" if narrow else x.name
        self.widens = x.bytes < 4 and not x.integer and self.bytes == 4 and not bits  # floats of 16 bits
        #: True if elements are cast after they have been extracted
        self.casts = not self.widens and not bits and self.held != self.read_type
        #: registers with an element: of 64 bits at most
        self.words = max(x.bytes // 8, 1)
        words = max(size // 4, 1) if self.extracts or halves else self.vec * self.words
        ptx_type = "b32" if narrow or halves else f"b{8 * min(x.bytes, 8)}"
        pieces = len(self.loads)
        self.staging = Tile(f"ldg_{self.name}", ptx_type, (pieces, words))
        self.load_type = width(words, ptx_type)
        if narrow and size < 4:
            self.load_type = f"u{8 * size}" if self.extracts else x.name
        if self.widens or self.extracts or self.casts or self.twice:
            self.converted = Tile(f"cvt_{self.name}", self.register, (pieces, self.vec))
        elif halves and self.transposed:
            self.converted = Tile(f"cvt_{self.name}", "b16", (pieces, self.vec))
        else:
            self.converted = self.staging
        self.unpacks = self.converted is not self.staging
        self.halves = Tile(f"half_{self.name}", "b16", (2,))
        self.extracted = Tile(f"int_{self.name}", "b32", (1,))
        self.shared_stores = [self._stores_of(p) for p in self.loads]

    def in_word(self, index: int, j: int) -> tuple[str, int]:
        """The place of narrow integer ``j`` of load ``index``: register and first bit."""
        bit = j * self.dtype.bits
        return self.staging[index, bit // 32], bit % 32

    @cached_property
    def cast_elements(self) -> list[list[tuple[str, str, str, int]]]:
        """For each load, its elements as tuples: register to store, register before a cast, word and first bit of a
        narrow integer."""
        loads = []
        for p in self.loads:
            elements = []
            for j in range(self.vec):
                to = self.converted[p.index, j]
                if self.extracts:
                    elements.append((to, self.extracted[0] if self.casts else to, *self.in_word(p.index, j)))
                else:
                    elements.append((to, self.staging[p.index, j], "", 0))
            loads.append(elements)
        return loads

    swizzle_mask = Mask("swizzle_q")

    @property
    def group_elements(self) -> int:
        """The number of elements of a stage that belong to the rows of K of one thread group."""
        return self.steps * self.row

    def cast(self, to: str, value: str, guard: str) -> list[str]:
        """The instructions that cast an element in a register to the type of fragments."""
        read = variable("element", self.read_type)
        known, used = {read: value}, Temporaries()
        return statements([node("cast", self.held, read)], known, [to], sm=OLDEST, temporaries=used, guard=guard).lines

    def _stores_of(self, p: GlobalLoad) -> list[SharedStore]:
        ptx_type = self.converted.ptx_type
        size = 4 if ptx_type.endswith("32") else 8 if ptx_type.endswith("64") else 2
        count = self.converted.shape[1]
        if self.transposed:
            step, n = self.row * self.bytes, self.words
            return [
                SharedStore(p.offset + j // n * step, width(n, ptx_type), self.converted.vector(p.index, j, n=n))
                for j in range(0, count, n)
            ]
        most = min(count, 16 // size, 4)
        return [
            SharedStore(p.offset + j * size, width(most, ptx_type), self.converted.vector(p.index, j, n=most))
            for j in range(0, count, most)
        ]

    # ---- fragments

    def offset(self, i: int) -> int:
        """The distance, in rows (or columns) of C, from a thread's first row to its row number ``i``."""
        return i // self.contiguous * self.warp * self.contiguous + i % self.contiguous

    def buffer(self, k: int) -> int:
        """The number of the fragment buffer that holds step ``k``."""
        return (k // self.chunk if self.kmajor_smem else k) % 2 if self.prefetches else 0

    @property
    def has_halves(self) -> bool:
        """True if the first half of the fragment loads brings the first half of a thread's rows (or columns)."""
        return self.thread > self.contiguous

    def fragment_loads(self, k: int, buffer: int) -> list[FragmentLoad]:
        """The fragment loads of step ``k``; empty if a load of an earlier step has already brought its elements."""
        if self.kmajor_smem:
            if k % self.chunk:
                return []
            return [
                FragmentLoad(
                    width(self.chunk * self.parts, self.fragment.ptx_type),
                    self.fragment.vector(buffer, i, 0, n=self.chunk * self.parts),
                    self._kmajor_address(k, i),
                )
                for i in range(self.thread)
            ]
        return self._loads_at(self.fragment_ptrs[0], k, buffer)

    def _loads_at(self, pointer: str, k: int, buffer: int) -> list[FragmentLoad]:
        """The fragment loads of the step that is ``k`` rows after ``pointer``, for rows along M or N."""
        n = self.contiguous
        per = n * self.parts // (2 if self.packed else 1)
        return [
            FragmentLoad(
                width(per, self.fragment.ptx_type),
                self.fragment.vector(buffer, i // n * per, n=per),
                f"{pointer}+{(k * self.row + self.offset(i)) * self.bytes}",
            )
            for i in range(0, self.thread, n)
        ]

    def _kmajor_address(self, k: int, i: int) -> str:
        """The address of row ``i`` of the thread at step ``k``. Chunk q of row mn is stored at chunk q ^ (mn >> shift),
        so that reading a column has no bank conflicts."""
        q = k // self.chunk ^ self._chunk_of(i)
        return f"{self.fragment_ptrs[q]}+{self.offset(i) * self.depth * self.bytes}"

    def _chunk_of(self, i: int) -> int:
        """The swizzle bits of row ``i`` of the thread relative to those of its first row."""
        return (self.offset(i) >> self.swizzle_shift) & self.swizzle_q - 1

    # ---- one step of stage 0

    @cached_property
    def swizzles(self) -> list[int]:  # type: ignore[override]
        """The values that are xored with the index along K to address an element, one for each distinct swizzle of a
        thread's rows."""
        return sorted({self._swizzle(i) for i in range(self.thread)}) if self.kmajor_smem else [0]

    def _swizzle(self, i: int) -> int:
        return self._chunk_of(i) * self.chunk

    @cached_property
    def step_ptrs(self) -> Tile:
        """The registers with the shared-memory addresses of a step whose number is not a constant."""
        return Tile(f"step_ptr_{self.name}", "b32", (len(self.swizzles),))

    @property
    def step_loads(self) -> list[FragmentLoad]:
        """The fragment loads of the step at ``step_ptrs``, into the registers of step 0."""
        if not self.kmajor_smem:
            return self._loads_at(self.step_ptrs[0], 0, 0)
        return [
            FragmentLoad(
                self.fragment.ptx_type,
                self.fragment[0, i, 0],
                f"{self.step_ptrs[self.swizzles.index(self._swizzle(i))]}+{self.offset(i) * self.depth * self.bytes}",
            )
            for i in range(self.thread)
        ]

    def element(self, i: int, k: int, part: int = 0) -> str:
        """The register with element ``i`` of step ``k`` (if elements are not packed), or with part ``part`` of it."""
        b, n = self.buffer(k), self.parts
        if self.kmajor_smem:
            return self.fragment[b, i, k % self.chunk * n + part]
        return self.fragment[b, i * n + part]

    @property
    def moved_step_ptrs(self) -> list[str]:
        """The registers of ``step_ptrs`` that are advanced to the next row; the others are recomputed."""
        return [] if self.kmajor_smem else self.step_ptrs.all


def fits_32bit_offsets(x: Any, ld: int) -> bool:
    """True if the byte offset of every load of a stage of operand ``x`` from the block's first element fits 32 bits.
    ``ld``: the leading dimension."""
    last = (x.tile - 1) * ld + x.depth if x.kmajor else (x.depth - 1) * ld + x.tile
    return bool(last * x.global_bytes < 1 << 32)


def lane_bits(wm: int) -> tuple[int, int]:
    """log2 of the threads of a warp along M and along N."""
    return log2(wm), log2(WARP // wm)


__all__ = ["FragmentLoad", "GlobalLoad", "OperandLayout", "SharedStore", "braces", "lane_bits", "log2"]
