"""The loads and products of a lane of a quantized_mma kernel. Python makes numbers and names; templates write
instructions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ptxgen.codegen.registers import Tile, braces, width
from ptxgen.codegen.vectorized import Last, Log2, log2
from ptxgen.families.common.dequantize import widened
from ptxgen.families.common.matrix_instructions import COLUMNS
from ptxgen.families.quantized_mma.geometry import CHUNK, ELEMENT, QUAD, WORD
from ptxgen.lowering.quantized_rows import SCALES, ZEROS, QuantizedRows


class Load(NamedTuple):
    """A load. ``registers``: the destination operand; ``names``: the names of its registers; the address is ``pointer``
    plus ``offset`` bytes; ``suffix``: vector and type of the instruction; ``place``: elements of K from the lane's
    first to this load; ``guard``: the predicate of the load in the remainder of K; ``moved``: the type of a mov to one
    of the registers."""

    suffix: str
    registers: str
    names: list[str]
    pointer: str
    offset: int
    place: int = 0
    moved: str = "b32"
    cache_hint: str = ""
    guard: str = ""


class Join(NamedTuple):
    """A word that is composed of narrower loads. ``parts``: pairs (register, factor) whose products are added."""

    word: str
    parts: list[tuple[str, int]]


@dataclass(frozen=True)
class Weights:
    """The weights of a lane. ``rows``: adjacent rows of B; ``words``: words per row and step; ``vec``: bytes of a load;
    ``steps``: steps of a K iteration; ``stride``: elements of K from one iteration to the next; ``of_items``: True if
    each item of a group has its own."""

    access: QuantizedRows
    rows: int
    words: int
    vec: int
    steps: int
    stride: int
    of_items: bool

    @property
    def per_byte(self) -> int:
        return self.access.format.per_byte

    @property
    def depth(self) -> int:
        """The number of elements of K that a lane has in a step."""
        return self.words * WORD * self.per_byte

    @property
    def step_depth(self) -> int:
        """The number of elements of K that a warp has in a step."""
        return QUAD * self.depth

    log2_per_byte = Log2("per_byte")

    @property
    def group(self) -> int:
        return self.access.group

    @property
    def portion(self) -> int:
        """The number of steps that belong to one scale group; 0: all weights of a row have one scale."""
        return self.group // self.step_depth if self.group else 0

    @property
    def portions(self) -> int:
        """The number of scale groups of a warp in a K iteration; 1 if all weights of a row have one scale."""
        return self.steps // self.portion if self.portion else 1

    def offset(self, j: int) -> int:
        """The distance, in columns of C, from a lane's first column to its column ``j``."""
        return j

    # ---- weights

    @cached_property
    def raw(self) -> Tile:
        return Tile("ldg_b", "b32", (self.steps, self.rows, self.words))

    @cached_property
    def pieces(self) -> Tile:
        """The registers of loads that are narrower than a word."""
        return Tile("piece_b", "b32", (self.steps, self.rows, WORD // self.vec if self.vec < WORD else 1))

    @property
    def narrow(self) -> bool:
        return self.vec < WORD

    @property
    def cache_hint(self) -> str:
        """The cache modifier of loads of weights. Loads of whole sectors bypass the L1; narrower loads read a sector in
        several steps."""
        return ".L1::no_allocate.L2::128B" if QUAD * self.vec >= 32 else ""

    def loads(self, step: int, following: bool = False) -> list[Load]:
        """The loads of weights for a step, and of the scales of a group that begins with it.

        ``following``: True for the step of the next K iteration, addressed by this iteration's pointers. The scales are
        then those of the group that ends with the step, whose registers are free after it.
        """
        ahead = self.stride if following else 0
        start = (step * self.step_depth + ahead) // self.per_byte
        out = []
        for i in range(self.rows):
            at = f"%ptr_b{i}"
            if not self.narrow:
                each = self.vec // WORD
                names = [self.raw[step, i, w] for w in range(each)]
                out.append(Load(width(each, "b32"), braces(names), names, at, start, cache_hint=self.cache_hint))
                continue
            for n in range(WORD // self.vec):
                name, first = self.pieces[step, i, n], n * self.vec
                out.append(Load(f"u{8 * self.vec}", name, [name], at, start + first, first * self.per_byte))
        if self.ends(step) if following else self.begins(step):
            group = step // self.portion
            out += self.group_loads(group, group + ahead // self.group)
        return out

    def joins(self, step: int) -> list[Join]:
        """The words of a step that are composed of narrower loads."""
        if not self.narrow:
            return []
        count = WORD // self.vec
        return [
            Join(self.raw[step, i, 0], [(self.pieces[step, i, n], 1 << 8 * self.vec * n) for n in range(count)])
            for i in range(self.rows)
        ]

    @property
    def places(self) -> list[int]:
        """For each load of a row, the elements of K from the lane's first to the load."""
        return [n * self.vec * self.per_byte for n in range(WORD // self.vec)] if self.narrow else [0]

    # ---- scales and zero points

    @property
    def scale_bytes(self) -> int:
        return self.access.scale_type.bytes

    @property
    def scale_suffix(self) -> str:
        """The type of the load of a scale."""
        return "f32" if self.scale_bytes == WORD else "b16"

    @cached_property
    def scales(self) -> Tile:
        return Tile("ldg_scale", self.scale_suffix, (self.portions, self.rows))

    @cached_property
    def zeros(self) -> Tile:
        return Tile("ldg_zero", "b32", (self.portions, self.rows))

    @cached_property
    def scale(self) -> Tile:
        """The registers of the rows' scales in f32."""
        return Tile("scale", "f32", (self.rows,))

    @cached_property
    def zero_offset(self) -> Tile:
        """The registers of the rows' offsets, which contain zero points: for lower nibbles and, if they differ, for
        upper nibbles."""
        return Tile("zero_offset", "b32", (self.rows, 2))

    def begins(self, step: int) -> bool:
        """True if a scale group begins with the step."""
        return self.portion > 0 and step % self.portion == 0

    def ends(self, step: int) -> bool:
        """True if a scale group ends with the step."""
        return self.portion > 0 and (step + 1) % self.portion == 0

    def group_loads(self, n: int = 0, at: int = 0) -> list[Load]:
        """The loads of scales and zero points of a group to register set ``n``. ``at``: groups from the pointers to the
        group."""
        loads = []
        for i in range(self.rows):
            to = self.scales[n, i]
            moved = "b16" if self.scale_suffix == "b16" else "b32"
            loads.append(Load(self.scale_suffix, to, [to], f"%ptr_scales{i}", at * self.scale_bytes, moved=moved))
        if self.access.zeros:
            registers = [self.zeros[n, i] for i in range(self.rows)]
            loads += [Load("u8", to, [to], f"%ptr_zeros{i}", at) for i, to in enumerate(registers)]
        return loads

    def step_scales(self, step: int) -> list[str]:
        """The instructions that convert the scales of the group that ends with the step to f32; empty if none ends."""
        return self.converted_scales(step // self.portion) if self.ends(step) else []

    def converted_scales(self, n: int = 0) -> list[str]:
        """The instructions that convert the scales of a group to f32."""
        return [widened(self.access.scale, self.scale[i], self.scales[n, i]) for i in range(self.rows)]

    def zero_points(self, step: int) -> list[tuple[list[str], str]]:
        """For the group that begins with the step: for each row, the registers of its offsets and of its zero point."""
        if not (self.access.zeros and self.begins(step)):
            return []
        return self.row_zero_points(step // self.portion)

    def row_zero_points(self, n: int = 0) -> list[tuple[list[str], str]]:
        return [(self.row_offsets(i), self.zeros[n, i]) for i in range(self.rows)] if self.access.zeros else []

    def row_offsets(self, i: int) -> list[str]:
        """The registers of the offsets of row ``i``, for lower and for upper nibbles."""
        if self.access.zeros:
            return [self.zero_offset[i, 0], self.zero_offset[i, 1]]
        return ["%constant_offset", "%upper_offset"]

    @property
    def stride_bytes(self) -> int:
        return self.stride // self.per_byte

    @property
    def group_arrays(self) -> list[tuple[str, int, int]]:
        """The arrays with an element per scale group, as (name, bytes of an element, bytes from one K iteration to the
        next)."""
        groups = self.stride // self.group if self.group else 0
        sizes = {SCALES: self.scale_bytes, ZEROS: 1}
        return [(name, sizes[name], groups * sizes[name]) for name in self.access.arrays]

    @property
    def advancing_arrays(self) -> list[tuple[str, int, int]]:
        """The arrays whose pointers advance with K; none if all weights of a row have one scale."""
        return self.group_arrays if self.group else []


class Copy(NamedTuple):
    """A copy of a thread to a stage. ``row``: rows from the thread's first; ``guard_place``: elements of K from the
    thread's first, empty if the preceding copy has the same; ``from_bytes``, ``to_bytes``: offsets from the thread's
    source and destination addresses."""

    row: int
    guard_place: str
    from_bytes: int
    to_bytes: int


@dataclass(frozen=True)
class Stages:
    """Stages of activations in shared memory, filled by cp.async. ``count``: the number of stages; ``rows``,
    ``extent``: extents of a stage along M and K; ``vec``: elements of a copy; ``chunk``: elements of a lane's load;
    ``depth``: elements of K of a lane in a step; ``threads``: threads of the block; ``first``: offset of the stages in
    shared memory, in bytes.

    The four lanes of a quad each read ``chunk`` elements, ``depth`` elements apart along K. In each step, a row of a
    stage has these four chunks next to each other. Rows are padded by four chunks to avoid bank conflicts.
    """

    count: int
    rows: int
    extent: int
    vec: int
    chunk: int
    depth: int
    threads: int
    first: int

    @property
    def pitch(self) -> int:
        """The number of bytes from one row to the next."""
        return (self.extent + QUAD * self.chunk) * ELEMENT

    @property
    def bytes(self) -> int:
        return self.rows * self.pitch

    @property
    def all_bytes(self) -> int:
        return self.count * self.bytes

    @property
    def stages_ahead(self) -> list[int]:
        """The stages that are copied before the first stage is read."""
        return list(range(self.count - 1))

    @property
    def pending(self) -> int:
        """The number of stages whose copies may be incomplete when a stage is read."""
        return self.count - 2

    def place(self, k: int) -> int:
        """The place in a row at which element ``k`` of K is stored. Places exchange bits of ``k``, so they can be
        added."""
        step_depth = QUAD * self.depth
        quarter, chunk, element = k % step_depth // self.depth, k % self.depth // self.chunk, k % self.chunk
        return k // step_depth * step_depth + (chunk * QUAD + quarter) * self.chunk + element

    def read_offset(self, step: int, chunk: int, row: int) -> int:
        """The number of bytes from a lane's first chunk in a stage to chunk ``chunk`` of row ``row`` in step
        ``step``."""
        return row * self.pitch + (step * QUAD * self.depth + chunk * QUAD * self.chunk) * ELEMENT

    @property
    def per_row(self) -> int:
        """The number of copies per row."""
        return self.extent // self.vec

    @property
    def row_threads(self) -> int:
        """The number of threads that copy a row at once."""
        return min(self.per_row, self.threads)

    @property
    def copying(self) -> int:
        """The number of threads that copy."""
        return min(self.threads, self.rows * self.per_row)

    @property
    def all_copy(self) -> bool:
        return self.copying == self.threads

    @property
    def guard(self) -> str:
        return "" if self.all_copy else "@%copies "

    @property
    def copies(self) -> list[Copy]:
        """The copies of a thread to a stage, ordered by K."""
        step = self.threads // self.row_threads
        out, before = [], -1
        for k in range(0, self.extent, self.row_threads * self.vec):
            for row in range(0, self.rows, step):
                place = "" if k == before else str(k)
                out.append(Copy(row, place, k * ELEMENT, row * self.pitch + self.place(k) * ELEMENT))
                before = k
        return out

    @property
    def copy_bytes(self) -> int:
        return self.vec * ELEMENT

    @property
    def cache(self) -> str:
        """The cache operator of copies: copies of 16 bytes bypass the L1."""
        return "cg" if self.copy_bytes == 16 else "ca"

    log2_row_threads = Log2("row_threads")
    last_row_thread = Last("row_threads")

    @property
    def place_steps(self) -> list[tuple[str, int, int, int]]:
        """The terms of a place, as (name, shift, mask, factor): a place is the sum of ((k >> shift) & mask) · factor
        elements."""
        step_depth, deep = QUAD * self.depth, self.depth // self.chunk
        return [
            ("element of a chunk", 0, self.chunk - 1, 1),
            ("chunk of a lane", log2(self.chunk), deep - 1, QUAD * self.chunk),
            ("lane of a quad", log2(self.depth), QUAD - 1, self.chunk),
            ("step", log2(step_depth), self.extent // step_depth - 1, step_depth),
        ]

    @property
    def chunk_bytes(self) -> int:
        return self.chunk * ELEMENT

    @property
    def stride_bytes(self) -> int:
        """The number of bytes of A from one stage to the next."""
        return self.extent * ELEMENT


@dataclass(frozen=True)
class Activations:
    """The activations of a lane: one row in each tile of 8 rows of A. ``vec``: elements of a load; ``depth``: elements
    of K of a step; ``stride``: elements of K from one iteration to the next."""

    tiles: int
    vec: int
    depth: int
    step_depth: int
    stride: int
    stages: Stages | None = None
    strided: bool = False

    def offset(self, i: int) -> int:
        """The distance, in rows of C, from a lane's first row to its row ``i``."""
        return i // 2 * COLUMNS + i % 2

    @property
    def rows(self) -> list[tuple[str, int]]:
        """The rows that the lane loads, as (pointer, rows of A from the lane's first)."""
        return [(f"%ptr_a{j}", j * COLUMNS) for j in range(self.tiles)]

    @property
    def chunk(self) -> int:
        """The number of elements of K that are loaded and multiplied at once."""
        return min(self.depth, CHUNK)

    @cached_property
    def raw(self) -> Tile:
        """The registers of a chunk as loaded: pairs of adjacent elements."""
        return Tile("ldg_a", "b32", (self.tiles, self.chunk // 2))

    @cached_property
    def strided_pairs(self) -> Tile:
        """The registers of a chunk in pairs of elements four apart, as ``dequantize_strided_nibbles`` makes pairs of
        weights."""
        return Tile("strided_a", "b32", (self.tiles, self.chunk // 2))

    @property
    def operands(self) -> Tile:
        """The registers that are operands of products."""
        return self.strided_pairs if self.strided else self.raw

    @property
    def exchanges(self) -> list[tuple[str, str, str, str]]:
        """The byte permutations that make strided pairs, as (destination, two pairs as loaded, prmt selector)."""
        if not self.strided:
            return []
        return [
            (self.strided_pairs[j, i], self.raw[j, i // 2], self.raw[j, i // 2 + 2], "0x7632" if i % 2 else "0x5410")
            for j in range(self.tiles)
            for i in range(self.chunk // 2)
        ]

    @cached_property
    def halves(self) -> Tile:
        """The registers of elements that are loaded one by one."""
        return Tile("half_a", "b16", (self.tiles, self.chunk if self.vec == 1 else 1))

    @property
    def template(self) -> str:
        """The template file that copies and loads activations."""
        return "copy/activations_by_lane.mako" if self.stages is None else "copy/activation_stages.mako"

    def loads(self, step: int, chunk: int) -> list[Load]:
        """The loads of a chunk of a step."""
        if self.stages is not None:
            words, at = self.chunk // 2, self.stages.read_offset
            tiles = [[self.raw[j, w] for w in range(words)] for j in range(self.tiles)]
            return [
                Load(width(words, "b32"), braces(x), x, "%read_at", at(step, chunk, j * COLUMNS))
                for j, x in enumerate(tiles)
            ]
        out = []
        for j in range(self.tiles):
            for place in range(0, self.chunk, self.vec):
                first = chunk * self.chunk + place
                offset = (step * self.step_depth + first) * ELEMENT
                if self.vec == 1:
                    name = self.halves[j, place]
                    out.append(Load("b16", name, [name], f"%ptr_a{j}", offset, first, "b16"))
                    continue
                names = [self.raw[j, place // 2 + w] for w in range(self.vec // 2)]
                out.append(Load(width(len(names), "b32"), braces(names), names, f"%ptr_a{j}", offset, first))
        return out

    @property
    def joins(self) -> list[tuple[str, str]]:
        """For elements that are loaded one by one: (word, operand of its two elements)."""
        if self.vec > 1:
            return []
        return [
            (self.raw[j, w], braces([self.halves[j, 2 * w], self.halves[j, 2 * w + 1]]))
            for j in range(self.tiles)
            for w in range(self.chunk // 2)
        ]

    @property
    def places(self) -> list[int]:
        """For each load of a row, the elements of K from the lane's first to the load."""
        return list(range(0, self.depth, self.vec))

    @property
    def stride_bytes(self) -> int:
        return self.stride * ELEMENT
