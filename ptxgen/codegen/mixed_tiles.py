"""The plan of one kernel whose items have tiles of different sizes."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.grouped.tile_table import TileTableScheduler
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.source import Step
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

Ints = NDArray[np.int64]


class MixedTiles(Plan):
    """The plan of one kernel with a body for each tile size. The kernel has the threads of the largest body; surplus
    threads exit at the start of a smaller body. ``most_registers``: the limit of registers per thread."""

    kernel = "kernel/mixed_tiles.mako"

    def __init__(
        self,
        problem: KernelProblem,
        device: Device,
        bodies: Sequence[Plan],
        geometry: Geometry,
        most_registers: int,
    ) -> None:
        self._bodies, self.most_registers = tuple(bodies), most_registers
        super().__init__(problem, self._bodies[-1].config, device, geometry)

    def _compose(self) -> None:
        first = self._bodies[0]
        assert isinstance(first.scheduler, TileTableScheduler)
        self.scheduler: TileTableScheduler = first.scheduler
        self.parameters = first.parameters
        self.schedule = first.scheduler.schedule  #: the option ``--schedule`` of the command in the header
        self.c = first.c

    @property
    def bodies(self) -> Sequence[Plan]:
        return self._bodies

    @property
    def configs(self) -> list[str]:
        return [f"{body.block_tile} by {body.threads} threads: {body.config}" for body in self._bodies]

    block_tile = "of the item"

    @property
    def access_bytes(self) -> tuple[int, int, int]:
        each = [body.access_bytes for body in self._bodies]
        a, b, c = (max(widths) for widths in zip(*each, strict=True))
        return a, b, c

    @property
    def directives(self) -> list[str]:
        resident = max(self.device.registers_sm // (self.most_registers * self.threads), 1)
        return [f".maxntid {self.threads}, 1, 1", f".minnctapersm {resident}"]

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        return []

    @property
    def shared_map(self) -> list[str]:
        return [f"{body.block_tile}: {line}" for body in self._bodies for line in body.shared_map]

    @cached_property
    def command(self) -> str:
        return f"{super().command.rpartition(' --config')[0]} --schedule {self.schedule}"

    def with_schedule(self, schedule: str) -> MixedTiles:
        """The plan of the same kernel, with another schedule in the command of its header."""
        plan = copy(self)
        plan.schedule = schedule
        vars(plan).pop("command", None)
        return plan

    def shared_of(self, tiles: Ints) -> int:
        """The number of bytes of dynamic shared memory of a launch. ``tiles``: the index of each item's tile size."""
        return max((self._bodies[int(t)].shared for t in np.unique(tiles)), default=0)

    def step(self, extents: Ints, tiles: Ints) -> Step:
        """The launch for a list of items with at least one tile; the caller supplies the descriptor table as an
        argument. ``tiles``: the index of each item's tile size."""
        grid, rows = self.scheduler.grid_of(extents, tiles), self.parameters.rows.by_name
        return Step(self.entry, grid, (self.threads, 1, 1), self.shared_of(tiles), rows)
