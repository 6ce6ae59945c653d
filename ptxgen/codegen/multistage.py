"""The main loop of the multistage schedule: every warp copies, computes and stores a part of the tile of C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from ptxgen.codegen.addressing import OperandAddressing
from ptxgen.codegen.config import BOUNDS_NONE, BOUNDS_PREDICATE, Config
from ptxgen.codegen.geometry import MultistageGeometry
from ptxgen.codegen.parts import Part
from ptxgen.codegen.vectorized import WARP, log2


class StagedLoad(Protocol):
    """One of a thread's global loads of a stage."""

    @property
    def index(self) -> int: ...
    @property
    def oob(self) -> str: ...


@dataclass(frozen=True)
class SharedStore:
    """One store of a global load's data to shared memory, ``offset`` bytes from the thread's address in the stage."""

    offset: int
    kind: str
    registers: str


class StagedOperand(Protocol):
    """How A or B gets from global memory to shared memory and to fragments."""

    name: str
    base: int  #: offset in a stage
    size: int  #: bytes of a stage
    row: int  #: elements of a row in shared memory
    asynchronous: bool  #: whether cp.async copies it
    shared_pointer: bool  #: whether all loads add offsets to one pointer
    addressing: OperandAddressing

    def offset(self, i: int) -> int:
        """Rows (or columns) of C between number ``i`` of a thread's and its first."""


def copy_template(asynchronous: bool) -> str:
    """The slot that copies an operand to shared memory."""
    return f"copy/{'cp_async' if asynchronous else 'ldg_sts'}.mako"


@dataclass(frozen=True)
class MultistageMainloop(Part):
    """``steps``: K steps of a thread group in a stage. A family adds its fragments and its multiply instruction."""

    config: Config
    geometry: MultistageGeometry
    steps: int

    @property
    def operands(self) -> Sequence[StagedOperand]:
        """A and B."""
        raise NotImplementedError

    # ---- stages

    @property
    def stages(self) -> int:
        return self.config.stages

    @cached_property
    def stage_bytes(self) -> int:
        return int(self.geometry.stage_bytes)

    @property
    def wait(self) -> int:
        """Groups of asynchronous copies that may be in flight when a stage is read."""
        return self.stages - 2

    @property
    def asynchronous(self) -> bool:
        """Whether cp.async copies an operand."""
        return any(x.asynchronous for x in self.operands)

    @property
    def defers_sts(self) -> bool:
        """Whether loads go to registers one iteration before they are stored to shared memory."""
        return bool(self.config.deferred_sts) and not all(x.asynchronous for x in self.operands)

    @property
    def shared_map(self) -> list[str]:
        a, b = self.operands
        return [
            f"{self.stages} stages of {self.stage_bytes} bytes: A at 0 ({a.size} bytes, rows of {a.row}),"
            f" B at {b.base} ({b.size} bytes, rows of {b.row})"
        ]

    # ---- threads

    @property
    def group(self) -> int:
        """Threads of a group; groups split the steps of a stage."""
        return int(self.geometry.group)

    @property
    def log2_group(self) -> int:
        return log2(self.group)

    @property
    def several_warps(self) -> bool:
        """Whether warps divide the tile among them, so that one may have no element of C."""
        return self.group > WARP

    # ---- bounds and addresses

    @cached_property
    def predicated(self) -> bool:
        """Whether loads outside M and N are predicated off; else their addresses are clamped."""
        return self.config.bounds == BOUNDS_PREDICATE

    @cached_property
    def checks_bounds(self) -> bool:
        return self.config.bounds != BOUNDS_NONE

    def address_of(self, x: StagedOperand, load: StagedLoad) -> str:
        """The register with a load's address, once the addressing has set it."""
        return "%tmp64" if x.shared_pointer or not x.addressing.strided else f"%ptr_{x.name}{load.index}"

    def skip(self, x: StagedOperand, load: StagedLoad, first: bool) -> str:
        """The predicate that skips a load, once the addressing has set it; "" if nothing does. ``first``: of the first
        stage, which holds the remainder of K."""
        if x.addressing.is_im2col or (first and self.checks_bounds):
            return "%skip"
        return load.oob if self.predicated else ""
