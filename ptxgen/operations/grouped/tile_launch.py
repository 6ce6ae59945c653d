"""Launches of lists by the tile policy; the items may be anywhere in device memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.mixed_tiles import MixedTiles
from ptxgen.codegen.source import Launch
from ptxgen.operations.grouped.launch import GroupCall, ListLaunch
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.grouped.tlp_schedule import TlpSchedule, Variant
from ptxgen.runtime.driver import Driver, Kernel
from ptxgen.runtime.workspace import Workspaces

Ints = NDArray[np.int64]


class TileLaunch(ListLaunch):
    """A loaded kernel of the tile policy for lists. Its epilogue has no operands."""

    def __init__(
        self, driver: Driver, plan: MixedTiles, kernel: Kernel, workspaces: Workspaces, variant: Variant
    ) -> None:
        super().__init__(driver, kernel, workspaces, plan.scheduler.table)
        self.plan, self.variant = plan, variant

    def prepare(self, problem: GroupedGemm, alpha: Any = 1, beta: Any = 0, operands: Sequence[Ints] = ()) -> GroupCall:
        """A call with everything but the addresses of A, B and C. The variant chooses the tiles."""
        tiles = TlpSchedule.choose(problem, self.driver.device, variant=self.variant).scheme.tiles
        none = np.zeros((len(problem.items), 3), np.int64)
        words = self.plan.scheduler.table.words(problem.extents, problem.lds, none, tiles, alpha, beta)
        step = self.plan.step(problem.extents, tiles)
        return GroupCall(self, problem, words, (step,), words.nbytes, Launch((), words.nbytes))
