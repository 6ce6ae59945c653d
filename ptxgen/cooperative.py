"""What plans of the cooperative schedule share: every warp copies, multiplies and writes a tile of C."""

from __future__ import annotations

from typing import Any

from ptxgen.plan import Plan
from ptxgen.registers import Tile


class CooperativePlan(Plan):
    """A plan of ``kernel/cooperative.mako``. A family sets ``a`` and ``b`` (how an operand lies in shared memory and
    where its fragments are), ``ns`` (columns of C that a thread or lane holds) and ``stage_bytes``."""

    kernel = "kernel/cooperative.mako"
    a: Any
    b: Any
    ns: int
    stage_bytes: int

    def _epilogue(self) -> None:
        super()._epilogue()
        #: a row of what a thread holds, or a vector of the block's tile
        self.row = Tile("e", self.sum, (max(self.ns, self.vec_c),))
        self.columns = [self.b.offset(j) for j in range(0, self.ns, self.vec_c)]

    @property
    def shared_map(self) -> list[str]:
        lines = [
            f"{self.stages} stages of {self.stage_bytes} bytes: A at 0 ({self.a.size} bytes, rows of {self.a.row}),"
            f" B at {self.b.base} ({self.b.size} bytes, rows of {self.b.row})"
        ]
        if self.geometry.gathers:
            lines.append(f"then {self.kl} tiles of C, rows of {self.row_c}, in the same place")
        return lines
