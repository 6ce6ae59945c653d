"""The interface of the parts of a plan, and the workspace that parts claim.

A plan consists of an operand path for A and one for B, a main loop, an epilogue and a tile scheduler. Each part is a
frozen record that computes its own numbers from the problem, the configuration and the geometry, and names the template
slots that write its instructions. Templates read for example ``plan.epilogue.row_pitch``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ptxgen.codegen.config.config import (
    SPLIT_DISTRIBUTED,
    SPLIT_FLAG,
    SPLIT_LAST_CTA,
    SPLIT_MEMSET,
    SPLIT_WORKSPACE,
    Config,
)
from ptxgen.codegen.registers import Tile
from ptxgen.lowering.kernel_problem import KernelProblem


class Reduction(StrEnum):
    """How the partial sums of the blocks that split K are added."""

    NONE = "none"  #: one slice of K: there is nothing to add
    MEMSET_RED = "memset_red"  #: red.global on C, which an auxiliary kernel has scaled by beta
    FLAG_RED = "flag_red"  #: red.global on C, which the block of slice 0 scales before it sets the tile's flag
    WORKSPACE = "workspace"  #: each slice stores its partial sums; an auxiliary kernel adds them in slice order
    LAST_CTA = "last_cta"  #: the block of the last slice adds the partial sums of the others
    DISTRIBUTED = "distributed"  #: the blocks of all slices each add the partial sums of a part of the tile

    @classmethod
    def of(cls, config: Config) -> Reduction:
        """The reduction that ``config`` selects."""
        return _REDUCTIONS[config.splitk] if config.kg > 1 else cls.NONE

    @property
    def active(self) -> bool:
        """True if the grid splits K into several slices."""
        return self is not Reduction.NONE

    @property
    def prescales_c(self) -> bool:
        """True if an auxiliary kernel scales C by beta before the main kernel runs."""
        return self is Reduction.MEMSET_RED

    @property
    def uses_flag(self) -> bool:
        """True if the other slices wait for a flag of the tile, which slice 0 sets once C is scaled."""
        return self is Reduction.FLAG_RED

    @property
    def stores_partials(self) -> bool:
        """True if the main kernel stores partial sums, and an auxiliary kernel computes C from them."""
        return self is Reduction.WORKSPACE

    @property
    def store_op(self) -> str:
        """The slot that stores one vector of partial sums, by ``red`` to C or to the workspace; empty: the sink stores
        complete sums."""
        if self in (Reduction.MEMSET_RED, Reduction.FLAG_RED):
            return "epilogue/red.mako"
        return "epilogue/partial.mako" if self.stores_partials else ""

    @property
    def sum_text(self) -> str:
        """The text for a comment that says what an auxiliary kernel adds to beta·C."""
        return " + alpha A B, from the partial sums of all slices in slice order" if self.stores_partials else ""

    @property
    def tile_slices(self) -> str:
        """The slot that a grouped kernel uses for the slices of a tile."""
        return "sched/tile_slices.mako" if self.active else "sched/whole_tiles.mako"


_REDUCTIONS = {
    SPLIT_MEMSET: Reduction.MEMSET_RED,
    SPLIT_FLAG: Reduction.FLAG_RED,
    SPLIT_WORKSPACE: Reduction.WORKSPACE,
    SPLIT_LAST_CTA: Reduction.LAST_CTA,
    SPLIT_DISTRIBUTED: Reduction.DISTRIBUTED,
}


@dataclass(frozen=True)
class Region:
    """A region of the workspace: ``bytes`` bytes from ``offset``. ``meaning``: its contents."""

    offset: int
    bytes: int
    meaning: str


@dataclass
class Allocator:
    """Allocates consecutive regions of the workspace. ``zeroed``: True if the workspace must be zero before the first
    launch; ``cleared``: the number of bytes from the start that each launch clears before its kernels."""

    bytes: int = 0
    zeroed: bool = False
    cleared: int = 0
    regions: list[Region] = field(default_factory=list)

    def claim(self, size: int, meaning: str, alignment: int = 1, zeroed: bool = False, cleared: bool = False) -> Region:
        """The next region of ``size`` bytes, at a multiple of ``alignment``. ``cleared``: True if each launch clears
        the workspace up to its end."""
        offset = -(-self.bytes // alignment) * alignment
        self.regions.append(region := Region(offset, size, meaning))
        self.bytes, self.zeroed = offset + size, self.zeroed or zeroed
        self.cleared = self.bytes if cleared else self.cleared
        return region


class Part:
    """A part of a plan: it computes its own numbers and names the template slots that write its instructions.

    The header of a kernel lists the registers and the regions of shared memory of all parts. A part does not change
    after it is made.
    """

    #: True if launches depend on the number of blocks that fit at once, and so on the registers of the loaded kernel
    counts_resident = False

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        """The registers that the part declares for the whole kernel, each with its meaning."""
        return []

    @property
    def shared_map(self) -> list[str]:
        """The part's regions of shared memory, in lines."""
        return []

    def claim(self, p: KernelProblem, items: int, workspace: Allocator) -> None:
        """Claims the part's workspace for a launch of ``items`` batch items of ``p``."""
