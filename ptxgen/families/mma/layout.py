"""The layouts of mma.sync kernels: shared memory, fragments, C. Python makes numbers; templates write instructions.

In shared memory an operand has rows along K (K-major) or along M (N). ldmatrix reads 16-byte chunks of eight rows at a
time; such rows are swizzled: chunk q of row r is stored at q ^ key(r). The key is linear in the bits of r, so a
displacement by powers of two is another XOR and an offset. Rows that are read by vector loads, and rows along M (N)
whose length is not a power of two, are padded instead.

Any order of K is allowed if it is the same for both operands, and the rows (columns) of a warp's tile may be any rows
of C. Therefore one lane can hold the adjacent elements of a vector, and the next lane the following elements.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ptxgen.codegen.parts.addressing import OperandAddressing
from ptxgen.codegen.parts.multistage import CopiedTile, SharedStore, copy_template
from ptxgen.codegen.registers import Tile, braces, width
from ptxgen.codegen.vectorized import Mask, log2
from ptxgen.families.common.matrix_instructions import COLUMNS, ROWS, Instruction
from ptxgen.families.mma.geometry import BYTES, MATRIX, POINTERS_LIMIT, SINGLE, VECTOR, MmaOperandGeometry

#: swizzles: for 8, 4 and 2 chunks per row, the (shift, mask) whose bits of a row make its key
ROWS_IN_TURN = {8: ((0, 7),), 4: ((1, 3),), 2: ((2, 1),), 1: ()}  #: eight rows, one after the other
ROWS_BY_TWOS = {8: ((0, 1), (1, 6)), 4: ((2, 3),), 2: ((3, 1),), 1: ()}  #: rows 0, 1, 4, 5, 8, 9, 12, 13
ROWS_OF_QUADS = {8: ((-1, 6),), 4: ((0, 2),), 2: (), 1: ()}  #: four rows, two chunks of each
ROWS_OF_CHUNKS = {8: ((-2, 4),), 4: (), 2: (), 1: ()}  #: two rows, four chunks of each


@dataclass(frozen=True)
class GlobalLoad:
    """One of a thread's global loads of a stage. ``mn``, ``k``: elements from the thread's first load along M or N and
    along K; ``offset``: bytes from its pointer into the stage; ``pointer``: the index of this pointer; ``oob``: the
    predicate register that is true if the load is outside M or N (predicated bounds); the loads of one row share it."""

    index: int
    mn: int
    k: int
    offset: int
    pointer: int
    oob: str


@dataclass(frozen=True)
class FragmentLoad:
    """One fragment load. ``ptx_type``: ``x4`` or ``x2`` for ldmatrix, else the type of ld.shared; ``registers``: the
    destination; the source is ``offset`` bytes from the lane's address XOR ``swizzle``; ``address``: this source in
    PTX; ``same_swizzle``: True if the preceding load has the same swizzle."""

    ptx_type: str
    registers: str
    swizzle: int
    offset: int
    address: str
    same_swizzle: bool = False


@dataclass(frozen=True)
class Term:
    """A term of a sum over bits of a lane number: ((lane >> shift) & mask) * weight."""

    shift: int
    mask: int
    weight: int

    def of(self, lane: int) -> int:
        return ((lane >> self.shift) & self.mask) * self.weight


def key_of(row: int, keys: tuple[tuple[int, int], ...]) -> int:
    """The number with which the chunk numbers of a row are xored."""
    return sum((row >> s if s >= 0 else row << -s) & m for s, m in keys)


class MmaOperand(CopiedTile):
    """How A or B reaches the registers of a warp.

    ``g``: the operand's geometry for one configuration; ``threads``: threads of the block; ``depth``: U; ``steps``:
    steps per stage of one group of warps; ``ahead``: True if fragments are loaded one step ahead; ``base``: the
    operand's offset in a stage; ``packed``: True if a packing kernel copies the operand to longer rows first;
    ``addressing``: the address mode; ``ld``: the leading dimension that the kernel reads; ``parts``: registers of an
    element of a fragment, 2 for complex elements.
    """

    kmajor_smem = transposed = widens = unpacks = extracts = casts = twice = False

    def __init__(
        self,
        g: MmaOperandGeometry,
        i: Instruction,
        threads: int,
        depth: int,
        steps: int,
        ahead: bool,
        base: int,
        packed: bool,
        addressing: str,
        ld: int,
        parts: int,
    ) -> None:
        self.name: str = g.name
        self.extent = "M" if g.name == "a" else "N"
        self.first = g.name == "a"
        self.instruction, self.fragment_load, self.packed_first = i, int(g.fragment_load), packed
        self.kmajor, self.asynchronous = bool(g.kmajor), bool(g.cp_async)
        self.tile, self.thread, self.warps = int(g.tile), int(g.warp_tile), int(g.warps)
        self.parts = parts
        self.vec, self.row, self.rows, self.size = int(g.vec), int(g.row_pitch), int(g.rows), int(g.stage_bytes)
        self.bytes = self.global_bytes = int(g.bytes)
        self.chunk, self.adjacent = int(g.chunk), int(g.adjacent)
        self.depth, self.steps, self.base, self.prefetches = depth, steps, base, ahead and steps % 2 == 0
        self.vectors, self.across, self.run_vectors = int(g.loads), int(g.run), int(g.run_loads)
        self.log2_across, self.log2_chunk = log2(self.across), log2(self.chunk)
        self.last_copies = self.vectors % threads
        #: True if chunks are swizzled; otherwise rows are padded, or need neither
        self.swizzled = bool(g.swizzled)
        self.keys = self._keys()
        self.store_ptrs: list[tuple[str, str]] = []
        self.swizzles: list[int] = []
        self.loads = self._global_loads(threads)
        self.thread_runs = self._thread_runs(threads)
        self.shared_pointer = len(self.loads) > POINTERS_LIMIT and self.fits_32bit_offsets(ld)
        self.addressing = OperandAddressing.of(self.name, addressing, ((p.mn, p.k) for p in self.loads))
        self.copy = copy_template(self.asynchronous)
        self.oob_predicates = list(dict.fromkeys(p.oob for p in self.loads))
        self._fragments()
        self._staging()
        self.c_positions = self._c_positions()

    def _keys(self) -> tuple[tuple[int, int], ...]:
        if not self.swizzled:
            return ()
        chunks = min(self.row // self.chunk, 8)
        quads = ROWS_OF_QUADS if self.chunk > 1 else ROWS_OF_CHUNKS
        return {MATRIX: ROWS_IN_TURN, BYTES: ROWS_BY_TWOS, SINGLE: quads}[self.fragment_load][chunks]

    # ---- shared memory

    def at(self, mn: int, k: int) -> int:
        """The byte offset of an element in the operand's part of a stage."""
        row, column = (mn, k) if self.kmajor else (k, mn)
        return row * self.row * self.bytes + (column * self.bytes ^ key_of(row, self.keys) << 4)

    def _thread_runs(self, threads: int) -> list[str]:
        """The instructions that compute a thread's row and its run, if the threads of a block have several runs."""
        if self.run_vectors == self.vectors or self.run_vectors >= threads:
            return []
        mn, k = f"%mn_{self.name}", f"%k_{self.name}"
        return [
            f"shr.u32 %tmp0, {k}, {log2(self.rows)};",
            f"and.b32 {k}, {k}, {self.rows - 1};",
            f"mad.lo.u32 {mn}, %tmp0, {self.across * self.vec}, {mn};",
        ]

    def _global_loads(self, threads: int) -> list[GlobalLoad]:
        """The loads of a thread. The threads make the loads of one run in every row, row by row, and then those of the
        next run."""
        out: list[GlobalLoad] = []
        names: dict[int, str] = {}
        for first in range(0, self.vectors, threads):
            run, place = divmod(first, self.run_vectors)
            row, column = place // self.across, (run * self.across + place % self.across) * self.vec
            mn, k = (row, column) if self.kmajor else (column, row)
            moved = self.at(mn, k)
            swizzle = moved & 0x70 if self.swizzled and self.keys else 0
            if swizzle not in self.swizzles:
                self.swizzles.append(swizzle)
            name = names.setdefault(mn, f"%oob_{self.name}{len(names)}")
            out.append(GlobalLoad(len(out), mn, k, moved - swizzle, self.swizzles.index(swizzle), name))
        for n in range(len(self.swizzles)):
            tail = str(n) if n else ""
            self.store_ptrs.append((f"%dst_{self.name}{tail}", f"%smem_off_{self.name}{tail}"))
        return out

    def fits_32bit_offsets(self, ld: int) -> bool:
        """True if the byte offset of every load of a stage from the block's first element fits 32 bits. ``ld``: the
        leading dimension."""
        last = (self.tile - 1) * ld + self.depth if self.kmajor else (self.depth - 1) * ld + self.tile
        return last * self.bytes < 1 << 32

    def store_ptr(self, p: GlobalLoad) -> str:
        """The register with the shared-memory address at which load ``p`` is stored in the stage being filled."""
        return self.store_ptrs[p.pointer][0]

    @property
    def limit(self) -> str:
        """The register with the extent that bounds the loads. The rows of a packed copy are filled to their ends."""
        return f"%ld{self.name}" if self.packed_first and not self.kmajor else f"%{self.extent}"

    @property
    def edge(self) -> int:
        """The number of elements from the last place where a load may start to the end of the extent."""
        return 1 if self.kmajor else self.vec

    @property
    def copy_bytes(self) -> int:  # type: ignore[override]
        return self.vec * self.bytes

    def _staging(self) -> None:
        """Sets ``staging``, the registers that global loads fill, and ``shared_stores``, the stores of each load."""
        size = self.copy_bytes
        words = max(size // 4, 1)
        self.staging = self.converted = Tile(f"ldg_{self.name}", "b16" if size < 4 else "b32", (len(self.loads), words))
        self.load_type = width(words, f"b{8 * min(size, 4)}")
        self.halves = Tile(f"half_{self.name}", "b16", (2,))
        self.shared_stores = [
            [SharedStore(p.offset, self.load_type, self.staging.vector(p.index, 0, n=words))] for p in self.loads
        ]

    # ---- fragments

    def _fragments(self) -> None:
        i = self.instruction
        self.least = ROWS if self.first else COLUMNS
        self.tiles = self.thread // self.least
        self.registers = i.registers_a if self.first else i.registers_b
        self.buffers = 2 if self.prefetches else 1
        self.fragment = Tile(f"frag_{self.name}", i.ptx_type, (self.buffers, self.tiles, self.registers * self.parts))
        #: columns of 8 bits are loaded in pairs, and separated by prmt
        self.raw = Tile(f"raw_{self.name}", i.ptx_type, self.fragment.shape) if self.fragment_load == BYTES else None
        self.swizzled_ptr = f"%swizzled_{self.name}"
        self.fragment_ptrs = Tile(f"frag_ptr_{self.name}", "b32", (1,))

    warp_mask = Mask("warps")

    @property
    def read_title(self) -> str:
        """A text for a comment: what a lane reads first."""
        rows = self.raw or self.fragment_load == MATRIX
        return "16 bytes (a row of ldmatrix)" if rows else "vector"

    @property
    def row_registers(self) -> tuple[str, str]:
        """The registers with a lane's row in shared memory, and with its element along the row."""
        return ("%mn", "%k") if self.kmajor else ("%k", "%mn")

    @property
    def trans(self) -> str:
        """The modifier ``.trans`` of ldmatrix, or an empty text."""
        return "" if self.kmajor else ".trans"

    @property
    def has_halves(self) -> bool:
        """True if the first half of the fragment loads brings the first half of a lane's rows (or columns)."""
        loads, half = self.fragment_loads(0, 0), self.tiles // 2
        if self.raw is not None or self.tiles % 2 or len(loads) % 2:
            return False
        names = {name for r in loads[: len(loads) // 2] for name in re.findall(r"%\w+", r.registers)}
        first = {self.fragment[0, n, r] for n in range(half) for r in range(self.registers * self.parts)}
        rows = [n for _, n, _ in self.c_positions]
        return names == first and max(rows[: len(rows) // 2]) < half

    def buffer(self, k: int) -> int:
        """The number of the fragment buffer that holds step ``k``."""
        return k % 2 if self.prefetches else 0

    @property
    def lane_mn(self) -> list[Term]:
        """The distance, in rows (columns), from the first row of a warp's tile to the first row that a lane reads: a
        sum of terms of the lane number."""
        t = self.adjacent
        if self.fragment_load == MATRIX:
            if self.kmajor:
                return [Term(0, 15, 1)] if self.first else [Term(0, 7, 1), Term(4, 1, 8)][: 1 + (self.tiles > 1)]
            return [Term(3, 1, 8)] if self.first else [Term(4, 1, 8)][: self.tiles > 1]
        return [] if self.fragment_load == BYTES else [Term(2, 7, t)]

    @property
    def lane_k(self) -> list[Term]:
        """The distance along K, in elements, from the first element of a step to the first element that a lane reads: a
        sum of terms of the lane number."""
        chunk = self.chunk
        if self.fragment_load == MATRIX:
            if self.kmajor:
                return [Term(4, 1, chunk)] if self.first else [Term(3, 1, chunk)]
            return [Term(0, 7, 1), Term(4, 1, 8)] if self.first else [Term(0, 15, 1)]
        if self.fragment_load == BYTES:
            return [Term(0, 1, 1), Term(1, 3, 4), Term(3, 1, 2), Term(4, 1, 16)]
        return [Term(0, 3, 1)]

    def _read(self, ptx_type: str, registers: str, mn: int, k: int) -> FragmentLoad:
        moved = self.at(mn, k)
        swizzle = moved & 0x70 if self.swizzled else 0
        pointer = self.swizzled_ptr if swizzle else self.fragment_ptrs[0]
        return FragmentLoad(ptx_type, registers, swizzle, moved - swizzle, f"{pointer}+{moved - swizzle}")

    def fragment_loads(self, step: int, buffer: int) -> list[FragmentLoad]:
        """The fragment loads of a step."""
        loads = self._loads(step, buffer)
        return [replace(r, same_swizzle=n > 0 and r.swizzle == loads[n - 1].swizzle) for n, r in enumerate(loads)]

    def _loads(self, step: int, buffer: int) -> list[FragmentLoad]:
        k = step * self.instruction.depth
        if self.fragment_load in (MATRIX, BYTES):
            return self._matrices(k, buffer)
        if self.fragment_load == VECTOR:
            return self._vectors(k, buffer)
        halves = self.least // 8
        return [
            self._read(
                width(self.parts, "f64"),
                self.fragment.vector(buffer, n, r * self.parts, n=self.parts),
                n * self.least + r % halves * 8,
                k + r // halves * 4,
            )
            for n in range(self.tiles)
            for r in range(self.registers)
        ]

    def _matrices(self, k: int, buffer: int) -> list[FragmentLoad]:
        into = self.raw or self.fragment
        if self.first:
            return [self._read("x4", into.vector(buffer, n, 0, n=4), n * ROWS, k) for n in range(self.tiles)]
        out = []
        for n in range(0, self.tiles - 1, 2):
            four = [into[buffer, n + e // 2, e % 2] for e in range(4)]
            out.append(self._read("x4", "{" + ", ".join(four) + "}", n * COLUMNS, k))
        if self.tiles % 2:
            last = self.tiles - 1
            out.append(self._read("x2", into.vector(buffer, last, 0, n=2), last * COLUMNS, k))
        return out

    def _vectors(self, k: int, buffer: int) -> list[FragmentLoad]:
        """The vector loads of a step, each of which reads ``adjacent`` elements of one row of K. Along M, these are
        elements of both halves of a tile; along N, elements of several tiles."""
        out, t = [], self.adjacent
        halves = self.least // 8
        for place in range(0, self.tiles * halves, t):  # the first of eights of rows (columns)
            n, half = divmod(place, halves)
            for group in range(self.registers // halves):
                first = [(n + (half + j) // halves, (half + j) % halves + halves * group) for j in range(t)]
                names = [self.fragment[buffer, n, r * self.parts + x] for n, r in first for x in range(self.parts)]
                ptx_type = width(len(names), self.fragment.ptx_type)
                out.append(self._read(ptx_type, braces(names), n * self.least + 8 * half, k + 4 * group))
        return out

    def byte_permutes(self, buffer: int) -> list[tuple[str, str, str, str]]:
        """For 8-bit operands along M (N), the byte permutations as (destination, two loaded registers, selector)."""
        if self.raw is None:
            return []
        out = []
        for n in range(0, self.tiles, 1 if self.first else 2):
            for half in range(2):  # of the step's K
                low, high = self._loaded(buffer, n, half)
                for odd in range(2):
                    to = (n, odd + 2 * half) if self.first else (n + odd, half)
                    out.append((self.fragment[buffer, *to], low, high, "0x7531" if odd else "0x6420"))
        return out

    def _loaded(self, buffer: int, n: int, half: int) -> tuple[str, str]:
        assert self.raw is not None
        if self.first:
            return self.raw[buffer, n, 2 * half], self.raw[buffer, n, 2 * half + 1]
        return self.raw[buffer, n + half, 0], self.raw[buffer, n + half, 1]

    # ---- C

    def _c_positions(self) -> list[tuple[int, int, int]]:
        """For each row (column) of C that a lane holds, in order: its distance from the lane's first row, the number of
        its tile, and its index, 0 or 1, among the lane's rows of this tile."""
        t = self.adjacent
        out = []
        for n in range(self.tiles):
            for e in range(2):
                row = n * ROWS + (8 * e if t == 1 else e)
                column = n // t * COLUMNS * t + e * t + n % t
                out.append((row if self.first else column, n, e))
        return sorted(out)

    def offset(self, i: int) -> int:
        """The distance, in rows (columns) of C, from a lane's first row to its row number ``i``."""
        return self.c_positions[i][0]

    @property
    def lane_of_c(self) -> Term:
        """The distance, in rows (columns) of C, from the first row of a warp to the first row of a lane: a term of the
        lane number."""
        return Term(2, 7, self.adjacent) if self.first else Term(0, 3, 2 * self.adjacent)
