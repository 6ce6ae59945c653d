"""Where elements lie: boxes of tensor maps, swizzles, descriptors, fragments. Numbers only; templates write the
instructions.

Formats: PTX ISA 8.7, sections "Asynchronous Warpgroup Level Matrix Instructions" (descriptor, fragments) and "Tensor
swizzling modes".
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TypeVar

from ptxgen.codegen.config import Config
from ptxgen.families.wgmma.geometry import ROWS, STEP

T = TypeVar("T")

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
    its further coordinates; ``residue``: of its rows, where each has a map of its own."""

    offset: int
    inner: int
    unit: int = 0
    beyond: str = ""
    residue: int = 0


@dataclass(frozen=True)
class Shared:
    """What an operand is of which each block in a line of a cluster loads a part for all of them. Registers: ``mine``,
    the block's place in its line, and the part; ``line``, the line's place; ``mask``, its blocks as bits. Those bits of
    the ``first`` line; how many ranks lines are ``apart``."""

    mine: str
    line: str
    mask: str
    first: int
    apart: int

    @classmethod
    def of(cls, along_x: int, along_y: int) -> tuple[Shared | None, Shared | None]:
        """Of X, which the blocks along Y have in common, and of Y."""
        x, y = ("%rank_x", "%rank_y") if along_x > 1 and along_y > 1 else ("%rank", "%rank")
        column = sum(1 << n * along_x for n in range(along_y))
        return (
            cls(y, x, "%mask_x", column, 1) if along_y > 1 else None,
            cls(x, y, "%mask", (1 << along_x) - 1, along_x) if along_x > 1 else None,
        )


class Operand:
    """How X or Y gets to wgmma. ``role``: x or y; ``name``: a or b; ``g``: the geometry; ``base``: where its part of a
    stage begins; ``shared``: how a block loads but a part of it; None: all, for itself."""

    def __init__(
        self, role: str, name: str, g: SimpleNamespace, config: Config, base: int, shared: Shared | None
    ) -> None:
        hinted = config.l2_evict_first & (1 if name == "a" else 2)
        #: of its copies: modifiers, and the operands that these ask for
        self.modifiers = (".multicast::cluster" if shared else "") + (".L2::cache_hint" if hinted else "")
        self.operands = (f", {shared.mask}" if shared else "") + (", %policy" if hinted else "")
        self.role, self.name, self.base, self.shared = role, name, base, shared
        self.kmajor = bool(getattr(g, f"{role}_kmajor"))
        size, depth = int(g.size), int(config.u)
        tile = int(getattr(g, f"{role}_tile"))
        inner = int(getattr(g, f"{role}_box"))
        self.span = inner * size
        #: whether it is the depth of a stage that blocks part; the register that has where the parts begin
        self.by_depth = role == "x" and shared is not None and not self.kmajor
        self.whole = "%k" if self.by_depth else f"%{role}0"
        #: what one block loads of that, and how far apart in shared memory the blocks' parts are
        share = int(g.share) if role == "y" else int(g.x_share) if shared else int(g.x_rows)
        row = self.span
        if self.kmajor:
            #: (contiguous, other) extents of a box
            self.box: tuple[int, ...] = (inner, share)
            self.boxes = [Box(n * tile * row, n * inner) for n in range(depth // inner)]
            self.high, self.low = descriptor(self.span, ATOM * row, 16)
            self.part = ROWS * row
            self.share_offset = share * row
        else:
            self.box = (inner, share if self.by_depth else depth)
            extent = int(g.x_rows) if self.by_depth else share
            self.boxes = [Box(n * depth * row, n * inner) for n in range(extent // inner)]
            # rows past those that are loaded repeat them
            leading = 0 if role == "x" and inner < ROWS else depth * row
            self.high, self.low = descriptor(self.span, ATOM * row, leading)
            self.part = depth * row
            self.share_offset = share * row if self.by_depth else share // inner * depth * row
        self.share = share
        self.tile, self.depth, self.element = tile, depth, size
        self.loaded = len(self.boxes) * self.box[0] * self.box[1] * size
        self.mode, self.rank = "tile", 2
        #: whether it comes as it lies; the register that has where the stage is that it is multiplied from, in 16 bytes
        self.lies, self.stage = False, "%low"
        #: the register that has the item's place in the tensor, where there are items
        self.item = ""

    def of(self, unit: int) -> list[Box]:
        """The boxes of a unit of K."""
        return [b for b in self.boxes if b.unit == unit]

    def inner(self, b: Box, first: str) -> str:
        """The register that has a box's place along the contiguous direction; ``first``: where this block's part
        begins."""
        return "%k" if self.kmajor else f"%{self.role}0" if self.by_depth else first

    def map(self, b: Box) -> str:
        """The register that has the address of a box's map."""
        return f"%map_{self.role}"

    def place(self, first: str) -> str:
        """The coordinates of a box."""
        other = first if self.kmajor or self.by_depth else "%k"
        return ", ".join(["%inner", other, *([self.item] if self.item else [])])

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
        for k in range(steps)
        for m in range(mi)
    ]


@dataclass(frozen=True)
class Slot:
    """16 bytes of partial sums of another slice: where they lie, and the sums they belong to; ``first``: those are
    not yet preinitialised."""

    offset: int
    into: list[str]
    first: bool


def batches(slots: list[T], size: int) -> list[list[T]]:
    """What is read at once."""
    return [slots[i : i + size] for i in range(0, len(slots), size)]
