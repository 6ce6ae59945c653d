"""Accesses to C: types, vector widths and registers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.parts.addressing import CAddressing
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.registers import Tile, width
from ptxgen.lowering.kernel_problem import KernelProblem


@dataclass(frozen=True)
class CAccess(Part):
    """How a kernel reads and writes C. ``vec``: elements of one access to C or to partial sums, ``vector_red``: whether
    red.global adds vectors; ``streaming``: whether stores of C are evicted first; ``preinitialises``: whether registers
    are set before guarded instructions write them. Otherwise ptxas assumes that they are live before, and hundreds of
    them spill."""

    problem: KernelProblem
    arithmetic: Arithmetic
    addressing: CAddressing
    vec: int
    vector_red: bool
    streaming: bool
    preinitialises: bool = False

    @cached_property
    def is_16bit(self) -> bool:
        """True if C has 16-bit floats."""
        return self.problem.output.bytes == 2 and not self.problem.output.integer

    @cached_property
    def is_s8(self) -> bool:
        """True if C has integers of 8 bits, to which f32 is rounded."""
        return self.problem.out == "s8" and self.problem.sink.stored_type == "f32"

    @cached_property
    def truncates(self) -> bool:
        """True if stores write the low bits of registers."""
        return self.problem.output.integer and self.problem.output.bytes < 4

    @cached_property
    def is_fp8(self) -> bool:
        """True if C has 8-bit floats, which are converted in pairs."""
        return self.problem.output.fp8

    @cached_property
    def pairs(self) -> str:
        """The slot that converts pairs of sums to words of 16 bits."""
        return "epilogue/gated_pair.mako" if self.pair_type else "epilogue/fp8_pair.mako"

    @cached_property
    def pair_type(self) -> str:
        """The type of C, of which a pair of sums makes one element; empty: a pair makes two."""
        return self.problem.out.removeprefix("half_") if "store_gated" in self.problem.sink.needs else ""

    @cached_property
    def converts(self) -> bool:
        """True if elements of C differ from the type of the epilogue's arithmetic."""
        return self.is_16bit or self.is_s8 or self.is_fp8

    @cached_property
    def bytes(self) -> int:
        """Bytes of an element."""
        return self.problem.output.bytes

    @cached_property
    def element_type(self) -> str:
        return "b16" if self.is_16bit else "b8" if self.is_fp8 else self.problem.output.real

    @cached_property
    def width(self) -> int:
        """Registers of ``vec`` sums."""
        return self.vec * self.arithmetic.parts

    @cached_property
    def type(self) -> str:
        """The type of an access of ``vec`` elements."""
        n = self.vec
        if n == 1 or not (self.is_16bit or self.is_fp8):
            return width(self.width, self.element_type)
        return width(n // 2, "b16" if self.is_fp8 else "b32")

    @cached_property
    def sums_type(self) -> str:
        """The type of an access of ``vec`` partial sums."""
        return width(self.width, self.arithmetic.type)

    @cached_property
    def store_cache_op(self) -> str:
        return ".cs" if self.streaming else ""

    # ---- registers

    @cached_property
    def loaded(self) -> Tile:
        """The registers that a load of ``vec`` elements fills."""
        if self.is_fp8:
            return Tile("c_raw", "b16", (max(1, self.vec // 2),))
        if self.is_16bit:
            return Tile("c_raw", "b32", (self.vec // 2,)) if self.vec > 1 else Tile("c_raw", "b16", (1,))
        return Tile("c_raw", "b32" if self.truncates else self.element_type, (self.width,))

    @cached_property
    def word_values(self) -> list[tuple[str, list[str]]]:
        """Pairs (loaded register, its elements) of narrow elements."""
        n = max(1, self.vec // self.loaded.size)
        return [(r, self.values.all[i * n : (i + 1) * n]) for i, r in enumerate(self.loaded.all)]

    @cached_property
    def sum_offsets(self) -> range:
        """The offset of each register of the partial sums of an access."""
        return range(0, self.vec * self.arithmetic.bytes, self.arithmetic.bytes // self.arithmetic.parts)

    @cached_property
    def half(self) -> Tile:
        """The halves of a word."""
        return Tile("half", "b16", (2,))

    @cached_property
    def pair(self) -> Tile:
        """Two 8-bit floats, as f16."""
        return Tile("pair", "b32", (1,))

    @cached_property
    def values(self) -> Tile:
        """The elements in the type of the epilogue's arithmetic."""
        return Tile("c_val", self.arithmetic.type, (self.vec,)) if self.converts else self.loaded

    @cached_property
    def addend(self) -> Tile:
        """Partial sums that are added to others."""
        return Tile("partial", self.arithmetic.type, (self.width,))

    @cached_property
    def registers(self) -> list[Tile]:
        """The registers of epilogue/c_elements.mako."""
        return [
            self.loaded,
            *([self.half] if self.is_16bit or self.is_fp8 else []),
            *([self.pair] if self.is_fp8 else []),
            *([self.values] if self.converts else []),
        ]

    @cached_property
    def declaration(self) -> str:
        """The declaration of ``registers``."""
        return " ".join(t.declaration for t in self.registers)

    @cached_property
    def preinitialised(self) -> list[tuple[str, str, str]]:
        """Triples (type, register, zero) of registers that are set before guarded instructions write them."""
        if not self.preinitialises:
            return []
        zeros = {"f32": "0f00000000", self.arithmetic.type: self.arithmetic.zero}
        return [(t.ptx_type, r, zeros.get(t.ptx_type, "0")) for t in self.registers for r in t.all]
