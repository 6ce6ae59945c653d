"""The loads, conversions and products of a thread of a skinny kernel. Python makes numbers and names; templates write
instructions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ptxgen.codegen.registers import Tile, braces, width
from ptxgen.codegen.vectorized import Last
from ptxgen.families.common.matrix_instructions import Instruction
from ptxgen.families.skinny.geometry import SkinnyOperandGeometry
from ptxgen.problem.dtypes import bits_of, dtype

QUAD = 4  #: bytes that dp4a multiplies at once


class ElementLoads(NamedTuple):
    """The single loads of the elements of one register of a step. ``elements``: (predicate, register, offset from
    ``pointer``) of each; ``pairs``: operands of the pairs from which ``word`` is assembled; empty if ``word`` is the
    element."""

    pointer: str
    elements: list[tuple[str, str, int]]
    pairs: list[str]
    word: str


@dataclass(frozen=True)
class Load:
    """A load of ``registers``, with type ``ptx_type``, from ``offset`` bytes past ``pointer``. ``advance``: index of
    the stride by which pointers move afterwards, -1: they do not move."""

    ptx_type: str
    registers: str
    names: tuple[str, ...]
    pointer: str
    offset: int
    advance: int = -1


@dataclass(frozen=True)
class Unpack:
    """The conversion of ``words``, elements of type ``dtype``, to elements ``into``. ``how``: the name of a macro of
    math/skinny_fma.mako."""

    how: str
    into: tuple[str, ...]
    words: tuple[str, ...]
    dtype: str = ""

    @property
    def byte_places(self) -> list[tuple[str, int]]:
        """For each 8-bit element: its register, and its first bit in the word."""
        return [(r, 8 * n) for n, r in enumerate(self.into)]

    @property
    def half_pairs(self) -> list[tuple[str, ...]]:
        """The registers of each pair of 8-bit floats; the last pair may have one."""
        return [self.into[n : n + 2] for n in range(0, len(self.into), 2)]


@dataclass(frozen=True)
class Round:
    """A part of a step: the conversions of words, then the products as (sum, x, y)."""

    unpacks: tuple[Unpack, ...]
    products: tuple[tuple[str, str, str], ...]


class SkinnyOperand:
    """How one operand reaches the registers of a thread.

    ``g``: the operand's geometry for one configuration; ``along``: threads of a block along the long side; ``depth``:
    elements of K of a step; ``steps``: steps of a K iteration; ``step_stride``: elements of K from one step to the
    next; ``stride``: elements of K from one K iteration to the next; ``size``: bytes of an element; ``dp4a``: True if
    dp4a multiplies four elements of K at once; ``whole_lines``: True if loads of the long operand bring whole lines
    into the L2.
    """

    def __init__(
        self,
        g: SkinnyOperandGeometry,
        element: str,
        size: int,
        along: int,
        depth: int,
        steps: int,
        step_stride: int,
        stride: int,
        dp4a: bool,
        whole_lines: bool,
    ) -> None:
        self.name, self.upper = g.name, g.name.upper()
        self.extent = "M" if g.name == "a" else "N"
        self.long, self.kmajor = bool(g.long), bool(g.kmajor)
        self.count, self.vec, self.size, self.dtype = int(g.count), int(g.vec), size, element
        self.along = along if self.long else 1
        self.depth, self.steps, self.step_stride, self.dp4a = depth, steps, step_stride, dp4a
        #: the cache operator of its loads
        self.unaligned = bool(g.unaligned)
        #: True if a vector is cut from two chunks, so that all rows, wherever they begin, have it at the same k
        self.split_vectors = bool(g.split_vectors)
        l1 = self.long and not (whole_lines and self.split_vectors)
        self.cache_hint = (".L1::no_allocate" if l1 else "") + (".L2::128B" if self.long and whole_lines else "")
        #: adjacent rows (columns) of C of a thread
        self.contiguous_run = 1 if self.unaligned else self.count if self.kmajor or not self.long else self.vec
        #: rows (columns) that need a pointer of their own: elements from the thread's first
        self.rows = [self.offset(i) for i in range(0, self.count, 1 if self.kmajor else self.vec)]
        #: elements from the last one that a load may start at to the end of the extent
        self.edge = 1 if self.kmajor else self.vec
        self._registers()
        self._set_pointer_steps(stride)

    def offset(self, i: int) -> int:
        """The distance, in rows (columns) of C, from a thread's first row to its row number ``i``."""
        return i // self.contiguous_run * self.along * self.contiguous_run + i % self.contiguous_run

    # ---- loads

    def _registers(self) -> None:
        """Sets ``packed``, the elements per register of a load, and ``raw``, these registers by step, load and word."""
        bytes_ = self.vec * self.size
        if self.size >= 4:
            ptx_type, words, self.packed = f"f{8 * self.size}", self.vec, 1
        elif bytes_ >= 4:
            ptx_type, words, self.packed = "b32", bytes_ // 4, 4 // self.size
        else:
            ptx_type, words, self.packed = "b16", 1, self.vec
        self.load_type = width(words, ptx_type) if bytes_ >= 2 else "b8"
        if words * (8 if ptx_type == "f64" else 4) > 16:
            raise ValueError(f"{self.vec} elements of {self.size} bytes are more than one access")
        self.zero = bits_of(0.0, dtype(ptx_type)) if ptx_type.startswith("f") else "0"
        loads = len(self.rows) * (self.depth // self.vec if self.kmajor else self.depth)
        self.raw = Tile(
            f"ldg_{self.name}", ptx_type, (self.steps if self.long else 1, loads * (1 + self.split_vectors), words)
        )

    def _set_pointer_steps(self, stride: int) -> None:
        """Sets the rows of K by which pointers move if K is not contiguous: within a step, to the next step, to the
        next K iteration."""
        to_next, to_iteration = (
            n - self.depth + 1 for n in (self.step_stride, stride - self.step_stride * (self.steps - 1))
        )
        steps = [*([1] if self.depth > 1 else []), to_next, *([to_iteration] if to_iteration != to_next else [])]
        self.pointer_steps = [] if self.kmajor else steps
        #: elements along K that pointers advance by per K iteration, where K is contiguous
        self.stride = stride if self.kmajor else 0

    def loads(self, step: int, following: bool = False) -> list[Load]:
        """The loads of a step; ``following``: True for the step of the next K iteration, addressed by this iteration's
        pointers."""
        out: list[Load] = []
        row = step if self.long else 0
        if self.kmajor:
            start = step * self.step_stride + (self.stride if following else 0)
            for n in range(len(self.rows)):
                for d in range(0, self.depth * (1 + self.split_vectors), self.vec):
                    out.append(self._load(row, len(out), n, (start + d) * self.size))
            return out
        for d in range(self.depth):
            for n in range(len(self.rows)):
                last = n == len(self.rows) - 1
                advance = (self._next_step(step) if d == self.depth - 1 else 0) if last else -1
                out.append(self._load(row, len(out), n, 0, advance))
        return out

    def _next_step(self, step: int) -> int:
        """The index of the stride by which pointers move after the last row of a step."""
        return len(self.pointer_steps) - 1 if step == self.steps - 1 else int(self.depth > 1)

    def _load(self, row: int, index: int, pointer: int, offset: int, advance: int = -1) -> Load:
        words = self.raw.shape[2]
        names = tuple(self.raw[row, index, w] for w in range(words))
        into, at = self.raw.vector(row, index, 0, n=words), f"%ptr_{self.name}{pointer}"
        return Load(self.load_type, into, names, at, offset, advance)

    # ---- elements

    @property
    def element_type(self) -> str:
        """The type of a load of one element."""
        return {1: "b8", 2: "b16"}.get(self.size, self.raw.ptx_type)

    @property
    def element_register_type(self) -> str:
        """The type of the register of one element."""
        return "b16" if self.packed > 1 else self.raw.ptx_type

    @property
    def element_zero(self) -> str:
        return "0" if self.packed > 1 else self.zero

    def element_loads(self, into: Tile | None = None) -> list[ElementLoads]:
        """The loads of a step in which each element is loaded alone. ``into``: the registers in which words are
        assembled, if they are not those of vector loads."""
        out: list[ElementLoads] = []
        for n in range(len(self.rows)):
            for d in range(0, self.depth, self.packed):
                name = into[n, d // self.packed] if into else self.word(0, n, d)[0]
                parts = tuple(f"%elem{i}" for i in range(self.packed)) if self.packed > 1 else (name,)
                elements = [(f"%in_k_range{i}", part, i * self.size) for i, part in enumerate(parts, d)]
                operands = pairs(list(parts)) if self.packed > 1 else []
                out.append(ElementLoads(f"%ptr_{self.name}{n}", elements, operands, name))
        return out

    def word(self, step: int, i: int, d: int) -> tuple[str, int]:
        """The register to which element ``i`` at depth ``d`` of a step is loaded, and its index in the register."""
        row = step if self.long else 0
        if self.kmajor:
            load, at = i * (self.depth // self.vec) + d // self.vec, d % self.vec
        else:
            load, at = d * len(self.rows) + i // self.vec, i % self.vec
        return self.raw[row, load, at // self.packed], at % self.packed

    #: the last element of a vector
    last_element = Last("vec")

    @property
    def stride_bytes(self) -> int:
        return self.stride * self.size

    @property
    def pointer_step_bytes(self) -> list[int]:
        return [n * self.size for n in self.pointer_steps]

    @property
    def described_rows(self) -> str:
        noun, along = ("row", "with contiguous K") if self.kmajor else ("vector", f"along {self.extent}")
        return f"{len(self.rows)} {noun}{'s' * (len(self.rows) > 1)} {along}"

    @property
    def from_chunk(self) -> list[str]:
        """The instructions that move the address %tmp64 from the start of a chunk to the start of the row."""
        return ["cvt.u64.u32 %tmp64b, %misalignment;", "add.s64 %tmp64, %tmp64, %tmp64b;"] if self.split_vectors else []


class Elements:
    """The elements of an operand as they are multiplied. Each word is converted once, if conversion is needed."""

    def __init__(self, x: SkinnyOperand, ptx_type: str, shape: tuple[int, int]) -> None:
        self.x = x
        #: True if loaded registers are multiplied without conversion
        self.used_directly = x.size >= 4 or (x.dp4a and x.kmajor)
        self.tile = Tile(f"cvt_{x.name}", "b32" if x.dp4a else ptx_type, shape)

    def _at(self, i: int, d: int) -> str:
        return self.tile[i, d % self.tile.shape[1]]

    def value(self, step: int, i: int, d: int) -> str:
        """The register with element ``i`` at depth ``d``; for dp4a, with the quad of elements that starts at ``d``."""
        if self.used_directly:
            return self.x.word(step, i, d)[0]
        return self._at(i, d // (QUAD if self.x.dp4a else 1))

    def unpacks(self, step: int, ds: range) -> list[Unpack]:
        """The conversions that produce the elements at depths ``ds``."""
        if self.used_directly:
            return []
        if self.x.dp4a:
            return self._transposed(step, ds.start)
        by_word: dict[str, dict[int, str]] = {}
        for i in range(self.x.count):
            for d in ds:
                word, place = self.x.word(step, i, d)
                by_word.setdefault(word, {})[place] = self._at(i, d)
        element = dtype(self.x.dtype)
        how = "fp8" if element.fp8 else "bytes" if element.int8 else "halves"
        return [
            Unpack(how, tuple(into[n] for n in sorted(into)), (word,), element.name) for word, into in by_word.items()
        ]

    def _transposed(self, step: int, d: int) -> list[Unpack]:
        """The transpositions of 4 x 4 bytes (four k by four adjacent elements), after which a word holds four k of one
        element."""
        out = []
        for i in range(0, self.x.count, QUAD):
            words = tuple(self.x.word(step, i, d + n)[0] for n in range(QUAD))
            out.append(Unpack("transpose", tuple(self._at(i + n, d // QUAD) for n in range(QUAD)), words))
        return out


class CutVector(NamedTuple):
    """A vector that is cut from two chunks. ``words``: the words of the vector; ``chunks``: the words of the two
    chunks."""

    words: list[str]
    chunks: list[str]

    @property
    def whole_words(self) -> list[tuple[str, str, str]]:
        """The shift by two words, as (destination, word two further, word)."""
        return [(f"%shifted{i}", self.chunks[i + 2], self.chunks[i]) for i in range(6)]

    @property
    def odd_words(self) -> list[tuple[str, str]]:
        """The shift by one word, as (register, next register)."""
        return [(f"%shifted{i}", f"%shifted{i + 1}") for i in range(5)]

    @property
    def bits(self) -> list[tuple[str, str, str]]:
        """The shift by less than a word, as (word of the vector, register, next register)."""
        return [(word, f"%shifted{i}", f"%shifted{i + 1}") for i, word in enumerate(self.words)]


def pairs(names: list[str]) -> list[str]:
    """The operands in braces of adjacent registers, two by two."""
    return [braces(names[i : i + 2]) for i in range(0, len(names), 2)]


class Fragments:
    """The words of both operands as a matrix instruction takes them: word n of a lane's vector in each of its rows.

    ``i``: the instruction; two words along K make the fragments of one instruction. ``acc``: sums by pair of rows and
    tile of the short side.
    """

    def __init__(self, x: SkinnyOperand, y: SkinnyOperand, i: Instruction, acc: Tile) -> None:
        self.x, self.y, self.instruction, self.acc = x, y, i, acc
        self.words = x.depth * x.size // 4
        #: the registers of words that are packed, rounded, or cut from two chunks
        self.word_y = Tile("word_b", "b32", (y.count, self.words))
        self.word_x = Tile("word_a", "b32", (x.count, self.words))
        self.rounds = i.run == 1
        self.packs_y = y.raw.ptx_type == "b16"
        self.own_x = self.rounds or x.split_vectors

    @property
    def declared(self) -> list[Tile]:
        return [*([self.word_x] if self.own_x else []), *([self.word_y] if self.rounds or self.packs_y else [])]

    def _raw(self, x: SkinnyOperand, step: int, i: int, w: int) -> str:
        return x.word(step, i, w * (4 // x.size))[0]

    def rounded(self, step: int) -> list[tuple[str, str]]:
        """The (destination, source) registers of words that a step rounds to tf32."""
        if not self.rounds:
            return []
        pairs = ((self.word_x, self.x), (self.word_y, self.y))
        return [
            (tile[i, w], tile[i, w] if x.split_vectors else self._raw(x, step, i, w))
            for tile, x in pairs
            for i in range(x.count)
            for w in range(self.words)
        ]

    def unaligned(self, step: int) -> list[CutVector]:
        """For each row, the vector that is cut from two chunks."""
        if not self.x.split_vectors:
            return []
        raw, words = self.x.raw, range(self.words)
        return [
            CutVector([self.word_x[i, w] for w in words], [raw[step, 2 * i + n, w] for n in (0, 1) for w in words])
            for i in range(self.x.count)
        ]

    def packed(self, step: int) -> list[tuple[str, list[str]]]:
        """For loads of the short operand that are narrower than a word: (word, operands of one or two pairs of
        registers of which it is assembled)."""
        if not self.packs_y:
            return []
        y, each = self.y, 4 // self.y.size
        return [
            (
                self.word_y[i, w],
                pairs(list(dict.fromkeys(y.word(step, i, d)[0] for d in range(w * each, (w + 1) * each)))),
            )
            for i in range(y.count)
            for w in range(self.words)
        ]

    def issues(self, step: int) -> list[tuple[list[str], str, str]]:
        """The instructions of a step, each as (sums, fragment of the long operand, fragment of the short operand)."""
        out = []
        for w in range(0, self.words, 2):
            for n in range(self.x.count // 2):
                rows = (2 * n, 2 * n + 1)
                a = [
                    self.word_x[i, k] if self.own_x else self._raw(self.x, step, i, k) for k in (w, w + 1) for i in rows
                ]
                for j in range(self.y.count):
                    own = self.rounds or self.packs_y
                    b = [self.word_y[j, k] if own else self._raw(self.y, step, j, k) for k in (w, w + 1)]
                    out += self.instruction.step([self.acc[n, j, i] for i in range(4)], a, b)
        return out

    def sum_at(self, i: int, j: int) -> str:
        """The register with a thread's sum of row ``i`` of the long side and column ``j`` of the short side."""
        return self.acc[i // 2, j // 2, 2 * (i % 2) + j % 2]


def rounds(x: Elements, y: Elements, acc: Tile, step: int) -> list[Round]:
    """The rounds of one step. ``acc``: sums by element of x and element of y."""
    unit = QUAD if x.x.dp4a else 1
    depth = x.x.depth
    chunk = max(x.tile.shape[1] * unit, 1)
    out = []
    for first in range(0, depth, chunk):
        ds = range(first, first + chunk)
        unpacks = x.unpacks(step, ds)
        depth_y = y.tile.shape[1] * unit
        if first % depth_y == 0:
            unpacks += y.unpacks(step, range(first, first + depth_y))
        products = tuple(
            (acc[i, t], x.value(step, i, d), y.value(step, t, d))
            for d in range(first, first + chunk, unit)
            for i in range(x.x.count)
            for t in range(y.x.count)
        )
        out.append(Round(tuple(unpacks), products))
    return out
