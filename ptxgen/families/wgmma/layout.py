"""The layout of A and B in shared memory: TMA boxes, swizzles, wgmma descriptors. Python makes numbers; templates write
instructions.

X is the operand on the side of wgmma's 64 rows, Y is the other operand. Formats are those of the PTX ISA 8.7, sections
"Asynchronous Warpgroup Level Matrix Instructions" (descriptors, fragments) and "Tensor swizzling modes".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.parameters import MAP_BYTES
from ptxgen.families.wgmma.axes import EVICTING
from ptxgen.families.wgmma.geometry import ROWS, STEP, WgmmaGeometry

T = TypeVar("T")

ATOM = 8  #: rows of a swizzle pattern and of a core matrix
ADDRESS_MASK = 0x3FFFF  #: bits of a shared-memory address that a descriptor holds; a cluster rank is above them
_MODES = {16: 0, 32: 3, 64: 2, 128: 1}  #: bytes that a swizzle pattern spans -> swizzle field of a descriptor


def descriptor(span: int, stride: int, leading: int) -> tuple[int, int]:
    """High and low word of a shared-memory descriptor without its address. ``span``: bytes that the swizzle spans;
    ``stride``: bytes from one group of 8 rows (K-major) or of 8 k (MN-major) to the next; ``leading``: bytes from one
    block of ``span`` bytes along MN to the next (MN-major)."""
    return stride >> 4 | _MODES[span] << 30, leading >> 4 << 16


@dataclass(frozen=True)
class Box:
    """One TMA copy of a stage. ``offset``: bytes into the operand's part of the stage; ``inner``: elements along the
    contiguous direction from the tile's first to the box's first; ``unit``: the unit of K to which the box belongs;
    ``trailing``: further coordinates; ``residue``: the row modulo 8, if each residue has a map of its own."""

    offset: int
    inner: int
    unit: int = 0
    trailing: str = ""
    residue: int = 0

    @property
    def map_offset(self) -> int:
        """The number of bytes from the first tensor map to the map of the box's residue."""
        return MAP_BYTES * self.residue


class BoxCopy(NamedTuple):
    """A copy of a box. ``offset``: its place in the stage; ``inner_register``, ``inner``: the coordinate along the
    contiguous direction as a register plus a constant; ``tap_offset``: taps from the stage's tap to the box's;
    ``sums``: registers (destination, pixel, tap) of coordinates that are sums; ``source``: tensor map and coordinates;
    ``operands``: the operands after the mbarrier."""

    offset: int
    inner_register: str
    inner: int
    tap_offset: int
    sums: list[tuple[str, str, str]]
    source: str
    operands: str


@dataclass(frozen=True)
class Multicast:
    """How the blocks of a line of the cluster divide an operand: each block loads one slice and multicasts it to the
    line.

    The fields are registers. ``rank``: the block's index in its line, which is also the number of its slice; ``line``:
    the line's index in the cluster; ``mask``: the blocks of the line as bits. Two fields are numbers. ``first_mask``:
    the mask of line 0; ``line_stride``: ranks from one line to the next.
    """

    rank: str
    line: str
    mask: str
    first_mask: int
    line_stride: int

    @classmethod
    def of(cls, cluster_x: int, cluster_y: int) -> tuple[Multicast | None, Multicast | None]:
        """The multicast of X among blocks along Y, and of Y among blocks along X. None: a single block loads the
        operand."""
        x, y = ("%rank_x", "%rank_y") if cluster_x > 1 and cluster_y > 1 else ("%rank", "%rank")
        column = sum(1 << n * cluster_x for n in range(cluster_y))
        return (
            cls(y, x, "%cta_mask_x", column, 1) if cluster_y > 1 else None,
            cls(x, y, "%cta_mask", (1 << cluster_x) - 1, cluster_x) if cluster_x > 1 else None,
        )


