"""The kernel of sampled products (SDDMM): x·yᵀ at the nonzeros of a sparse matrix, in the order of the nonzeros.

A warp has a segment of consecutive nonzeros: a row, or a chunk of equal size. The row of x is in registers; groups of
lanes gather the rows of y that the column indices name, and add products by shuffles. Where rows have many nonzeros,
the warps of a block wait for each other after a range of columns, so that they find rows of y in the L1 cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from ptxgen.codegen.parts.parameters import ParameterList, Parameters, given
from ptxgen.codegen.preparation import Preparation
from ptxgen.codegen.registers import Tile, width
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import WARP, Log2, Mask, ceil_div
from ptxgen.errors import DtypeError
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import bits_of, dtype

VECTORS = 4  #: the most vectors of a row of x that a lane holds
LOADED = 128  #: the approximate number of bytes of y that a lane loads at once
SECTOR = 128  #: bytes of a row of y that a group reads at once, if the row has as many
CHUNKS = (32, 256)  #: the least and the most nonzeros of a chunk
RESIDENT = 64  #: chunks are small enough that a multiprocessor gets so many warps
EVEN = 2  #: segments are rows if the longest row has at most so many times the mean length
ROW_WARPS = 8  #: and if there are at least so many rows per multiprocessor
CACHED = 1 << 17  #: bytes of rows of y between two waits of the warps of a block
THREADS, MOST_THREADS = 256, 1024  #: threads per block, without and with waits


class Shape(NamedTuple):
    """The sizes of a sparse matrix: rows, columns, nonzeros, and nonzeros of the longest row."""

    m: int
    k: int
    nnz: int
    longest: int


class Sampled(NamedTuple):
    """The sizes of a launch. ``m``, ``nnz``: rows and nonzeros of the matrix; ``n``: columns of x and y; ``ldx``,
    ``ldy``: leading dimensions of x and y in elements; ``chunk``: nonzeros of a segment, 0: segments are rows."""

    m: int
    n: int
    nnz: int
    ldx: int
    ldy: int
    chunk: int


@dataclass(frozen=True)
class SampledProducts(Preparation):
    """A kernel of sampled products. ``dtype``: the type of x, y, the values and the results; ``vec``: elements of a
    load; ``lanes``: lanes of a group, which computes one nonzero; ``vectors``: vectors of a row that a lane loads;
    ``unrolled``: nonzeros that a group computes at once; ``whole``: x and y have exactly as many columns as a group
    reads at once; ``wide``: they have more, and x is read again for each nonzero; ``rows``: the segments of warps are
    rows; ``scaled``: results are multiplied by the values of the matrix; ``synced``: the warps of a block, which then
    have rows, wait for each other after so many columns, 0: they do not; ``resident``: the number of warps for which
    ptxas limits registers: without this limit, ptxas spills to fit more warps."""

    dtype: str
    vec: int
    lanes: int
    vectors: int
    unrolled: int
    whole: bool = False
    wide: bool = False
    rows: bool = False
    scaled: bool = False
    synced: int = 0
    threads: int = THREADS
    resident: int = 32

    kernel: ClassVar[str] = "kernel/sampled_products.mako"
    entry: ClassVar[str] = "sampled_products"

    @classmethod
    def of(cls, element_type: str, n: int, vec: int, rows: bool, scaled: bool) -> SampledProducts:
        """The kernel for ``n`` columns of x and y, which are read in vectors of ``vec`` elements."""
        size = dtype(element_type).bytes
        loads = max(ceil_div(n, vec), 1)
        together = min(max(SECTOR // (vec * size), 1), WARP)
        lanes = min(_power_of_two(max(ceil_div(loads, VECTORS), min(loads, together))), WARP)
        vectors = ceil_div(loads, lanes)
        wide = vectors > VECTORS
        vectors = min(vectors, VECTORS)
        each = max(LOADED // (vectors * vec * max(size, 4)), 1)
        unrolled = min(1 << each.bit_length() - 1, lanes, 4)
        whole = not wide and n == lanes * vectors * vec
        return cls(element_type, vec, lanes, vectors, unrolled, whole, wide, rows, scaled, threads=THREADS)

    @property
    def description(self) -> list[str]:
        segment = "a row" if self.rows else "a chunk of nonzeros"
        segment += f" and waits after {self.synced} columns" if self.synced else ""
        scale = ", scaled by the values" * self.scaled
        return [f"sampled products of {self.dtype}{scale}: a warp has {segment}, {self.lanes} lanes a nonzero"]

    # ---- numbers that the template writes

    @property
    def size(self) -> int:
        """The number of bytes of an element."""
        return dtype(self.dtype).bytes

    @property
    def arithmetic(self) -> str:
        """The type of the sums."""
        return "f64" if self.size == 8 else "f32"

    @property
    def zero(self) -> str:
        return bits_of(0.0, dtype(self.arithmetic))

    @property
    def converts(self) -> bool:
        return self.size == 2

    @property
    def warps(self) -> int:
        return self.threads // WARP

    @property
    def resident_blocks(self) -> int:
        return max(self.resident // self.warps, 1)

    @property
    def groups(self) -> int:
        """The number of groups of lanes of a warp."""
        return WARP // self.lanes

    @property
    def at_once(self) -> int:
        """The number of nonzeros that a warp computes at once."""
        return self.groups * self.unrolled

    @property
    def columns(self) -> int:
        """The number of columns that a group reads at once."""
        return self.lanes * self.vectors * self.vec

    @property
    def vector_bytes(self) -> int:
        """The bytes from a vector of a lane to the lane's next vector."""
        return self.lanes * self.vec * self.size

    @property
    def sum_steps(self) -> list[tuple[int, int]]:
        """The exchanges between lanes that add the sums: pairs (distance of the two lanes, sums that a lane keeps).
        While a lane has several sums, it keeps half of them and gives the others away."""
        steps, kept = [], self.unrolled
        for i in range(self.lanes.bit_length() - 1):
            kept //= 2
            steps.append((1 << i, kept))
        return steps

    @property
    def own_bits(self) -> list[tuple[int, int]]:
        """The number of the nonzero whose sum a lane has in the end, as pairs (bit of the lane number, value that the
        bit adds)."""
        return [(distance, kept) for distance, kept in self.sum_steps if kept]

    # ---- registers

    @property
    def packed(self) -> int:
        """The number of registers into which a vector is loaded."""
        return self.vec // 2 if self.converts and self.vec > 1 else self.vec

    @property
    def register(self) -> str:
        return "b32" if self.converts and self.vec > 1 else "b16" if self.converts else self.arithmetic

    @property
    def access(self) -> str:
        return width(self.packed, self.register)

    @cached_property
    def x(self) -> Tile:
        return Tile("x_held", self.arithmetic, (self.vectors, self.vec))

    @cached_property
    def x_loaded(self) -> Tile:
        return Tile("x_loaded", self.register, (self.vectors, self.packed))

    @cached_property
    def y(self) -> Tile:
        return Tile("y_loaded", self.register, (self.unrolled, self.vectors, self.packed))

    @cached_property
    def widened(self) -> Tile:
        return Tile("widened", self.arithmetic, (self.vec,))

    @cached_property
    def half(self) -> Tile:
        return Tile("half", "b16", (2,))

    @cached_property
    def sums(self) -> Tile:
        return Tile("sum", self.arithmetic, (self.unrolled,))

    @cached_property
    def column(self) -> Tile:
        return Tile("column", "b32", (self.unrolled,))

    @cached_property
    def ptr_y(self) -> Tile:
        return Tile("ptr_y", "b64", (self.unrolled,))

    @property
    def tiles(self) -> list[Tile]:
        loaded = [self.x_loaded, self.widened, self.half] if self.converts else []
        return [self.x, *loaded, self.y, self.sums, self.column, self.ptr_y]

    # ---- launches

    @property
    def parameters(self) -> ParameterList:
        values = ("values",) if self.scaled else ()
        return ParameterList(
            (
                given("u64", "indptr", "indices", *values, "X", "Y", "out"),
                Parameters("u32", ("M", "N", "nnz"), lambda x: (x.m, x.n, x.nnz)),
                Parameters("u32", ("ldx", "ldy", "chunk"), lambda x: (x.ldx, x.ldy, x.chunk)),
            )
        )

    def step(self, p: Sampled) -> Step:
        """The launch of the kernel."""
        segments = p.m if self.rows else ceil_div(p.nnz, p.chunk)
        arguments: Any = self.parameters.arguments(p)
        return Step(self.entry, (ceil_div(segments, self.warps), 1, 1), (self.threads, 1, 1), 0, arguments)

    lane_mask = Mask("lanes")
    log2_lanes = Log2("lanes")

    @property
    def lane_bytes(self) -> int:
        """The number of bytes of a vector."""
        return self.vec * self.size

    @property
    def columns_bytes(self) -> int:
        return self.columns * self.size

    @property
    def vector_columns(self) -> list[int]:
        """The first column of each vector of a lane, relative to that of the first vector."""
        return [v * self.lanes * self.vec for v in range(self.vectors)]

    @property
    def vector_offsets(self) -> list[int]:
        return [v * self.vector_bytes for v in range(self.vectors)]

    @property
    def register_bits(self) -> int:
        """The number of bits of a register into which vectors are loaded."""
        return 8 * self.size if self.packed == self.vec else 32

    @property
    def x_stored(self) -> list[list[str]]:
        """For each vector of x, the registers into which it is loaded."""
        return [
            [(self.x_loaded if self.converts else self.x)[v, i] for i in range(self.packed)]
            for v in range(self.vectors)
        ]

    @property
    def y_stored(self) -> dict[tuple[int, int], list[str]]:
        """For each (nonzero, vector), the registers into which the vector of y is loaded."""
        return {at: [self.y[*at, i] for i in range(self.packed)] for at in self._vectors_of_y}

    @property
    def x_pairs(self) -> list[list[tuple[str, str, str]]]:
        """For each vector of x with 16-bit elements, triples (loaded word, register of its first element, register of
        its second element)."""
        return [
            [(self.x_loaded[v, i], self.x[v, 2 * i], self.x[v, 2 * i + 1]) for i in self._pairs]
            for v in range(self.vectors)
        ]

    @property
    def y_pairs(self) -> dict[tuple[int, int], list[tuple[str, str, str]]]:
        """For each (nonzero, vector), the triples as in ``x_pairs`` for the vector of y."""
        return {
            at: [(self.y[*at, i], self.widened[2 * i], self.widened[2 * i + 1]) for i in self._pairs]
            for at in self._vectors_of_y
        }

    @property
    def factors(self) -> dict[tuple[int, int], list[tuple[str, str]]]:
        """For each (nonzero, vector), the pairs of elements of x and y that are multiplied."""
        return {
            (u, v): [(self.x[v, i], self.widened[i] if self.converts else self.y[u, v, i]) for i in range(self.vec)]
            for u, v in self._vectors_of_y
        }

    @property
    def _vectors_of_y(self) -> list[tuple[int, int]]:
        return [(u, v) for u in range(self.unrolled) for v in range(self.vectors)]

    @property
    def _pairs(self) -> range:
        return range(self.packed if self.converts and self.vec > 1 else 0)


