"""A plan: every derived number of one kernel, and the template that fills each slot.

This is what all families share: slices, tiles and how C is written. A family adds its operands and its arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from ptxgen.codegen.config import (
    BOUNDS_NONE,
    FAMILIES,
    PDL_WITHIN,
    SPLIT_FLAG,
    SPLIT_MEMSET,
    SPLIT_POLL,
    SPLIT_SHARE,
    SPLIT_WORKSPACE,
    Config,
)
from ptxgen.codegen.registers import Tile, braces, width
from ptxgen.codegen.source import Argument, Launch, Step
from ptxgen.codegen.vectorized import ceil_div, log2
from ptxgen.cuda_abi import GRID_LIMIT
from ptxgen.lowering.implicit_gemm import WINDOW, ImplicitGemm
from ptxgen.lowering.kernel_gemm import STRIDED, KernelGemm
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import bits_of, dtype
from ptxgen.problem.registry import Problem

PASS_THREADS = 256  #: threads of a block of the passes over C

#: slot of what happens to a finished vector of C, by how slices of K meet (None: there is one slice)
_PUT = {
    None: "epilogue/store.mako",
    SPLIT_MEMSET: "epilogue/red.mako",
    SPLIT_FLAG: "epilogue/red.mako",
    SPLIT_WORKSPACE: "epilogue/partial.mako",
    SPLIT_POLL: "epilogue/store.mako",
    SPLIT_SHARE: "epilogue/store.mako",
}


@dataclass(frozen=True)
class Run:
    """Items of a batch that are launched together: ``items`` from ``first`` on."""

    first: int
    items: int


class Plan:
    """How ``config`` computes problems like ``problem`` on ``device``.

    The kernel serves every shape of the same types, layout and alignment class. ``geometry``: the numbers that follow
    from problem and configuration, which must be legal.
    """

    #: the schedule's template
    kernel = ""
    #: operands that are copied to aligned rows first
    repacked: tuple[Any, ...] = ()
    #: bytes that dynamic shared memory starts at a multiple of
    shared_aligned = 16
    PASS_THREADS = PASS_THREADS
    #: the look-up table of lop3 for (not a or not b) and c: whether a guard bit is lost
    GUARD_LOST = (~0xF0 | ~0xCC) & 0xAA
    #: constants of the activations, as PTX writes them: x·σ(x) and x·σ(√(8/π)(x + 0.044715x³)) by powers of two
    MINUS_LOG2E = bits_of(-math.log2(math.e), dtype("f32"))
    GELU_LINEAR = bits_of(-math.sqrt(8 / math.pi) * math.log2(math.e), dtype("f32"))
    GELU_CUBIC = bits_of(-math.sqrt(8 / math.pi) * math.log2(math.e) * 0.044715, dtype("f32"))
    #: which threads' sums go to shared memory
    share_guard = ""
    UNROLLED = 8  #: rounds of the gather through shared memory that are written out

    def __init__(self, problem: KernelGemm, config: Config, device: Device, geometry: SimpleNamespace) -> None:
        self.problem, self.config, self.device = problem, config, device
        self.asked: Problem = problem  #: what it is the product of, which the text tells
        self.geometry = geometry
        self.family = FAMILIES[config.family]
        self.target, self.ptx_version = device.target, device.ptx_version
        self.entry = f"{problem.operation}_{problem.dtype}_{problem.layout.lower()}"
        self.threads, self.shared = int(self.geometry.threads), int(self.geometry.shared)
        self.stages, self.kl = config.stages, config.kl
        #: whether its kernels wait for the one ahead of them in the stream, which may not have ended
        self.dependent = config.pdl > 0
        #: when the next kernel may begin: with this one's last loads, or with itself
        self.opens = ("", "late", "early", "late")[config.pdl]
        self._leaving()
        self._operands()
        self._epilogue()

    # ---- what a family adds

    def _operands(self) -> None:
        """How A and B reach the arithmetic."""
        raise NotImplementedError

    @property
    def contiguous(self) -> int:
        """Columns of C that lie side by side in a thread's registers."""
        raise NotImplementedError

    @property
    def tiles(self) -> list[tuple[Tile, str]]:
        """The register table: what is declared for the whole kernel, and what for."""
        raise NotImplementedError

    @property
    def shared_map(self) -> list[str]:
        """What lies where in shared memory, a line each."""
        raise NotImplementedError

    # ---- leaving

    packs = False  #: whether pairs of results stay in registers until several of them are stored at once
    everywhere = False  #: whether threads have sums in registers also where C has no place for them

    def _leaving(self) -> None:
        """How finished sums get to C."""
        c, p = self.config, self.problem
        #: whether there are items, at offsets from each other: one kernel serves any number of them but one
        self.batched = p.batch != 1
        #: the register with the address of the C of a block's item
        self.item_c = "%item_c" if self.batched else "%C"
        #: where elements of C are, and what a block writes: C, or partial sums
        self.at_c = f"epilogue/c_{'strided' if p.addr_c == STRIDED else 'table'}.mako"
        self.sliced = c.kg > 1
        self.raster = "sched/raster.mako"
        self.raster_group = c.raster_group
        self.leave = "epilogue/via_smem.mako" if self.geometry.gathers else "epilogue/from_registers.mako"
        self.put = _PUT[c.splitk if self.sliced else None]
        self.checked = c.bounds != BOUNDS_NONE
        self.flagged = self.sliced and c.splitk == SPLIT_FLAG
        self.cleared = self.sliced and c.splitk == SPLIT_MEMSET
        self.partial = self.sliced and c.splitk == SPLIT_WORKSPACE
        self.at_out = "epilogue/c_strided.mako" if self.partial else self.at_c
        #: type of sums outside the main loop, of alpha and of beta
        self.sum = p.linear.name
        self.sum_bytes = dtype(self.sum).bytes
        integer = dtype(self.sum).integer
        self.add, self.mul, self.fma, self.differs = (
            ("add.s32", "mul.lo.s32", "mad.lo.s32", "setp.ne.s32")
            if integer
            else (f"add.rn.{self.sum}", f"mul.rn.{self.sum}", f"fma.rn.{self.sum}", f"setp.neu.{self.sum}")
        )
        self.zero = bits_of(0.0, dtype(self.sum))
        #: integer sums that go on as f32
        self.converts = p.accumulator.integer and not integer

    def _epilogue(self) -> None:
        c, p = self.config, self.problem
        #: 16-bit results; integers of 8 bits; floats of 8 bits, which are converted in pairs
        self.narrows, self.bytewise, self.tiny = p.output.bytes == 2, p.out == "s8", p.output.fp8
        self.element = "b16" if self.narrows else "b8" if self.tiny else p.out
        self.element_bytes = p.output.bytes
        self.stream = ".cs" if c.store_policy else ""
        most = 16 // self.sum_bytes
        #: elements of one access of C (or of a partial sum)
        self.vec_c = min(self._wide_c(), most, self.contiguous if not self.geometry.gathers else most)
        self.has_vector_red = self.device.has_vector_red and self.sum == "f32"
        self.vector = width(self.vec_c, self.sum)
        self.c_type = self._c_type(self.vec_c)
        self.got_c = Tile("c", *self._held_c())
        self.half_c, self.pair_c = Tile("half", "b16", (2,)), Tile("pair", "b32", (1,))
        converted = self.narrows or self.bytewise or self.tiny
        self.wide_c = Tile("wide", self.sum, (self.vec_c,)) if converted else self.got_c
        #: registers of epilogue/c_elements.mako
        self.passing = [
            self.got_c,
            *([self.half_c] if self.narrows or self.tiny else []),
            *([self.pair_c] if self.tiny else []),
            *([self.wide_c] if converted else []),
        ]
        self.other = Tile("other", self.sum, (self.vec_c,))
        self.out_bytes = self.sum_bytes if self.partial else self.element_bytes
        self.after = "epilogue/fused_ops.mako" if p.epilogue else "epilogue/identity.mako"
        #: the arrays of the epilogue: name, type of a load, bytes of an element
        types = {name: p.read_type(name) for name in p.reads}
        self.arrays = {name: ("b16" if kind.bytes == 2 else kind.name, kind.bytes) for name, kind in types.items()}
        #: all of an item have one bias; items have biases of their own, one behind the other
        self.one_bias = p.scalar_bias and "bias" in self.arrays
        self.own_bias = self.batched and p.batched_bias and "bias" in self.arrays
        self._gather()

    def _wide_c(self) -> int:
        """Elements of an access of C, as the configuration says."""
        return self.config.vec_c

    def _gather(self) -> None:
        """The tile on its way through shared memory: rows padded by four."""
        c, most = self.config, 16 // self.sum_bytes
        self.row_c = int(self.geometry.row_c)
        self.share = min(self.contiguous, most)
        self.row_vectors = c.nl // self.vec_c
        self.log2_row_vectors = log2(self.row_vectors)
        self.gather_loads = c.ml * c.nl // self.vec_c
        self.gather_rounds = -(-self.gather_loads // self.threads)
        self.gather_guard = "@%in " if self.checked or self.gather_loads < self.threads else ""

    def _c_type(self, n: int) -> str:
        """The type of an access of ``n`` elements of C."""
        if n == 1 or not (self.narrows or self.tiny):
            return width(n, self.element)
        return width(n // 2, "b16" if self.tiny else "b32")

    def _held_c(self) -> tuple[str, tuple[int]]:
        """Type and number of the registers that hold ``vec_c`` elements of C as memory does."""
        if self.tiny:
            return "b16", (max(1, self.vec_c // 2),)
        if self.narrows:
            return ("b32", (self.vec_c // 2,)) if self.vec_c > 1 else ("b16", (1,))
        return "b32" if self.bytewise else self.element, (self.vec_c,)

    @property
    def elements_declaration(self) -> str:
        """Registers of epilogue/c_elements.mako."""
        return " ".join(t.declaration for t in self.passing)

    @property
    def begun(self) -> list[tuple[str, str, str]]:
        """Type, name and zero of registers to be set before what a predicate may skip: else they count as holding
        something all the while before, and hundreds of them do not fit."""
        return []

    @staticmethod
    def braced(registers: list[str]) -> str:
        return braces(registers)

    # ---- launching

    @property
    def array_parameters(self) -> list[str]:
        """The parameters that the epilogue adds."""
        return [f".param .u64 {name}," for name in self.arrays]

    @property
    def item_parameters(self) -> list[str]:
        """The parameters that items add: bytes from the operands of one to those of the next, the first item of the
        launch, and how many it has."""
        if not self.batched:
            return []
        return [".param .u64 by_a, .param .u64 by_b, .param .u64 by_c, .param .u32 first_item, .param .u32 items,"]

    @property
    def found_ab(self) -> list[str]:
        """The parameters that tables of A and B add."""
        p, out = self.problem, []
        for name, found in (("a", p.addr_a), ("b", p.addr_b)):
            if found != STRIDED:
                out.append(f".param .u64 along_{name}, .param .u64 down_{name},")
            if found == WINDOW:
                out.append(f".param .u32 guard_{name}, .param .u32 high_{name},")
        return out

    @property
    def found_c(self) -> list[str]:
        """The parameters that tables of C add."""
        return [] if self.problem.addr_c == STRIDED else [".param .u64 rows_c, .param .u64 columns_c,"]

    @property
    def parameters(self) -> list[str]:
        """The kernel's parameters as it declares them, in lines."""
        return [
            ".param .u64 A, .param .u64 B, .param .u64 C, .param .u64 W,",
            *self.array_parameters,
            *self.item_parameters,
            *self.found_ab,
            *self.found_c,
            ".param .u32 M, .param .u32 N, .param .u32 K,",
            ".param .u32 lda, .param .u32 ldb, .param .u32 ldc, .param .u32 chunk,",
            f".param .{self.sum} alpha, .param .{self.sum} beta",
        ]

    @property
    def directives(self) -> list[str]:
        """What the kernel promises of its launches."""
        return [f".maxntid {self.threads}, 1, 1", f".minnctapersm {self.config.min_ctas_per_sm}"]

    def slices_for(self, problem: KernelGemm) -> tuple[int, int]:
        """(slices of K that hold something, length of a slice) for a problem of this class."""
        c = self.config
        chunk = ceil_div(ceil_div(problem.k, c.kg), c.u) * c.u
        return max(-(-problem.k // chunk), 1) if chunk else 1, chunk

    def launch(self, problem: KernelGemm) -> Launch:
        """The steps that compute ``problem``, which must be of this plan's class. More items than a grid holds are
        launched in runs, which use the same workspace one after the other."""
        if problem.results == 0:
            return Launch(())
        parts = [self._run(p, run) for p in problem.gemms for run in self._runs(p)]
        steps = tuple(step for part in parts for step in part.steps)
        return Launch(steps, max(part.workspace for part in parts), parts[0].zeroed)

    def dependents(self, entries: Sequence[str]) -> tuple[str, ...]:
        """Those of its kernels that may be launched before the one ahead of them has ended."""
        if self.config.pdl != PDL_WITHIN:
            return tuple(entries) if self.dependent else ()
        steps = (Step("", (0, 0, 0)), *self.launch(self.problem).steps)
        barred = {step.entry for before, step in pairwise(steps) if not before.entry}  # first, or behind a memset
        return tuple(entry for entry in entries if entry not in barred)

    def _runs(self, problem: KernelGemm) -> list[Run]:
        most = self.items_limit(problem)
        return [Run(first, min(most, problem.batch - first)) for first in range(0, problem.batch, most)]

    def items_limit(self, problem: KernelGemm) -> int:
        """The items that one launch can have: slices of all of them lie along z."""
        return GRID_LIMIT // self.slices_for(problem)[0]

    def _run(self, problem: KernelGemm, run: Run) -> Launch:
        """The steps that compute the items of a run."""
        c = self.config
        slices, chunk = self.slices_for(problem)
        tiles_m, tiles_n = -(-problem.m // c.ml), -(-problem.n // c.nl)
        z = slices * run.items
        grid = (tiles_m, tiles_n, z) if c.raster_group == 1 else (tiles_m * tiles_n, 1, z)
        scalars: tuple[Argument, ...] = (
            ("u32", problem.m),
            ("u32", problem.n),
            ("u32", problem.k),
            ("u32", problem.lda),
            ("u32", problem.ldb),
            ("u32", problem.ldc),
            ("u32", chunk),
            (self.sum, "alpha"),
            (self.sum, "beta"),
        )
        pointers: tuple[Argument, ...] = (("u64", "A"), ("u64", "B"), ("u64", "C"), ("u64", "W"))
        arguments = (
            *pointers,
            *self._arrays(problem),
            *self._items(problem, run),
            *self._tables(problem, "abc"),
            *scalars,
        )
        main = Step(self.entry, grid, (self.threads, 1, 1), self.shared, arguments)
        if self.cleared:
            return Launch((self._pass("scale", problem, run, ()), main))
        if self.partial:
            size = slices * run.items * problem.m * problem.n * self.sum_bytes
            return Launch((main, self._pass("reduce", problem, run, (("u32", slices),))), size)
        if self.flagged:
            return Launch((main,), 4 * tiles_m * tiles_n * run.items, zeroed=True)
        return Launch((main,))

    def _items(self, problem: KernelGemm, run: Run) -> tuple[Argument, ...]:
        """The arguments of ``item_parameters``."""
        if not self.batched:
            return ()
        return (*(("u64", offset) for offset in problem.offsets), ("u32", run.first), ("u32", run.items))

    @staticmethod
    def _tables(problem: KernelGemm, operands: str) -> tuple[Argument, ...]:
        """The arguments of ``found_ab`` and ``found_c``."""
        out: list[Argument] = []
        for x in (getattr(problem.parts[0], name) for name in operands) if isinstance(problem, ImplicitGemm) else ():
            if x.found != STRIDED:
                out += [("table", table) for table in x.tables]
            if x.found == WINDOW:
                out += [("u32", x.packing.guard), ("u32", x.packing.high)]
        return tuple(out)

    @staticmethod
    def _arrays(problem: KernelGemm) -> tuple[Argument, ...]:
        return tuple(("u64", name) for name in problem.reads)

    def _pass(self, name: str, problem: KernelGemm, run: Run, more: tuple[Argument, ...]) -> Step:
        """A pass over C by blocks of PASS_THREADS threads, 2^shift of them along a row, items along z."""
        vectors = -(-problem.n // self.vec_c)
        shift = min(log2(PASS_THREADS), (vectors - 1).bit_length())
        rows = PASS_THREADS >> shift
        grid = (-(-vectors // (1 << shift)), min(-(-problem.m // rows), GRID_LIMIT), run.items)
        return Step(
            f"{self.entry}_{name}",
            grid,
            (PASS_THREADS, 1, 1),
            0,
            (
                ("u64", "C"),
                ("u64", "W"),
                *self._arrays(problem),
                *self._items(problem, run),
                *self._tables(problem, "c"),
                ("u32", problem.m),
                ("u32", problem.n),
                ("u32", problem.ldc),
                ("u32", shift),
                (self.sum, "beta"),
                *more,
            ),
        )

    # ---- what a reader is told

    @property
    def accesses(self) -> str:
        """What moves at once."""
        c = self.config
        return f"accesses of {c.vec_a}, {c.vec_b}, {self.vec_c} elements of A, B, C"

    @property
    def grid(self) -> str:
        """What the axes of the grid count."""
        last = "items of all slices" if self.batched else "slices"
        return f"(tiles of M, tiles of N, {last})" if self.config.raster_group == 1 else f"(tiles, 1, {last})"

    @cached_property
    def command(self) -> str:
        name = self.device.name
        return f"python -m ptxgen emit {self.asked.words} --device {name} --config '{self.config}'"


def neutral(config: Config) -> Config:
    """The configuration that stands for all that generate the same text: the number of slices is a run-time value, but
    for blocks that wait for each other."""
    return config if config.splitk in (SPLIT_POLL, SPLIT_SHARE) else replace(config, kg=min(config.kg, 2))
