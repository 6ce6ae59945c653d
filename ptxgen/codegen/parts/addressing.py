"""Addressing of operands and of C in global memory, by a leading dimension or through offset tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.parts.part import Part
from ptxgen.lowering.implicit_gemm import IM2COL, ImplicitOperand, OffsetTables
from ptxgen.lowering.kernel_problem import STRIDED, KernelProblem

#: lop3 look-up table of (not a or not b) and c: nonzero if a coordinate is outside the image
OUT_OF_IMAGE_LUT = (~0xF0 | ~0xCC) & 0xAA


def multiplier(n: int) -> tuple[int, int]:
    """The numbers ``magic`` and ``shift`` with x // n = (x · magic) >> shift for x below 2^31 (Granlund & Montgomery,
    PLDI 1994)."""
    shift = 31 + (n - 1).bit_length()
    return (1 << shift) // n + 1, shift


def _implicit(p: KernelProblem, name: str) -> ImplicitOperand:
    """The offset tables of A, B or C, which must be addressed through offset tables. ``name``: a, b or c."""
    access = p.operand(name.upper()).access
    assert isinstance(access, OffsetTables)
    assert access.maps is not None
    return access.maps


@dataclass(frozen=True)
class OperandAddressing(Part):
    """How a thread addresses its loads of operand ``name``. ``mode``: STRIDED, or the mode of the offset tables;
    ``mn_offsets``, ``k_offsets``: the distinct offsets, along M (or N) and along K, of a thread's loads of one
    stage."""

    name: str
    mode: str
    mn_offsets: list[int]
    k_offsets: list[int]

    OUT_OF_IMAGE_LUT = OUT_OF_IMAGE_LUT

    @classmethod
    def of(cls, name: str, mode: str, offsets: Iterable[tuple[int, int]] = ()) -> OperandAddressing:
        """The addressing of operand ``name``. ``offsets``: for each load, its offsets along M (or N) and along K."""
        known = list(offsets)
        return cls(name, mode, list(dict.fromkeys(mn for mn, _ in known)), list(dict.fromkeys(k for _, k in known)))

    @property
    def template(self) -> str:
        return f"addr/{'strided' if self.strided else 'offset_table'}.mako"

    @property
    def strided(self) -> bool:
        """True if the operand is a matrix with a leading dimension."""
        return self.mode == STRIDED

    @property
    def is_im2col(self) -> bool:
        """True if table entries also have coordinates, from which a thread tests if an element is outside the image."""
        return self.mode == IM2COL

    def _entry(self, axis: str, n: int) -> str:
        """The instruction that loads table entry ``n`` along ``axis``, without the address operand."""
        offset, coordinates = f"%{axis}_off_{self.name}{n}", f"%{axis}_coord_{self.name}{n}"
        return f"ld.global.nc.v2.b32 {{{offset}, {coordinates}}}" if self.is_im2col else f"ld.global.nc.b32 {offset}"

    @property
    def mn_entries(self) -> list[str]:
        """The instructions that load the table entries of ``mn_offsets``, without the address operand."""
        return [self._entry("mn", n) for n in range(len(self.mn_offsets))]

    @property
    def k_entries(self) -> list[tuple[str, int]]:
        """For each of ``k_offsets``: the instruction that loads its table entry, without the address operand, and the
        byte offset of the entry in the table."""
        return [(self._entry("k", n), k * self.table_entry_bytes) for n, k in enumerate(self.k_offsets)]

    @property
    def table_entry_bytes(self) -> int:
        return 8 if self.is_im2col else 4

    @property
    def parameters(self) -> list[Parameters]:
        """The parameters with the addresses of the tables, and the words with which coordinates are tested."""
        n = self.name
        if self.strided:
            return []
        tables = Parameters("u64", (f"mn_table_{n}", f"k_table_{n}"), lambda x: _implicit(x.p, n).tables)
        words = Parameters("u32", (f"guard_{n}", f"high_{n}"), lambda x: _implicit(x.p, n).packing.guard_and_high)
        return [tables, words] if self.is_im2col else [tables]

    @property
    def skip_past_k(self) -> str:
        """The instruction that sets %skip for loads beyond the remainder of K; loads outside the image stay skipped."""
        return "setp.ge.or.u32 %skip, %tmp0, %k_rem, %skip;" if self.is_im2col else "setp.ge.u32 %skip, %tmp0, %k_rem;"


@dataclass(frozen=True)
class CAddressing(Part):
    """How elements of C are addressed. ``tables``: True if through an offset table of rows and one of columns."""

    tables: bool

    @property
    def template(self) -> str:
        return f"epilogue/c_{'table' if self.tables else 'strided'}.mako"

    @property
    def parameters(self) -> list[Parameters]:
        """The parameters with the addresses of the tables."""
        if not self.tables:
            return []
        return [Parameters("u64", ("rows_c", "columns_c"), lambda x: _implicit(x.p, "c").tables)]
