"""Operand sets of batches of graphs for libraries that multiply one matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ptxgen.operations.spmm.graph_batches import global_columns
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.reference import Array
from ptxgen.runtime.device_tables import Allocation
from ptxgen.runtime.driver import Driver


class BlockDiagonal:
    """Operand sets for libraries without batches of graphs: the graphs become the diagonal blocks of one matrix, whose
    columns name rows of B. This is done before the timing. Without groups, ``sets`` does not change."""

    def __init__(self, driver: Driver, p: Spmm, arrays: Mapping[str, Array], sets: Sequence[Mapping[str, int]]) -> None:
        self._memory: list[Allocation] = []
        self.sets: list[Mapping[str, int]] = list(sets)
        if not p.groups:
            return
        columns = global_columns(p, arrays).astype(np.int32)
        for n, addresses in enumerate(sets):
            self._memory.append(Allocation(driver, max(columns.nbytes, 1)))
            driver.upload(self._memory[-1].address, columns)
            self.sets[n] = {**addresses, "indices": self._memory[-1].address}
