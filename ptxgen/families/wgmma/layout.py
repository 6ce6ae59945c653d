"""Where elements lie: boxes of tensor maps, swizzles, descriptors, fragments. Numbers only; templates write the
instructions.

Formats: PTX ISA 8.7, sections "Asynchronous Warpgroup Level Matrix Instructions" (descriptor, fragments) and "Tensor
swizzling modes".
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from ptxgen.columnar import log2
from ptxgen.config import Config
from ptxgen.families.wgmma.geometry import COLUMNS, ROWS, STEP
from ptxgen.registers import Tile, braces

ATOM = 8  #: rows of a swizzle's pattern, and of a core matrix
ADDRESS_MASK = 0x3FFFF  #: bits of a shared address that a descriptor has; a cluster's rank lies above them
_MODES = {16: 0, 32: 3, 64: 2, 128: 1}  #: a descriptor's swizzle field, by the bytes that the pattern spans


def descriptor(span: int, stride: int, leading: int) -> tuple[int, int]:
    """High and low word of a shared-memory descriptor without its address. ``span``: bytes of the swizzle; ``stride``:
    bytes from one group of 8 rows (K-major) or of 8 k (MN-major) to the next; ``leading``: bytes from one block of
    ``span`` bytes along MN to the next (MN-major)."""
    return stride >> 4 | _MODES[span] << 30, leading >> 4 << 16


@dataclass(frozen=True)
class Box:
    """One copy of a stage: it lands ``offset`` bytes into the stage, and starts ``inner`` elements further along the
    contiguous direction; ``unit``: the part of K that it belongs to, where parts are found each for itself; ``beyond``:
    its further coordinates."""

    offset: int
    inner: int
    unit: int = 0
    beyond: str = ""


class Operand:
    """How X or Y gets to wgmma. ``role``: x or y; ``name``: a or b; ``g``: the geometry; ``base``: where its part of a
    stage begins; ``shared``: each block of a cluster loads a part for all."""

    def __init__(self, role: str, name: str, g: SimpleNamespace, config: Config, base: int, shared: bool) -> None:
        hinted = config.evict & (1 if name == "a" else 2)
        #: of its copies: modifiers, and the operands that these ask for
        self.modifiers = (".multicast::cluster" if shared else "") + (".L2::cache_hint" if hinted else "")
        self.operands = (", %mask" if shared else "") + (", %policy" if hinted else "")
        self.role, self.name, self.base = role, name, base
        self.kmajor = bool(getattr(g, f"{role}_kmajor"))
        size, depth = int(g.size), int(config.u)
        tile = int(getattr(g, f"{role}_tile"))
        inner = int(getattr(g, f"{role}_box"))
        self.span = inner * size
        #: elements along MN that one block loads, and how far apart in shared memory the blocks' parts are
        share = int(g.share) if role == "y" else int(g.x_rows)
        row = self.span
        if self.kmajor:
            #: (contiguous, other) extents of a box
            self.box: tuple[int, ...] = (inner, share)
            self.boxes = [Box(n * tile * row, n * inner) for n in range(depth // inner)]
            self.high, self.low = descriptor(self.span, ATOM * row, 16)
            self.part = ROWS * row
            self.share_offset = share * row
        else:
            self.box = (inner, depth)
            self.boxes = [Box(n * depth * row, n * inner) for n in range(share // inner)]
            # rows past those that are loaded repeat them
            leading = 0 if role == "x" and inner < ROWS else depth * row
            self.high, self.low = descriptor(self.span, ATOM * row, leading)
            self.part = depth * row
            self.share_offset = share // inner * depth * row
        self.share = share
        self.tile, self.depth, self.element = tile, depth, size
        self.loaded = len(self.boxes) * self.box[0] * self.box[1] * size
        self.mode, self.rank = "tile", 2
        #: the register that has the item's place in the tensor, where there are items
        self.item = ""

    def of(self, unit: int) -> list[Box]:
        """The boxes of a unit of K."""
        return [b for b in self.boxes if b.unit == unit]

    def inner(self, b: Box, first: str) -> str:
        """The register that has a box's place along the contiguous direction; ``first``: that along MN."""
        return "%k" if self.kmajor else first

    def place(self, first: str) -> str:
        """The coordinates of a box."""
        return ", ".join(["%inner", first if self.kmajor else "%k", *([self.item] if self.item else [])])

    def behind(self, b: Box) -> str:
        """Operands of the copy behind its barrier."""
        return self.operands

    def step(self, k: int) -> int:
        """Bytes from the tile's start to the operand of K step ``k`` of a stage."""
        if not self.kmajor:
            return STEP // self.element * self.span * k
        return k * STEP // self.span * self.tile * self.span + k * STEP % self.span


@dataclass(frozen=True)
class Product:
    """One wgmma of a stage: rows ``mi``, descriptor offsets of its operands (address / 16); ``adds``: to what the
    accumulators hold (1, 0 or a predicate)."""

    mi: int
    x: int
    y: int
    adds: str


def products(x: Operand, y: Operand, mi: int) -> list[Product]:
    steps = x.depth * x.element // STEP
    return [
        Product(m, x.step(k) + m * x.part >> 4, y.step(k) >> 4, "1" if k else "%later")
        for k in range(steps) for m in range(mi)
    ]  # fmt: skip


@dataclass(frozen=True)
class Put:
    """One stmatrix: accumulators ``registers`` (pairs to be packed), to address register ``variant`` plus ``offset``.

    Accumulator i of lane l is row l / 4 + 8 (i / 2 mod 2), column 8 (i / 4) + 2 (l mod 4) + i mod 2 of a warp's rows.
    """

    registers: list[tuple[str, str]]
    variant: int
    offset: int


