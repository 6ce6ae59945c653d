"""Quantized weights as X: TMA loads the quantized words, and threads dequantize them to fragments of wgmma's A operand.

A lane has two rows of 64. Of each 8 elements of K in a row, it has the pair whose number is the lane's number in its
quad. The pair is in one word of shared memory, from which prmt selects it by a register that depends on the lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.registers import Tile, width
from ptxgen.codegen.source import TensorMap
from ptxgen.codegen.vectorized import log2
from ptxgen.families.common.dequantize import Dequantizer, widened
from ptxgen.families.wgmma.geometry import COLUMNS, FRAGMENT, FRAGMENTS, ROWS, WgmmaGeometry, row_bytes
from ptxgen.families.wgmma.layout import ATOM, Multicast, OperandPath
from ptxgen.families.wgmma.matrix.loads import MatrixLoads
from ptxgen.families.wgmma.matrix.rs_fragments import WGMMA_ROWS, Term
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.quantized_rows import SCALES, ZEROS, QuantizedRows
from ptxgen.problem.dtypes import dtype

WORD = 4  #: bytes of a word
CHUNK = 16  #: bytes that a swizzle moves together
STEP_K = 16  #: elements of K of one wgmma
WORDS_OF_STEP = 2  #: words of a row that a lane reads for one wgmma; each word has one pair
SELECTOR = "%weight_selector"


class QuantizedOperand(OperandPath):
    """The path of quantized weights, which TMA loads as bytes at the coordinate ``%weights_k`` along K."""

    def __init__(
        self,
        role: str,
        name: str,
        g: WgmmaGeometry,
        config: Config,
        base: int,
        multicast: Multicast | None,
        outer: Sequence[str],
        access: QuantizedRows,
    ) -> None:
        self.access = access
        super().__init__(role, name, g, config, base, multicast, outer)

    def _elements(self, g: WgmmaGeometry, config: Config) -> tuple[int, int]:
        return 1, int(row_bytes(self.access, config))

    def inner_coordinate(self, b: object, first: str) -> str:
        return "%weights_k"


@dataclass(frozen=True)
class QuantizedLoads(MatrixLoads):
    """The loads of activations and quantized weights. ``matrices``: the loads that give coordinates and tensor maps of
    one product, or of the items of a group."""

    matrices: MatrixLoads
    access: QuantizedRows

    template = "addr/quantized_weights.mako"

    @property
    def log2_per_byte(self) -> int:
        return log2(self.access.format.per_byte)

    @property
    def stage_bytes(self) -> int:
        """The number of bytes of a row of weights in a stage."""
        return int(row_bytes(self.access, self.config))

    def operand(self, role: str, name: str, base: int, multicast: Multicast | None) -> OperandPath:
        if name == "b":
            outer = self.item_coordinates(name)
            return QuantizedOperand(role, name, self.geometry, self.config, base, multicast, outer, self.access)
        return super().operand(role, name, base, multicast)

    def item_coordinates(self, name: str) -> Sequence[str]:
        return self.matrices.item_coordinates(name)

    def tensor_map(self, p: KernelProblem, x: OperandPath, element_type: str) -> TensorMap:
        return self.matrices.tensor_map(p, x, p.operand("B").element.tma if x.name == "b" else element_type)


class ChunkLoad(NamedTuple):
    """A load of words of a row. ``suffix``: vector and type of the instruction; ``offset``: bytes from the address of
    the row's chunk."""

    suffix: str
    registers: str
    offset: int


class ChunkLoads(NamedTuple):
    """The loads of a chunk of each row of a lane. ``flip``: the bits to invert in the lane's address to select the
    chunk."""

    flip: int
    loads: list[ChunkLoad]


class Dequantized(NamedTuple):
    """A fragment register, the word that has its pair, the registers of the offsets of its row, and the index of the
    row among those of the thread."""

    to: list[str]
    word: str
    offsets: list[str]
    row: int