def sampled_products(
    element_type: str, shape: Shape, n: int, ldx: int, ldy: int, vec: int, scaled: bool, device: Device
) -> tuple[SampledProducts, Step]:
    """The kernel for a matrix of sizes ``shape``, and its launch. ``vec``: elements of the widest access to the rows of
    x and y. DtypeError: the device cannot convert the type."""
    (m, k, nnz, longest), size = shape, dtype(element_type).bytes
    vec = min(vec, 16 // size)
    rows = longest * m <= EVEN * nnz and m >= ROW_WARPS * device.sms
    if dtype(element_type).sm > device.sm:
        raise DtypeError(
            f"a is {element_type}; on {device.name} it must be of another type: sm_{dtype(element_type).sm} converts it"
        )
    made = SampledProducts.of(element_type, n, vec, rows, scaled)
    columns = 1 << max(CACHED // max(n * size, 1), 1).bit_length() - 1
    if rows and not made.wide and columns < k and nnz * columns >= made.at_once * m * k:
        warps = min(_power_of_two(ceil_div(m, device.sms)), MOST_THREADS // WARP)
        made = replace(made, synced=columns, threads=WARP * warps)
    chunk = min(max(ceil_div(nnz, RESIDENT * device.sms), CHUNKS[0]), CHUNKS[1])
    chunk = ceil_div(chunk, made.at_once) * made.at_once
    return made, made.step(Sampled(m, n, nnz, ldx, ldy, 0 if rows else chunk))


def _power_of_two(n: int) -> int:
    """The least power of two that is at least ``n``."""
    return 1 << (n - 1).bit_length()
