"""SIMT kernels without shared memory (``stages=0``): threads load their rows of A and columns of B from global memory.

All threads that multiply an element load it; after the first load it is in the L1 cache. For a small K this takes less
time than copying tiles to shared memory and waiting at a barrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.config.config import BOUNDS_CLAMP, BOUNDS_NONE, BOUNDS_PREDICATE, Config
from ptxgen.codegen.parts.addressing import OperandAddressing
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.multistage import WHOLE
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.registers import Tile, width
from ptxgen.families.common.fma.geometry import FmaOperandGeometry
from ptxgen.families.common.fma.mainloop import ThreadTile
from ptxgen.lowering.kernel_problem import STRIDED, KernelProblem


@dataclass(frozen=True)
class GlobalLoad:
    """One load of a step. ``line``: index of the pointer; ``offset``: bytes from the pointer; ``cleared``: registers
    that are set to zero if the load is skipped."""

    line: int
    offset: int
    ptx_type: str
    registers: str
    cleared: tuple[str, ...]


class GlobalFragments:
    """The loads of a thread's rows of A (columns of B). ``g``: the operand's geometry for one configuration."""

    packed = False

    def __init__(self, p: KernelProblem, c: Config, g: FmaOperandGeometry) -> None:
        self.name: str = g.name
        self.extent = "M" if g.name == "a" else "N"
        self.kmajor, self.bytes, self.depth = bool(g.kmajor), p.element.bytes, c.u
        self.thread, self.warp, self.vec = int(g.thread_tile), int(g.warp_threads), int(g.vec)
        self.contiguous = min(int(g.chunk), self.thread)
        #: elements of K that a load has
        self.unit = self.vec if self.kmajor else 1
        step = 1 if self.kmajor else self.vec
        #: the first row (column) of each pointer, from the thread's first
        self.lines = [self.offset(i) for i in range(0, self.thread, step)]
        self.edge = step  #: elements from the last one that a load may start at to the end of the extent
        self.clamped, self.predicated = c.bounds == BOUNDS_CLAMP, c.bounds == BOUNDS_PREDICATE
        self.addressing = OperandAddressing.of(g.name, STRIDED)
        self.widens = self.bytes < 4
        self.in_word = 2 if self.widens and self.vec > 1 else 1  #: elements of a register
        ptx_type = f"b{8 * self.bytes * self.in_word}" if self.widens else f"f{8 * self.bytes}"
        self.loaded = Tile(
            f"ldg_{self.name}", ptx_type, (self.depth // self.unit, len(self.lines), self.vec // self.in_word)
        )
        self.zero = {"f32": "0f00000000", "f64": "0d0000000000000000"}.get(ptx_type, "0")
        #: elements of a step as they are multiplied, where they are converted
        self.converted = Tile(f"cvt_{self.name}", "f32", (self.unit, self.thread))

    @property
    def guards(self) -> list[str]:
        """The guard predicate of the loads through each pointer."""
        return [f"@%in_{self.name}{n} " if self.predicated else "" for n in range(len(self.lines))]

    @property
    def pointer_step(self) -> str:
        """The bytes of an iteration of K, or the register with the bytes of a row of K."""
        return str(self.depth * self.bytes) if self.kmajor else f"%k_stride_{self.name}"

    def offset(self, i: int) -> int:
        """The distance, in rows (or columns) of C, from a thread's first row to its row number ``i``."""
        return i // self.contiguous * self.warp * self.contiguous + i % self.contiguous

    def loads(self, step: int) -> list[GlobalLoad]:
        """The loads of a step of ``unit`` elements of K."""
        words, out = self.loaded.shape[2], []
        offset = step * self.unit * self.bytes if self.kmajor else 0
        for n in range(len(self.lines)):
            names = tuple(self.loaded[step, n, w] for w in range(words)) if self.predicated else ()
            registers = self.loaded.vector(step, n, 0, n=words)
            out.append(GlobalLoad(n, offset, width(words, self.loaded.ptx_type), registers, names))
        return out

    def _loaded_at(self, i: int, k: int) -> tuple[str, int]:
        """The register that element ``i`` of ``k`` is loaded to, and its index in the register."""
        line, at = (i, k % self.unit) if self.kmajor else (i // self.vec, i % self.vec)
        return self.loaded[k // self.unit, line, at // self.in_word], at % self.in_word

    def element(self, i: int, k: int) -> str:
        """The register with element ``i`` of ``k`` in the type of the arithmetic."""
        return self.converted[k % self.unit, i] if self.widens else self._loaded_at(i, k)[0]

    def conversions(self, k: int) -> list[tuple[tuple[str, ...], str]]:
        """The conversions of a step, as (converted elements, word), if ``k`` is the last of the step; else empty."""
        if not self.widens or k % self.unit != self.unit - 1:
            return []
        words: dict[str, dict[int, str]] = {}
        for j in range(k + 1 - self.unit, k + 1):
            for i in range(self.thread):
                word, at = self._loaded_at(i, j)
                words.setdefault(word, {})[at] = self.element(i, j)
        return [(tuple(into[n] for n in sorted(into)), word) for word, into in words.items()]


@dataclass(frozen=True)
class GlobalFragmentMainloop(ThreadTile, Part):
    """The main loop without shared memory: an iteration issues all its loads, then multiplies. K may end after each
    group of loads."""

    config: Config
    a: GlobalFragments
    b: GlobalFragments
    arithmetic: Arithmetic
    group: int  #: threads of the group

    WHOLE = WHOLE
    packed = False

    @cached_property
    def load_groups(self) -> list[tuple[int, int]]:
        """The range (first, end) of elements of K of each group of loads."""
        unit = max(self.a.unit, self.b.unit)
        return [(k, k + unit) for k in range(0, self.config.u, unit)]

    @property
    def widens(self) -> bool:
        return self.a.widens

    @property
    def checks_bounds(self) -> bool:
        return self.config.bounds != BOUNDS_NONE

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        out = [(self.acc, "accumulators: set, row, column")]
        for x in (self.a, self.b):
            out.append((x.loaded, f"{x.name.upper()} as loaded: step, row or vector, word"))
            if x.widens:
                out.append((x.converted, f"{x.name.upper()} of one step in f32"))
        return out
