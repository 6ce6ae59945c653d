"""The parts that a plan is composed of: what each part answers, and the resources that it claims.

A plan is one operand path for A and one for B, a main loop, an epilogue and a tile scheduler. Each part is a frozen
record that computes its own numbers from the problem, the configuration and the geometry, and names the template slot
that writes its instructions. Templates read ``plan.epilogue.vec_c``, not one flat object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from ptxgen.codegen.config import SPLIT_FLAG, SPLIT_MEMSET, SPLIT_POLL, SPLIT_SHARE, SPLIT_WORKSPACE, Config
from ptxgen.codegen.registers import Tile


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
    def prescales_c(self) -> bool:
        """Whether an auxiliary kernel scales C by beta before the main kernel runs."""
        return self is Reduction.MEMSET_RED

    @property
    def uses_flag(self) -> bool:
        """Whether the other slices wait for a flag of the tile, which slice 0 sets once C is scaled."""
        return self is Reduction.FLAG_RED

    @property
    def stores_partials(self) -> bool:
        """Whether the main kernel stores partial sums, and an auxiliary kernel computes C from them."""
        return self is Reduction.WORKSPACE

    @property
    def store_op(self) -> str:
        """The slot that stores one vector of sums: to C, by red to C, or to the workspace."""
        if self in (Reduction.MEMSET_RED, Reduction.FLAG_RED):
            return "epilogue/red.mako"
        return "epilogue/partial.mako" if self.stores_partials else "epilogue/store.mako"


_REDUCTIONS = {
    SPLIT_MEMSET: Reduction.MEMSET_RED,
    SPLIT_FLAG: Reduction.FLAG_RED,
    SPLIT_WORKSPACE: Reduction.WORKSPACE,
    SPLIT_POLL: Reduction.LAST_CTA,
    SPLIT_SHARE: Reduction.DISTRIBUTED,
}


@dataclass(frozen=True)
class Region:
    """``bytes`` of shared memory or of the workspace from ``offset``; ``meaning`` is printed in the kernel's header."""

    offset: int
    bytes: int
    meaning: str


@dataclass
class Allocator:
    """Hands out consecutive regions of one memory (shared memory or the workspace)."""

    bytes: int = 0
    regions: list[Region] = field(default_factory=list)

    def claim(self, size: int, meaning: str, alignment: int = 1) -> Region:
        """The next ``size`` bytes, from a multiple of ``alignment``."""
        offset = -(-self.bytes // alignment) * alignment
        self.regions.append(region := Region(offset, size, meaning))
        self.bytes = offset + size
        return region


@runtime_checkable
class Part(Protocol):
    """What every part of a plan answers."""

    @property
    def slots(self) -> Mapping[str, str]:
        """The template files that write the part's instructions, by slot name: ``{"copy_a": "copy/cp_async.mako"}``."""
        ...

    @property
    def registers(self) -> list[tuple[Tile, str]]:
        """The registers that the part declares for the whole kernel, each with its meaning."""
        ...

    @property
    def shared(self) -> list[Region]:
        """The part's regions of shared memory."""
        ...


@runtime_checkable
class OperandPath(Part, Protocol):
    """How A or B gets from global memory to the multiply instruction."""

    @property
    def name(self) -> str:
        """``a`` or ``b``."""
        ...

    @property
    def kmajor(self) -> bool:
        """Whether K is contiguous in global memory."""
        ...


@runtime_checkable
class Mainloop(Part, Protocol):
    """The loop over K: its schedule and its multiply instruction."""

    @property
    def kernel(self) -> str:
        """The schedule's template."""
        ...

    @property
    def stages(self) -> int:
        """K iterations whose operands are in flight."""
        ...


@runtime_checkable
class Epilogue(Part, Protocol):
    """How accumulators become C: fused operations, conversion, split-K reduction and stores."""

    @property
    def reduction(self) -> Reduction:
        """How slices of K are added."""
        ...

    @property
    def vec_c(self) -> int:
        """Elements of one global access to C."""
        ...


@runtime_checkable
class TileScheduler(Part, Protocol):
    """Which tile of C, which batch item and which slice of K a block computes."""

    @property
    def grid(self) -> str:
        """What the axes of the grid count, for the kernel's header."""
        ...