class OperandPath:
    """How TMA loads an operand into a stage, and how wgmma reads it there.

    ``role``: x or y; ``name``: a or b; ``base``: bytes from the start of a stage to the operand; ``multicast``: None if
    each block loads the whole tile for itself; ``outer``: registers with the further coordinates of a batch item, which
    all boxes have. Attributes do not change after construction.
    """

    realigned = False  #: True if math warpgroups shift its rows in shared memory
    tma_mode = "tile"
    map_count = 1  #: number of tensor maps of the operand
    #: register with the offset of the stage that wgmma reads, in units of 16 bytes
    stage_register = "%stage_offset"

    def __init__(
        self,
        role: str,
        name: str,
        g: WgmmaGeometry,
        config: Config,
        base: int,
        multicast: Multicast | None,
        outer: Sequence[str] = (),
    ) -> None:
        evict_first = config.l2_evict_first in EVICTING[name]
        #: modifiers of its copies, and the operands that the modifiers require
        self.copy_modifiers = (".multicast::cluster" if multicast else "") + (".L2::cache_hint" if evict_first else "")
        self.copy_operands = (f", {multicast.mask}" if multicast else "") + (", %policy" if evict_first else "")
        self.role, self.name, self.base, self.multicast = role, name, base, multicast
        side = g.x if role == "x" else g.y
        self.kmajor = bool(side.kmajor)
        size, depth = self._elements(g, config)
        tile = int(side.tile)
        inner = int(side.box)
        #: bytes of a row of a box, which its swizzle spans
        self.span = inner * size
        #: True if blocks slice the depth of a stage instead of the tile's extent; the register with the first slice
        self.sliced_along_k = multicast is not None and bool(side.sliced_along_k)
        self.slice_origin = "%k" if self.sliced_along_k else f"%{role}0"
        #: elements that one block loads along the sliced direction
        extent = int(side.slice if role == "y" or multicast else side.rows)
        row = self.span
        if self.kmajor:
            #: (contiguous, other) extents of a box
            self.box: tuple[int, ...] = (inner, extent)
            self.boxes = [Box(n * tile * row, n * inner) for n in range(depth // inner)]
            self.stride, self.leading = ATOM * row, 16
            #: bytes from 64 rows to the next 64
            self.m64_bytes = ROWS * row
            self.slice_bytes = extent * row
        else:
            self.box = (inner, extent if self.sliced_along_k else depth)
            across = int(side.rows) if self.sliced_along_k else extent
            self.boxes = [Box(n * depth * row, n * inner) for n in range(across // inner)]
            # where fewer rows than 64 are loaded, the descriptor repeats them
            self.stride, self.leading = ATOM * row, 0 if role == "x" and inner < ROWS else depth * row
            self.m64_bytes = depth * row
            self.slice_bytes = extent * row if self.sliced_along_k else extent // inner * depth * row
        self.desc_high, self.desc_low = descriptor(self.span, self.stride, self.leading)
        self.slice_extent = extent
        self.tile, self.depth, self.element = tile, depth, size
        #: bytes that one block's copies of a stage report to the full barrier
        self.tx_bytes = len(self.boxes) * self.box[0] * self.box[1] * size
        self.tma_rank = 2 + len(outer)
        self.outer_coordinates = tuple(outer)

    def _elements(self, g: WgmmaGeometry, config: Config) -> tuple[int, int]:
        """Bytes of an element, and elements of K of a stage, as TMA loads them."""
        return int(g.math.element_bytes), int(config.u)

    @property
    def desc_high_hex(self) -> str:
        return f"0x{self.desc_high:08x}"

    @property
    def desc_low_hex(self) -> str:
        return f"0x{self.desc_low:08x}"

    @property
    def desc_fields(self) -> str:
        """A text for a comment: the fields of the operand's descriptor."""
        leading = "unused (K-major)" if self.kmajor else f"{self.leading} bytes"
        low, high = (
            f"low {self.desc_low_hex}: leading offset {leading}",
            f"high {self.desc_high_hex}: stride {self.stride}",
        )
        return f"{low}; {high} bytes, {self.span}-byte swizzle"

    @property
    def first(self) -> str:
        """The register with the first row (column) that a block loads."""
        return f"%{self.role}_slice" if self.multicast else f"%{self.role}0"

    @property
    def box_counts(self) -> dict[int, str]:
        """Unit of K -> the number of its boxes as text, for a comment."""
        counts = Counter(b.unit for b in self.boxes)
        return {unit: f"{n} {'box' if n == 1 else 'boxes'}" for unit, n in counts.items()}

    @property
    def box_text(self) -> str:
        return " x ".join(map(str, self.box))

    def copies(self, unit: int, first: str) -> list[BoxCopy]:
        """The copies of a unit of K. ``first``: the register with the start of this block's slice."""
        return [
            BoxCopy(
                self.base + b.offset,
                self.inner_coordinate(b, first),
                b.inner,
                self.tap_offset(b),
                self.sums(b),
                f"{self.map_register(b)}, {{{self.coordinates(b, first)}{b.trailing}}}",
                self.trailing_operands(b),
            )
            for b in self.boxes_of(unit)
        ]

    def boxes_of(self, unit: int) -> list[Box]:
        """The boxes of a unit of K."""
        return [b for b in self.boxes if b.unit == unit]

    def inner_coordinate(self, b: Box, first: str) -> str:
        """The register with a box's coordinate along the contiguous direction. ``first``: the register with the start
        of this block's slice."""
        return "%k" if self.kmajor else f"%{self.role}0" if self.sliced_along_k else first

    def map_register(self, b: Box) -> str:
        """The register with the address of a box's tensor map."""
        return f"%map_{self.role}"

    def tap_offset(self, b: Box) -> int:
        """The number of filter taps from the stage's tap to the box's tap."""
        return 0

    def sums(self, b: Box) -> list[tuple[str, str, str]]:
        """The coordinates of a box that are sums, as registers (destination, pixel, tap)."""
        return []

    def coordinates(self, b: Box, first: str) -> str:
        """The coordinates of a box."""
        other = first if self.kmajor or self.sliced_along_k else "%k"
        return ", ".join(["%inner_coord", other, *self.outer_coordinates])

    def trailing_operands(self, b: Box) -> str:
        """The operands of a copy after its mbarrier."""
        return self.copy_operands

    def k_step_offset(self, k: int) -> int:
        """The number of bytes from the start of the tile to the operand of K step ``k`` in a stage."""
        if not self.kmajor:
            return STEP // self.element * self.span * k
        return k * STEP // self.span * self.tile * self.span + k * STEP % self.span


@dataclass(frozen=True)
class Product:
    """One wgmma instruction of a stage. ``mi``: the index of its 64 rows of X; ``x``, ``y``: offsets of its descriptors
    (address / 16); ``scale_d``: 0 if it overwrites the accumulators, else 1 or a predicate."""

    mi: int
    x: int
    y: int
    scale_d: str


@dataclass(frozen=True)
class SumSlot:
    """16 bytes of partial sums. ``offset``: the place in shared memory or workspace; ``registers``: the registers of
    these sums; ``initial``: True if the sums set these registers, False if they are added to them."""

    offset: int
    registers: list[str]
    initial: bool


def in_batches(values: Sequence[T], size: int) -> list[list[T]]:
    """``values`` in lists of ``size``."""
    return [list(values[i : i + size]) for i in range(0, len(values), size)]
