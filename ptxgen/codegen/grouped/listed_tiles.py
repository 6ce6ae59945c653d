"""The list of the tiles of a join that have pairs of equal keys, and the scheduler of kernels whose blocks loop over
it.

Rows and columns are in the order of their keys. The tiles of a row panel, the ``ml`` rows of a row of tiles, that may
have a pair are therefore adjacent: those of the columns from the first panel whose last key is not below the first key
of the row panel to the last one whose first key is not above its last key. A kernel of one block finds both by binary
search and adds up the tiles of the panels before each; the list has an entry for each row panel. The blocks of the main
kernel search the panel of their tile in it. The host reads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.launches.launched import BatchRange, Buffers, Launched
from ptxgen.codegen.launches.packing import Packing
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.parts.part import Allocator
from ptxgen.codegen.parts.scheduler import GridScheduler, blocks_at_once
from ptxgen.codegen.registers import load_type
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import WARP, Last, integer
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.packed_copy import ROW
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import dtype

HEADER = 16  #: bytes before the entries: the number of tiles in the list
ENTRY = 8  #: bytes of an entry: the number of tiles of the row panels before, the first column panel
THREADS = 1024  #: threads of the block that makes the list


@dataclass(frozen=True)
class ListedTiles(GridScheduler):
    """The scheduler of kernels with as many blocks as fit on the device at once, ``blocks``. A block computes every
    ``blocks``-th tile of the list."""

    blocks: int

    HEADER, ENTRY = HEADER, ENTRY
    counts_resident = some_tiles = True

    template = "sched/listed_tiles.mako"

    @classmethod
    def of(cls, c: Config, g: Geometry, d: Device, registers: int = -1) -> ListedTiles:
        """The scheduler of a kernel. ``registers``: registers per thread; -1: the most that ptxas may allocate."""
        return cls(c, False, d.sms * blocks_at_once(c, g, d, registers))

    def grid(self, p: KernelProblem, items: int) -> tuple[int, int, int]:
        return integer(np.minimum(self.tiles(p)[2], self.blocks)), 1, 1

    @property
    def grid_text(self) -> str:
        return f"(blocks, at most {self.blocks}, 1, 1)"


class Keys(NamedTuple):
    """An array of keys that ascend. ``load``: the suffix of a load of a key, which is widened to s64."""

    name: str
    type: str
    bytes: int
    load: str


@dataclass(frozen=True)
class TileList(Packing):
    """The kernel that makes the list, before the product. Each thread of its block has every ``THREADS``-th row panel.
    ``ml``, ``nl``: rows and columns of a tile."""

    ml: int
    nl: int

    template = "sched/tile_list.mako"
    HEADER, ENTRY, THREADS = HEADER, ENTRY, THREADS
    WARPS = THREADS // WARP
    warp_offsets = range(0, 4 * WARPS, 4)
    last_row = Last("ml")
    last_column = Last("nl")

    @cached_property
    def keys(self) -> tuple[Keys, Keys]:
        """The keys of rows and those of columns."""
        sink = self.problem.sink
        by_axis = {v.axis: v for v in sink.vectors if v.name in sink.ascending}
        types = ((by_axis[axis].name, by_axis[axis].element.type) for axis in "ij")
        rows, columns = (Keys(name, t, dtype(t).bytes, load_type(t)) for name, t in types)
        return rows, columns

    def allocate(self, p: KernelProblem, run: BatchRange, workspace: Allocator) -> Buffers:
        panels = -(-p.m // self.ml)
        return Buffers({"tiles": workspace.claim(HEADER + ENTRY * panels, "tiles with pairs", ROW).offset})

    @property
    def product_parameters(self) -> list[Parameters]:
        return [Parameters("u64", ("tile_list",), lambda x: (x.buffers.packed["tiles"],))]

    @property
    def parameters(self) -> list[Parameters]:
        return [*self.product_parameters, Parameters("u32", ("M", "N"), lambda x: (x.p.m, x.p.n))]

    def steps(self, launched: Launched) -> tuple[Step, ...]:
        arguments = self.parameter_list.arguments(launched)
        return (Step(f"{self.entry}_tiles", (1, 1, 1), (THREADS, 1, 1), 4 * self.WARPS, arguments),)
