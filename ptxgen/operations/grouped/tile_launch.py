"""Launches of lists by the tile policy, whose items are anywhere in device memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.mixed_tiles import MixedTiles
from ptxgen.codegen.source import Launch
from ptxgen.operations.grouped.launch import GroupCall
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.grouped.tlp_schedule import TlpSchedule, Variant
from ptxgen.runtime.driver import Driver, Kernel
from ptxgen.runtime.workspace import Workspaces

Ints = NDArray[np.int64]


class TileLaunch:
    """A loaded kernel of the tile policy for lists of one class: one copy of a table, then one launch."""

    def __init__(
        self, driver: Driver, plan: MixedTiles, kernel: Kernel, workspaces: Workspaces, variant: Variant
    ) -> None:
        self.driver, self.plan, self.kernel, self.workspaces = driver, plan, kernel, workspaces
        self.variant, self.table = variant, plan.scheduler.table

    def __call__(
        self,
        problem: GroupedGemm,
        addresses: Ints,
        alpha: Any = 1,
        beta: Any = 0,
        operands: Sequence[Ints] = (),
        stream: int = 0,
    ) -> None:
        """Queues the product on ``stream``. ``addresses``: of A, B and C, one row an item; ``alpha``, ``beta``:
        numbers, or one of each item; ``operands``: none."""
        if problem.results:
            self.prepare(problem, alpha, beta, operands)(addresses, stream)

    def prepare(self, problem: GroupedGemm, alpha: Any = 1, beta: Any = 0, operands: Sequence[Ints] = ()) -> GroupCall:
        """A call that needs the addresses of A, B and C, with the tiles that the variant chooses."""
        tiles = TlpSchedule.choose(problem, self.driver.device, variant=self.variant).scheme.tiles
        none = np.zeros((len(problem.items), 3), np.int64)
        words = self.table.words(problem.extents, problem.lds, none, tiles, alpha, beta)
        step = self.plan.step(problem.extents, tiles)
        return GroupCall(self, problem, words, step, words.nbytes, Launch((), words.nbytes))
