"""The plan of the multistage schedule: every warp copies, computes and stores a part of the tile of C."""

from __future__ import annotations

from typing import Any

from ptxgen.codegen.plan import Plan
from ptxgen.codegen.registers import Tile
from ptxgen.lowering.implicit_gemm import WINDOW
from ptxgen.lowering.kernel_gemm import STRIDED


class MultistagePlan(Plan):
    """A plan of ``kernel/multistage.mako``. A family sets ``a`` and ``b`` (layouts in shared memory and in
    fragments), ``ns`` (columns of C that a thread or lane holds) and ``stage_bytes``."""

    kernel = "kernel/multistage.mako"
    a: Any
    b: Any
    ns: int
    stage_bytes: int
    predicated: bool

    def _set_c_access(self) -> None:
        super()._set_c_access()
        self._set_addressing()
        self.computes_oob = not self.geometry.c_via_smem
        #: a row of the thread's sums, or a vector of the block's tile
        self.row = Tile("e", self.epilogue_type, (max(self.ns, self.vec_c),))
        self.columns = [self.b.offset(j) for j in range(0, self.ns, self.vec_c)]

    # ---- addresses in global memory

    def _set_addressing(self) -> None:
        """The address slots of A and B, and the numbers that they need."""
        p = self.problem
        for x, addressing in ((self.a, p.addr_a), (self.b, p.addr_b)):
            x.addressing, x.is_im2col = addressing, addressing == WINDOW
            #: bytes of an address table's entry
            x.table_entry_bytes = 8 if x.is_im2col else 4
            #: the distinct offsets along M (or N) and K of a thread's loads of a stage
            x.mn_offsets, x.k_offsets = (
                list(dict.fromkeys(values)) for values in ([load.mn for load in x.loads], [load.k for load in x.loads])
            )
        self.addr_a, self.addr_b = (
            f"addr/{'strided' if x.addressing == STRIDED else 'offset_table'}.mako" for x in (self.a, self.b)
        )

    def address_of(self, x: Any, load: Any) -> str:
        """The register with a load's address, once the addressing has readied it."""
        return "%t64" if x.shared_pointer or x.addressing != STRIDED else f"%ptr_{x.name}{load.index}"

    def skip(self, x: Any, load: Any, first: bool) -> str:
        """The predicate by which a load is not loaded, once the addressing has set it; "" if it always is.
        ``first``: of the first stage, which holds the remainder of K."""
        if x.is_im2col or (first and self.checks_bounds):
            return "%skip"
        return str(load.oob) if self.predicated else ""

    @property
    def shared_map(self) -> list[str]:
        lines = [
            f"{self.stages} stages of {self.stage_bytes} bytes: A at 0 ({self.a.size} bytes, rows of {self.a.row}),"
            f" B at {self.b.base} ({self.b.size} bytes, rows of {self.b.row})"
        ]
        if self.geometry.c_via_smem:
            lines.append(f"then {self.kl} tiles of C, rows of {self.c_row_pitch}, in the same place")
        return lines
