"""The kernel that packs the truth values of A and B into words of bits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ptxgen.codegen.launches.launched import BatchRange, Launched
from ptxgen.codegen.launches.packing import Packing
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.registers import Tile, braces, width
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import WARP, Last, ceil_div, integer, log2
from ptxgen.lowering.bit_products import BITS, PITCH, TruthWords, packed_bytes
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.packed_copy import ROW
from ptxgen.lowering.strided import Strided

THREADS = 256


class ByteLoad(NamedTuple):
    """A load of adjacent bytes of a row. ``first``: the index of its first byte; ``registers``: the registers that it
    fills."""

    first: int
    registers: list[str]

    @property
    def destination(self) -> str:
        return braces(self.registers)


@dataclass(frozen=True)
class PackedBits:
    """How a block packs bytes into words of bits. If K is contiguous (``kmajor``), a thread makes 16 bits of a row;
    else it makes the words of four columns. ``vec``: bytes of a load; ``padded``: rows of words are padded to a
    multiple of this number of bits."""

    kmajor: bool
    vec: int
    padded: int = BITS * PITCH

    @classmethod
    def of(cls, source: Strided, padded: int = BITS * PITCH) -> PackedBits:
        """The method of packing for the layout and the alignment of ``source``, a matrix of bytes."""
        kmajor, span = bool(source.kmajor), cls.span_of(bool(source.kmajor))
        return cls(kmajor, span if source.vec >= span else min(int(source.vec), span // 2), padded)

    @staticmethod
    def span_of(kmajor: bool) -> int:
        return 16 if kmajor else 4

    @property
    def span(self) -> int:
        """The number of bytes that a thread loads from a row."""
        return self.span_of(self.kmajor)

    # ---- loads

    ROWS = 8  #: rows of K that a thread loads at once if K is not contiguous
    WARPS = THREADS // WARP  #: words of a block along K if K is not contiguous
    THREADS = THREADS
    LOG2_THREADS = log2(THREADS)

    @property
    def columns(self) -> int:
        """The number of columns of a block if K is not contiguous."""
        return WARP * self.span

    @property
    def pieces(self) -> list[int]:
        """The index of the first byte of each load of a row."""
        return list(range(0, self.span, self.vec))

    @property
    def loads(self) -> int:
        """The number of rows that a thread loads at once."""
        return 1 if self.kmajor else self.ROWS

    @property
    def bytes(self) -> Tile:
        """The registers of loaded bytes, four bytes each."""
        return Tile("four_bytes", "b32", (self.loads, self.span // 4))

    @property
    def parts(self) -> Tile:
        """The registers that loads of fewer than four bytes fill."""
        return Tile("narrow_load", "b32", (self.loads, self.span // min(self.vec, 4)))

    @property
    def load_type(self) -> str:
        return width(self.vec // 4, "b32") if self.vec >= 4 else f"u{8 * self.vec}"

    def _loaded(self, row: int, first: int) -> list[str]:
        """The registers that the load at byte ``first`` of ``row`` fills."""
        if self.vec < 4:
            return [self.parts[row, first // self.vec]]
        return [self.bytes[row, first // 4 + n] for n in range(self.vec // 4)]

    @property
    def row_loads(self) -> list[list[ByteLoad]]:
        """The loads of each row that a thread loads at once."""
        return [[ByteLoad(n, self._loaded(row, n)) for n in self.pieces] for row in range(self.loads)]

    @property
    def row_groups(self) -> list[range]:
        """The groups of rows of K of a word, each of which a thread loads at once if K is not contiguous."""
        return [range(n, n + self.ROWS) for n in range(0, BITS, self.ROWS)]

    @property
    def load_bits(self) -> int:
        return 8 * self.vec

    last_padded = Last("padded")

    @property
    def joins(self) -> list[tuple[str, list[tuple[str, int]]]]:
        """For loads of fewer than four bytes: each register of four bytes, and the registers of its parts with the bit
        positions of these."""
        if self.vec >= 4:
            return []
        each = 4 // self.vec
        return [
            (
                self.bytes[row, word],
                [(self.parts[row, each * word + n], 8 * self.vec * n) for n in range(each)],
            )
            for row in range(self.loads)
            for word in range(self.span // 4)
        ]

    # ---- launches

    def across(self, words: Any) -> Any:
        """log2 of the number of threads that pack a row of ``words`` words if K is contiguous."""
        halves = 2 * integer(np.maximum(words, 1))
        return integer(np.minimum((halves - 1).bit_length(), THREADS.bit_length() - 1))

    def blocks(self, rows: Any, words: Any) -> Any:
        """The number of blocks that pack ``rows`` rows of ``words`` words."""
        if self.kmajor:
            return ceil_div(rows, THREADS >> self.across(words))
        return ceil_div(rows, self.columns) * ceil_div(words, self.WARPS)


@dataclass(frozen=True)
class BitPacking(Packing):
    """The kernel that packs A and B into words of bits, whose rows start at multiples of 16 bytes."""

    template = "copy/pack_bits.mako"
    packs_empty = True

    @cached_property
    def ways(self) -> dict[str, PackedBits]:
        """Operand -> how it is packed."""
        return {name: PackedBits.of(_source(self.problem, name)) for name in self.names}

    @property
    def names(self) -> list[str]:
        return ["a", "b"]

    summary = "bits of A and B packed"

    def buffer_bytes(self, p: KernelProblem, run: BatchRange) -> tuple[dict[str, int], dict[str, int]]:
        return {name: packed_bytes(_access(p, name)) for name in self.names}, {}

    @property
    def product_parameters(self) -> list[Parameters]:
        names = tuple(f"copy_offset128_{name}" for name in self.names)
        return [Parameters("u32", names, lambda x: (offset // ROW for offset in x.buffers.packed.values()))]

    @property
    def parameters(self) -> list[Parameters]:
        return [self._operand(name) for name in self.names]

    def _operand(self, name: str) -> Parameters:
        """The parameters of an operand. ``chunks``: log2 of the threads per row, or the number of blocks along rows."""
        names = tuple(f"{n}_{name}" for n in ("rows", "depth", "ld", "pitch", "chunks", "copy_offset128"))
        return Parameters("u32", names, lambda x: (*self.numbers(x.p, name), x.buffers.packed[name] // ROW))

    def numbers(self, p: KernelProblem, name: str) -> tuple[Any, ...]:
        """The values of an operand's parameters: rows of words, bytes per row, the strides of rows of bytes and of rows
        of words, and ``chunks``."""
        access, way = _access(p, name), self.ways[name]
        source = _source(p, name)
        depth = source.columns if way.kmajor else source.rows
        chunks = way.across(access.columns) if way.kmajor else ceil_div(access.rows, way.columns)
        return access.rows, depth, source.ld, access.ld, chunks

    def steps(self, launched: Launched) -> tuple[Step, ...]:
        accesses = {name: _access(launched.p, name) for name in self.names}
        blocks = [self.ways[name].blocks(x.rows, x.columns) for name, x in accesses.items()]
        grid = (integer(np.maximum(np.maximum(*blocks), 1)), len(blocks), 1)
        return (Step(f"{self.entry}_bits", grid, (THREADS, 1, 1), 0, self.parameter_list.arguments(launched)),)


def _access(p: KernelProblem, name: str) -> TruthWords:
    access = p.operand(name.upper()).access
    assert isinstance(access, TruthWords)
    return access


def _source(p: KernelProblem, name: str) -> Strided:
    source = _access(p, name).source
    assert source is not None
    return source