@dataclass(frozen=True)
class QuantizedFragments(Part):
    """The fragments of weights of a math warpgroup. ``dtype``: the type of dequantized elements; ``mi``: fragments of
    64 rows; ``span``: bytes of a row of a box; ``box_bytes``: bytes from one box to the next; ``depth``: elements of K
    of a stage."""

    access: QuantizedRows
    dtype: str
    mi: int
    span: int
    box_bytes: int
    depth: int

    @property
    def dequantizer(self) -> Dequantizer:
        return Dequantizer(self.access.format, self.dtype, selector=SELECTOR)

    @property
    def k_steps(self) -> int:
        return self.depth // STEP_K

    @property
    def chunk_steps(self) -> int:
        """The number of K steps that a chunk has elements for."""
        return CHUNK * self.access.format.per_byte // STEP_K

    @property
    def word_pitch(self) -> int:
        """The number of bytes from the word with a lane's pair of 8 elements of K to the word with its pair of the next
        8."""
        return COLUMNS // self.access.format.per_byte

    @property
    def words(self) -> int:
        """The number of words of a row's chunk that a lane reads."""
        return WORDS_OF_STEP * self.chunk_steps

    @property
    def tile(self) -> Tile:
        """The registers of the fragments of the last K steps."""
        return Tile("frag_x", "b32", (FRAGMENTS, self.mi, FRAGMENT))

    @property
    def raw(self) -> Tile:
        """The registers of a chunk as loaded: [fragment of 64 rows][row of the lane][word]."""
        return Tile("raw_x", "b32", (self.mi, 2, self.words))

    @property
    def operands(self) -> list[list[str]]:
        """For each K step, its A operands."""
        return [[self.tile[k % FRAGMENTS, m, :] for m in range(self.mi)] for k in range(self.k_steps)]

    # ---- addresses

    @property
    def row_terms(self) -> tuple[Term, ...]:
        return WGMMA_ROWS

    @property
    def swizzle_shift(self) -> int:
        """log2 of the number of rows in 128 bytes."""
        return 7 - log2(self.span)

    @property
    def swizzle_mask(self) -> int:
        """The bits of a row that the swizzle uses, in chunks."""
        return self.span // CHUNK - 1

    @property
    def pairs_of_word(self) -> int:
        return self.dequantizer.pairs_of_word

    @property
    def last_pair(self) -> int:
        return self.pairs_of_word - 1

    @property
    def log2_pairs(self) -> int:
        return log2(self.pairs_of_word)

    def chunk(self, n: int) -> ChunkLoads:
        """The loads of chunk ``n`` of a stage."""
        box, inner = divmod(n * CHUNK, self.span)
        loads = []
        for m in range(self.mi):
            for row in (0, 1):
                at = box * self.box_bytes + (ROWS * m + ATOM * row) * self.span
                if self.word_pitch == WORD:
                    loads.append(ChunkLoad(width(self.words, "b32"), self.raw.vector(m, row, 0, n=self.words), at))
                    continue
                loads += [ChunkLoad("b32", self.raw[m, row, w], at + w * self.word_pitch) for w in range(self.words)]
        return ChunkLoads(inner, loads)

    @property
    def first_chunk(self) -> ChunkLoads:
        return self.chunk(0)

    def next_chunk(self, k: int) -> list[ChunkLoads]:
        """A list with the loads of the next chunk, which follow the dequantization of K step ``k``; empty if the chunk
        has more steps or is the last."""
        last = (k + 1) % self.chunk_steps == 0 and k + 1 < self.k_steps
        return [self.chunk((k + 1) // self.chunk_steps)] if last else []

    def dequantized(self, k: int, offsets: Sequence[Sequence[list[str]]]) -> list[Dequantized]:
        """The fragment registers of K step ``k``. ``offsets``: the registers of the weights' offsets, by fragment of 64
        rows and row of the lane."""
        first = WORDS_OF_STEP * (k % self.chunk_steps)
        return [
            Dequantized(
                [self.tile[k % FRAGMENTS, m, n]],
                self.raw[m, n % 2, first + n // 2],
                offsets[m][n % 2],
                2 * m + n % 2,
            )
            for m in range(self.mi)
            for n in range(FRAGMENT)
        ]


@dataclass(frozen=True)
class GroupScales(Part):
    """The scales and zero points of a thread's rows of weights. ``mi``: fragments of 64 rows; ``extent``: the register
    with the number of rows of the weights; ``item``: the register with the index of a matrix of weights, empty if there
    is one; ``depth``: elements of K of a stage; ``total``, ``partial``: the registers of sums, and of sums of a
    group."""

    access: QuantizedRows
    mi: int
    extent: str
    item: str
    depth: int
    total: Tile
    partial: Tile

    template = "math/group_scales.mako"

    @property
    def parameters(self) -> list[object]:
        return []

    @property
    def grouped(self) -> bool:
        """True if scale groups are shorter than a row."""
        return self.access.group > 0

    @property
    def log2_group(self) -> int:
        return log2(self.access.group) if self.grouped else 0

    @property
    def ends_within_stage(self) -> bool:
        """True if K may end before the last group of a stage."""
        return self.access.group < self.depth

    @property
    def rows(self) -> list[tuple[int, int]]:
        """The rows of a thread, as (fragment of 64 rows, row of the lane)."""
        return [(m, row) for m in range(self.mi) for row in (0, 1)]

    @property
    def row_offsets(self) -> list[int]:
        """The distances from a thread's first row to each of its rows."""
        return [ROWS * m + ATOM * row for m, row in self.rows]

    @property
    def count(self) -> int:
        return 2 * self.mi

    @property
    def scale(self) -> Tile:
        """The registers of the scales of the present group."""
        return Tile("weight_scale", "f32", (self.count,))

    @property
    def zero_offset(self) -> Tile:
        """The registers of the offsets of dequantized weights, which contain the zero points of the present group."""
        return Tile("weight_zero", "b32", (self.count,))

    @property
    def arrays(self) -> list[tuple[str, int, str, Tile, Tile]]:
        """For scales, and for zero points: the array, bytes of an element, PTX type of a load, registers of the next
        group, addresses."""
        scale = self.access.scale_type
        out = [
            (
                SCALES,
                scale.bytes,
                "f32" if scale.bytes == WORD else "b16",
                Tile("next_scale", "f32" if scale.bytes == WORD else "b16", (self.count,)),
                Tile("scale_at", "b64", (self.count,)),
            )
        ]
        if self.access.zeros:
            registers = Tile("next_zero", "b32", (self.count,)), Tile("zero_at", "b64", (self.count,))
            out.append((ZEROS, dtype("u8").bytes, "u8", *registers))
        return out

    @property
    def conversions(self) -> list[str]:
        """The instructions that convert the scales of the next group to f32."""
        loaded = self.arrays[0][3]
        return [widened(self.access.scale, self.scale[n], loaded[n]) for n in range(self.count)]

    @property
    def zero_points(self) -> list[tuple[list[str], str]]:
        """For each row: the registers of its offsets, and the register of its zero point as loaded."""
        if not self.access.zeros:
            return []
        loaded = self.arrays[1][3]
        return [([self.zero_offset[n]], loaded[n]) for n in range(self.count)]

    @property
    def offsets(self) -> list[list[list[str]]]:
        """The registers of the offsets of weights, by fragment of 64 rows and row of the lane."""
        if not self.access.zeros:
            return [[["%constant_offset"]] * 2] * self.mi
        return [[[self.zero_offset[2 * m + row]] for row in (0, 1)] for m in range(self.mi)]

    @property
    def scaled_sums(self) -> list[tuple[str, str, str]]:
        """The scaling at the end of a scale group, as (total, sum of the group, scale)."""
        return [
            (self.total[m, n], self.partial[m, n], self.scale[2 * m + n // 2 % 2])
            for m in range(self.mi)
            for n in range(self.total.shape[1])
        ]

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        rows = [(self.scale, "scales of the rows of weights")]
        if self.access.zeros:
            rows.append((self.zero_offset, "offsets of the rows, with their zero points"))
        for name, _, _, loaded, at in self.arrays:
            rows += [(loaded, f"{name} of the next group, as loaded"), (at, f"addresses of {name}")]
        return rows


@dataclass(frozen=True)
class FragmentScales(GroupScales):
    """Scales that multiply the dequantized weights in their fragments, which rounds them to their type. Sums need no
    scales, and so no promotion."""

    template = "math/fragment_scales.mako"

    @property
    def scale(self) -> Tile:
        """The registers of the scales of the present group, in both halves."""
        return Tile("weight_scale", "b32", (self.count,))

    @property
    def loaded(self) -> list[tuple[str, str]]:
        """For each row, the registers of its scale, and of that of the next group."""
        return list(zip(self.scale.all, self.arrays[0][3].all, strict=True))
