"""The geometry: every number that follows from a problem and a configuration.

The same code computes it for one configuration and for many: ``c`` is a ``Config`` (integers) or ``Columns`` (NumPy
columns) of one family. The generator and the exhaustive search therefore cannot disagree.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ptxgen.codegen.geometry import GROUPED_REGISTERS, GROUPED_SHARED, Geometry
from ptxgen.codegen.vectorized import SECTOR, WARP, ceil_div, register_cap, where
from ptxgen.families import registry
from ptxgen.lowering.descriptor_table import grouped
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.tile_lists import lists_tiles

LOOP_REGISTERS = 8  #: registers that a loop over listed tiles, or over parts of tiles, adds


def geometry(p: KernelProblem, c: Any) -> Any:
    """The geometry of ``c`` on ``p``, a record of the family's type."""
    family = registry.of(c)
    g = family.geometry(family.form(p), c)
    if not grouped(p):
        loops = c.stream_k + (c.listed_tiles if lists_tiles(p) else 0)
        return replace(g, registers=g.registers + LOOP_REGISTERS * loops) if np.any(loops) else g
    # the tile loop keeps the number of the next tile in shared memory, and addresses and counts in registers
    loop = where(g.shares_registers, 0, GROUPED_REGISTERS)
    return replace(g, shared=g.shared + GROUPED_SHARED, registers=g.registers + loop)


class LazyGeometry:
    """The geometry of ``c`` on ``p``, with the attributes of a ``Geometry``. It first computes the numbers of
    ``Family.counts``, and all others when one of them is read."""

    def __init__(self, p: KernelProblem, c: Any) -> None:
        family = registry.of(c)
        self._of, self._counts = (p, c), family.counts(family.form(p), c)
        self._whole: Geometry | None = None

    def __getattr__(self, name: str) -> Any:
        if name in self._counts:
            return self._counts[name]
        if self._whole is None:
            with np.errstate(all="ignore"):
                self._whole = geometry(*self._of)
        return getattr(self._whole, name)


__all__ = ["SECTOR", "WARP", "Geometry", "LazyGeometry", "ceil_div", "geometry", "register_cap", "where"]
