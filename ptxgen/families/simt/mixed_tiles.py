"""A kernel with several tiles, each of which the SIMT schedule computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.grouped.tile_table import ItemGridScheduler, MixedTable, TileTableScheduler
from ptxgen.codegen.launches.packing import Packing
from ptxgen.codegen.mixed_tiles import MixedTiles
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.tile_parts import compose_epilogue, compose_launch, compose_scheduler, vector_bytes
from ptxgen.families.common.fma.geometry import FmaGeometry, geometry
from ptxgen.families.common.fma.mainloop import KERNEL, mainloop
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device


class TileBody(Plan):
    """The part of a kernel with several tiles that computes one of the tiles, by the multistage schedule."""

    kernel = KERNEL
    frame = "kernel/tile_body.mako"
    geometry: FmaGeometry

    def __init__(
        self,
        problem: KernelProblem,
        config: Config,
        device: Device,
        geometry: FmaGeometry,
        table: MixedTable,
        grid: bool,
    ) -> None:
        self._table, self._grid = table, grid
        super().__init__(problem, config, device, geometry)

    @property
    def access_bytes(self) -> tuple[int, int, int]:
        return vector_bytes(self)

    def _compose(self) -> None:
        scheduler_class = ItemGridScheduler if self._grid else TileTableScheduler
        scheduler = compose_scheduler(self, scheduler_class(self.config, False, self._table))
        self.packing = Packing(self.problem, self.entry, self.batch)
        self.mainloop = mainloop(self, self.geometry)
        self.a, self.b = self.mainloop.a, self.mainloop.b
        compose_epilogue(self, self.config.ns, self.b.contiguous, self.b.offset)
        compose_launch(self, self.a.addressing, self.b.addressing, scheduler)


def mixed_tiles(
    problem: KernelProblem, configs: Sequence[Config], device: Device, most_registers: int, grid: bool
) -> MixedTiles:
    """The kernel with a body for each of ``configs``. ``most_registers``: upper limit of registers per thread;
    ``grid``: True if the grid is that of the largest item."""
    each = [geometry(problem, c) for c in configs]
    threads, shared = max(int(g.threads) for g in each), max(int(g.shared) for g in each)
    registers = min(max(int(g.registers) for g in each), most_registers)
    resident = max(int(device.blocks_per_sm(threads, registers, shared)), 1)
    table = MixedTable(tuple((c.ml, c.nl) for c in configs), problem.sink.arithmetic, device.sms, resident)
    bodies = [TileBody(problem, c, device, g, table, grid) for c, g in zip(configs, each, strict=True)]
    whole = replace(each[-1], threads=threads, shared=shared, registers=registers)
    return MixedTiles(problem, device, bodies, whole, most_registers)