@dataclass(frozen=True)
class Store:
    """One box of C that TMA stores: from ``offset`` of the warpgroup's staging, ``x`` and ``y`` into its tile."""

    offset: int
    x: int
    y: int


@dataclass(frozen=True)
class Chunk:
    """A part of the columns that leaves at once. ``waits``: its buffer was used before; ``along_x``, ``along_y``: a
    thread's sums that share a place along X (Y), counted from its first."""

    index: int
    waits: bool
    puts: list[Put]
    stores: list[Store]
    along_x: list[tuple[int, list[str]]]
    along_y: list[tuple[int, list[str]]]


class Staging:
    """How a warpgroup's sums leave through shared memory: packed to two bytes, put by stmatrix into the boxes that TMA
    stores. ``transposed``: C is contiguous along X."""

    def __init__(self, sums: Tile, transposed: bool, finish: int, chunks: int, buffers: int, persistent: bool) -> None:
        mi = sums.shape[0]
        self.sums, self.transposed, self.mi = sums, transposed, mi
        columns = finish // chunks
        self.columns = columns
        #: elements of a box along C's contiguous direction
        self.width = ROWS if transposed else next(w for w in (64, 32, 16, 8) if columns % w == 0)
        self.span = self.width * 2
        self.box = (ROWS, columns) if transposed else (self.width, ROWS)
        #: bytes of a chunk of one warpgroup
        self.size = mi * ROWS * columns * 2
        self.buffers = buffers
        self.bytes = self.size * buffers
        #: address registers: stores whose chunk of 16 bytes differs within a row of the box
        self.variants = 1 if transposed else max(1, self.width // 16)
        #: rows of the box that share a row of 128 bytes (log2), and the bits of it that the swizzle mixes in
        self.shift, self.mask = 7 - log2(self.span), self.span // 16 - 1
        self.trans = ".trans" if transposed else ""
        #: where a box goes, and the rank of that
        self.coordinates, self.rank = ["%x_at", "%y_at"] if transposed else ["%y_at", "%x_at"], 2
        self.chunks = [
            Chunk(n, persistent or n >= buffers, self._puts(n), self._stores(n), self._along_x(n), self._along_y(n))
            for n in range(chunks)
        ]  # fmt: skip

    def brought(self, chunk: Chunk) -> int:
        """Bytes from a warpgroup's first barrier to the one that the residual of a chunk reports to."""
        return 8 * (1 + chunk.index % self.buffers)

    @staticmethod
    def words(put: Put) -> str:
        """The operand of a put's packed pairs."""
        return braces([f"%word{n}" for n in range(len(put.registers))])

    def _puts(self, chunk: int) -> list[Put]:
        out = []
        groups = self.columns // COLUMNS
        buffer = chunk % self.buffers * self.size
        for m in range(self.mi):
            j = 0
            while j < groups:
                # two groups of 8 columns at once, or one
                pair = j + 1 < groups and (self.transposed or self.width >= 2 * COLUMNS)
                first = (chunk * groups + j) * 4
                names = [self.sums[m, first + q] for q in range(8 if pair else 4)]
                registers = list(zip(names[::2], names[1::2], strict=True))
                box, inner = divmod(j * COLUMNS, self.width)
                if self.transposed:
                    put = Put(registers, 0, buffer + m * ROWS * self.columns * 2 + j * ATOM * self.span)
                else:
                    offset = buffer + m * ROWS * self.columns * 2 + box * ROWS * self.span
                    put = Put(registers, inner // 16, offset)
                out.append(put)
                j += 2 if pair else 1
        return out

    def _along_x(self, chunk: int) -> list[tuple[int, list[str]]]:
        groups = range(chunk * self.columns // COLUMNS, (chunk + 1) * self.columns // COLUMNS)
        return [
            (m * ROWS + h * 8, [self.sums[m, 4 * j + 2 * h + e] for j in groups for e in range(2)])
            for m in range(self.mi) for h in range(2)
        ]  # fmt: skip

    def _along_y(self, chunk: int) -> list[tuple[int, list[str]]]:
        groups = range(chunk * self.columns // COLUMNS, (chunk + 1) * self.columns // COLUMNS)
        return [
            (j * COLUMNS + e, [self.sums[m, 4 * j + 2 * h + e] for m in range(self.mi) for h in range(2)])
            for j in groups for e in range(2)
        ]  # fmt: skip

    def _stores(self, chunk: int) -> list[Store]:
        out = []
        buffer = chunk % self.buffers * self.size
        for m in range(self.mi):
            at = buffer + m * ROWS * self.columns * 2
            for n in range(1 if self.transposed else self.columns // self.width):
                out.append(Store(at + n * ROWS * self.span, m * ROWS, chunk * self.columns + n * self.width))
        return out


@dataclass(frozen=True)
class Slot:
    """16 bytes of partial sums of another slice: where they lie, and the sums they belong to; ``first``: those are
    not yet begun."""

    offset: int
    into: list[str]
    first: bool


def batches(slots: list[Slot], size: int) -> list[list[Slot]]:
    """Slots that are read at once."""
    return [slots[i : i + size] for i in range(0, len(slots), size)]


@dataclass(frozen=True)
class Write:
    """One store from registers. ``line``: which row pointer; ``second``: 1 where it begins at the second of two columns
    of Y; ``row``, ``column``: of C, a register and what to add to it."""

    registers: list[str]
    line: int
    offset: int
    second: int
    row: tuple[str, int]
    column: tuple[str, int]
