"""Accesses to C: their types, vector widths and registers."""

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
    """How a kernel reads and writes C. ``vec``: elements of one access to C or to partial sums; ``vector_red``: True if
    red.global adds vectors; ``streaming``: True if stores of C use the policy evict-first; ``preinitialises``: True if
    registers are set before guarded instructions write them; else ptxas assumes that they are live before, and hundreds
    of registers spill."""

    problem: KernelProblem
    arithmetic: Arithmetic
    addressing: CAddressing
    vec: int
    vector_red: bool
    streaming: bool
    preinitialises: bool = False

    @cached_property
    def is_16bit(self) -> bool:
        """True if elements of C are 16-bit floats."""
        return self.problem.output.bytes == 2 and not self.problem.output.integer and not self.pair_type

    @cached_property
    def is_s8(self) -> bool:
        """True if elements of C are 8-bit integers, to which f32 results are rounded."""
        return self.problem.out == "s8" and self.problem.sink.stored_type == "f32"

    @cached_property
    def truncates(self) -> bool:
        """True if stores of C write only the low bits of registers."""
        return self.problem.output.integer and self.problem.output.bytes < 4

    @cached_property
    def in_pairs(self) -> bool:
        """True if pairs of sums are converted to words: to two 8-bit floats, or to one element (a gated activation)."""
        return self.problem.output.fp8 or bool(self.pair_type)

    @cached_property
    def pairs(self) -> str:
        """The slot that converts a pair of sums to a word."""
        return "epilogue/gated_pair.mako" if self.pair_type else "epilogue/fp8_pair.mako"

    @cached_property
    def pair_type(self) -> str:
        """The type of C if two sums make one element (a gated activation); empty: each sum makes one element."""
        return self.problem.out.removeprefix("half_") if "store_gated" in self.problem.sink.needs else ""

    @cached_property
    def word_type(self) -> str:
        """The type of the words of ``in_pairs``."""
        return f"b{2 * self.problem.output.bits}"

    @cached_property
    def converts(self) -> bool:
        """True if the element type of C differs from the type of the epilogue's arithmetic."""
        return self.is_16bit or self.is_s8 or self.in_pairs

    @cached_property
    def bytes(self) -> int:
        """The number of bytes of an element of C."""
        return self.problem.output.bytes

    @cached_property
    def element_type(self) -> str:
        return f"b{self.problem.output.bits}" if self.is_16bit or self.in_pairs else self.problem.output.real

    @cached_property
    def width(self) -> int:
        """The number of registers of ``vec`` sums."""
        return self.vec * self.arithmetic.parts

    @cached_property
    def type(self) -> str:
        """The type suffix of an access of ``vec`` elements of C."""
        n = self.vec
        if n == 1 or not (self.is_16bit or self.in_pairs):
            return width(self.width, self.element_type)
        return width(n // 2, self.word_type if self.in_pairs else "b32")

    @cached_property
    def sums_type(self) -> str:
        """The type suffix of an access of ``vec`` partial sums."""
        return width(self.width, self.arithmetic.type)

    @cached_property
    def store_cache_op(self) -> str:
        return ".cs" if self.streaming else ""

    # ---- registers

    @cached_property
    def loaded(self) -> Tile:
        """The registers that a load of ``vec`` elements of C fills."""
        if self.in_pairs:
            return Tile("c_raw", self.word_type, (max(1, self.vec // 2),))
        if self.is_16bit:
            return Tile("c_raw", "b32", (self.vec // 2,)) if self.vec > 1 else Tile("c_raw", "b16", (1,))
        return Tile("c_raw", "b32" if self.truncates else self.element_type, (self.width,))

    @cached_property
    def word_values(self) -> list[tuple[str, list[str]]]:
        """Each loaded register, with the registers of the elements that it contains."""
        n = max(1, self.vec // self.loaded.size)
        return [(r, self.values.all[i * n : (i + 1) * n]) for i, r in enumerate(self.loaded.all)]

    @cached_property
    def sum_offsets(self) -> range:
        """The byte offset of each register in an access to partial sums."""
        return range(0, self.vec * self.arithmetic.bytes, self.arithmetic.bytes // self.arithmetic.parts)

    @cached_property
    def half(self) -> Tile:
        """The registers of the two halves of a word."""
        return Tile("half", "b16", (2,))

    @cached_property
    def pair(self) -> Tile:
        """The register of two 8-bit floats that are converted to f16."""
        return Tile("pair", "b32", (1,))

    @cached_property
    def values(self) -> Tile:
        """The registers of the elements, converted to the type of the epilogue's arithmetic."""
        return Tile("c_val", self.arithmetic.type, (self.vec,)) if self.converts else self.loaded

    @cached_property
    def addend(self) -> Tile:
        """The registers of loaded partial sums, which are added to others."""
        return Tile("partial", self.arithmetic.type, (self.width,))

    @cached_property
    def registers(self) -> list[Tile]:
        """The registers of epilogue/c_elements.mako."""
        return [
            self.loaded,
            *([self.half] if self.is_16bit or self.in_pairs else []),
            *([self.pair] if self.in_pairs else []),
            *([self.values] if self.converts else []),
        ]

    @cached_property
    def declaration(self) -> str:
        """The declaration of ``registers``."""
        return " ".join(t.declaration for t in self.registers)

    @cached_property
    def preinitialised(self) -> list[tuple[str, str, str]]:
        """The registers that are set to zero before guarded instructions write them: type, name and literal of zero."""
        if not self.preinitialises:
            return []
        zeros = {"f32": "0f00000000", self.arithmetic.type: self.arithmetic.zero}
        return [(t.ptx_type, r, zeros.get(t.ptx_type, "0")) for t in self.registers for r in t.all]
