"""What plans of the cooperative schedule share: every warp copies, multiplies and writes a tile of C."""

from __future__ import annotations

from typing import Any

from ptxgen.codegen.plan import Plan
from ptxgen.codegen.registers import Tile
from ptxgen.lowering.implicit_gemm import WINDOW
from ptxgen.lowering.kernel_gemm import STRIDED


class CooperativePlan(Plan):
    """A plan of ``kernel/multistage.mako``. A family sets ``a`` and ``b`` (how an operand lies in shared memory and
    where its fragments are), ``ns`` (columns of C that a thread or lane holds) and ``stage_bytes``."""

    kernel = "kernel/multistage.mako"
    a: Any
    b: Any
    ns: int
    stage_bytes: int
    predicated: bool

    def _epilogue(self) -> None:
        super()._epilogue()
        self._find()
        self.everywhere = not self.geometry.gathers
        #: a row of what a thread holds, or a vector of the block's tile
        self.row = Tile("e", self.sum, (max(self.ns, self.vec_c),))
        self.columns = [self.b.offset(j) for j in range(0, self.ns, self.vec_c)]

    # ---- addresses in global memory

    def _find(self) -> None:
        """How elements of the operands are found."""
        p = self.problem
        for x, found in ((self.a, p.addr_a), (self.b, p.addr_b)):
            x.found, x.windowed = found, found == WINDOW
            #: bytes of an entry of its tables
            x.entry = 8 if x.windowed else 4
            #: what a thread's loads of a stage have for M (or N) and for K, each once
            x.mns, x.ks = (
                list(dict.fromkeys(values))
                for values in ([piece.mn for piece in x.pieces], [piece.k for piece in x.pieces])
            )
        self.addr_a, self.addr_b = (
            f"addr/{'strided' if x.found == STRIDED else 'offset_table'}.mako" for x in (self.a, self.b)
        )

    def at(self, x: Any, piece: Any) -> str:
        """The register with a piece's address, once the addressing has readied it."""
        return "%t64" if x.many or x.found != STRIDED else f"%ptr_{x.name}{piece.index}"

    def skip(self, x: Any, piece: Any, first: bool) -> str:
        """The predicate by which a piece is not loaded, once the addressing has set it; "" if it always is.
        ``first``: of the stage that takes what K leaves over."""
        if x.windowed or (first and self.checked):
            return "%skip"
        return str(piece.out) if self.predicated else ""

    @property
    def shared_map(self) -> list[str]:
        lines = [
            f"{self.stages} stages of {self.stage_bytes} bytes: A at 0 ({self.a.size} bytes, rows of {self.a.row}),"
            f" B at {self.b.base} ({self.b.size} bytes, rows of {self.b.row})"
        ]
        if self.geometry.gathers:
            lines.append(f"then {self.kl} tiles of C, rows of {self.row_c}, in the same place")
        return lines
