"""A plan: every derived number of one kernel, and the template that fills each slot.

The base class has what all families need: split K, tiles, the epilogue. A family adds its operands and its main loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ptxgen.codegen.config import (
    BOUNDS_NONE,
    PDL_WITHIN,
    SPLIT_POLL,
    SPLIT_SHARE,
    Config,
)
from ptxgen.codegen.parts import Reduction
from ptxgen.codegen.registers import Tile, braces, width
from ptxgen.codegen.source import Argument, Launch, Step
from ptxgen.codegen.vectorized import ceil_div, log2
from ptxgen.cuda_abi import GRID_LIMIT
from ptxgen.lowering.implicit_gemm import WINDOW, ImplicitGemm
from ptxgen.lowering.kernel_gemm import STRIDED, KernelGemm
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import bits_of, dtype
from ptxgen.problem.registry import Problem

AUX_KERNEL_THREADS = 256  #: threads per block of auxiliary kernels


@dataclass(frozen=True)
class BatchRange:
    """Consecutive batch items that one launch computes: ``items`` of them, the first is number ``first``."""

    first: int
    items: int


class Plan:
    """How ``config`` computes problems like ``problem`` on ``device``.

    The kernel serves every shape of the same types, layout and alignment class. ``geometry``: the numbers that follow
    from problem and configuration, which must be legal.
    """

    #: the schedule's template
    kernel = ""
    #: a folder of templates that are searched before the package's, of a family outside the package
    templates: Path | None = None
    #: operands that an auxiliary kernel packs to aligned rows
    packed_operands: tuple[Any, ...] = ()
    #: alignment of dynamic shared memory in bytes
    shared_alignment = 16
    AUX_KERNEL_THREADS = AUX_KERNEL_THREADS
    #: lop3 look-up table of (not a or not b) and c: nonzero if a coordinate is outside the image
    OUT_OF_IMAGE_LUT = (~0xF0 | ~0xCC) & 0xAA
    #: constants of the activations, as PTX writes them: x·σ(x) and x·σ(√(8/π)(x + 0.044715x³)) by powers of two
    MINUS_LOG2E = bits_of(-math.log2(math.e), dtype("f32"))
    GELU_LINEAR = bits_of(-math.sqrt(8 / math.pi) * math.log2(math.e), dtype("f32"))
    GELU_CUBIC = bits_of(-math.sqrt(8 / math.pi) * math.log2(math.e) * 0.044715, dtype("f32"))
    #: the guard of stores of sums to shared memory
    sts_guard = ""
    UNROLLED = 8  #: the epilogue through shared memory is unrolled up to this many rounds

    def __init__(self, problem: KernelGemm, config: Config, device: Device, geometry: SimpleNamespace) -> None:
        self.problem, self.config, self.device = problem, config, device
        self.source_problem: Problem = problem  #: the problem that ``problem`` was lowered from, for the header
        self.geometry = geometry
        self.family = config.family
        self.target, self.ptx_version = device.target, device.ptx_version
        self.entry = f"{problem.operation}_{problem.dtype}_{problem.layout.lower()}"
        self.threads, self.shared = int(self.geometry.threads), int(self.geometry.shared)
        self.stages, self.kl = config.stages, config.kl
        #: programmatic dependent launch: the kernels wait for the previous kernel of the stream
        self.pdl = config.pdl > 0
        #: when the next kernel may start: after this kernel's last loads (late), or at its start (early)
        self.pdl_trigger = ("", "late", "early", "late")[config.pdl]
        self._set_epilogue()
        self._set_operands()
        self._set_c_access()

    # ---- what a family adds

    def _set_operands(self) -> None:
        """The operand paths and the main loop."""
        raise NotImplementedError

    @property
    def contiguous(self) -> int:
        """Adjacent columns of C that a thread holds in registers."""
        raise NotImplementedError

    @property
    def tiles(self) -> list[tuple[Tile, str]]:
        """The register table: the register arrays of the whole kernel, each with its meaning."""
        raise NotImplementedError

    @property
    def shared_map(self) -> list[str]:
        """The shared-memory map, one line per region."""
        raise NotImplementedError

    # ---- epilogue

    pack_8bit = False  #: whether packed pairs of 8-bit results are collected in registers and stored together
    computes_oob = False  #: whether threads compute sums outside C too (only their stores are guarded)

    def _set_epilogue(self) -> None:
        """The epilogue's slots, its split-K reduction and its arithmetic type."""
        c, p = self.config, self.problem
        #: whether the problem is a batch; one kernel serves every batch size above 1
        self.batched = p.batch != 1
        #: the register with the address of C of the block's batch item
        self.c_base = "%item_c" if self.batched else "%C"
        #: the slots that address C, and what a block stores: C or partial sums
        self.c_addr = f"epilogue/c_{'strided' if p.addr_c == STRIDED else 'table'}.mako"
        self.splits_k = c.kg > 1
        self.raster = "sched/raster.mako"
        self.raster_group = c.raster_group
        self.store_c = "epilogue/via_smem.mako" if self.geometry.gathers else "epilogue/from_registers.mako"
        self.reduction = Reduction.of(c)
        self.store_op = self.reduction.store_op
        self.checks_bounds = c.bounds != BOUNDS_NONE
        self.out_addr = "epilogue/c_strided.mako" if self.reduction.stores_partials else self.c_addr
        #: type of alpha, beta and the epilogue's arithmetic
        self.epilogue_type = p.epilogue_dtype.name
        self.epilogue_bytes = dtype(self.epilogue_type).bytes
        integer = dtype(self.epilogue_type).integer
        self.add, self.mul, self.fma, self.setp_ne = (
            ("add.s32", "mul.lo.s32", "mad.lo.s32", "setp.ne.s32")
            if integer
            else (
                f"add.rn.{self.epilogue_type}",
                f"mul.rn.{self.epilogue_type}",
                f"fma.rn.{self.epilogue_type}",
                f"setp.neu.{self.epilogue_type}",
            )
        )
        self.zero = bits_of(0.0, dtype(self.epilogue_type))
        #: whether s32 accumulators are converted to f32 in the epilogue
        self.s32_to_f32 = p.accumulator.integer and not integer

    def _set_c_access(self) -> None:
        """Types, vector widths and registers of accesses to C."""
        c, p = self.config, self.problem
        #: the kind of C: 16-bit, s8, or fp8 (converted in pairs)
        self.is_16bit, self.is_s8, self.is_fp8 = p.output.bytes == 2, p.out == "s8", p.output.fp8
        self.c_element_type = "b16" if self.is_16bit else "b8" if self.is_fp8 else p.out
        self.c_bytes = p.output.bytes
        self.store_cache_op = ".cs" if c.store_policy else ""
        most = 16 // self.epilogue_bytes
        #: elements of one access to C or to partial sums
        self.vec_c = min(self._vec_c(), most, self.contiguous if not self.geometry.gathers else most)
        self.has_vector_red = self.device.has_vector_red and self.epilogue_type == "f32"
        self.vector_type = width(self.vec_c, self.epilogue_type)
        self.c_type = self._c_vector_type(self.vec_c)
        self.loaded_c = Tile("c", *self._loaded_c())
        self.half_c, self.pair_c = Tile("half", "b16", (2,)), Tile("pair", "b32", (1,))
        converted = self.is_16bit or self.is_s8 or self.is_fp8
        self.c_values = Tile("wide", self.epilogue_type, (self.vec_c,)) if converted else self.loaded_c
        #: registers of epilogue/c_elements.mako
        self.c_registers = [
            self.loaded_c,
            *([self.half_c] if self.is_16bit or self.is_fp8 else []),
            *([self.pair_c] if self.is_fp8 else []),
            *([self.c_values] if converted else []),
        ]
        self.addend = Tile("other", self.epilogue_type, (self.vec_c,))
        self.out_bytes = self.epilogue_bytes if self.reduction.stores_partials else self.c_bytes
        self.fused_ops = "epilogue/fused_ops.mako" if p.epilogue else "epilogue/identity.mako"
        #: the epilogue's operands: name, PTX type of a load, bytes of an element
        types = {name: p.epilogue_operand_dtype(name) for name in p.epilogue_operands}
        self.arrays = {name: ("b16" if kind.bytes == 2 else kind.name, kind.bytes) for name, kind in types.items()}
        #: one bias for all elements; a bias per batch item, stored consecutively
        self.scalar_bias = p.scalar_bias and "bias" in self.arrays
        self.batched_bias = self.batched and p.batched_bias and "bias" in self.arrays
        self._set_c_staging()

    def _vec_c(self) -> int:
        """Elements of an access to C that the configuration asks for."""
        return self.config.vec_c

    def _set_c_staging(self) -> None:
        """The tile of C in shared memory: rows padded by four elements."""
        c, most = self.config, 16 // self.epilogue_bytes
        self.c_row_pitch = int(self.geometry.row_c)
        self.sts_vec = min(self.contiguous, most)
        self.row_vectors = c.nl // self.vec_c
        self.log2_row_vectors = log2(self.row_vectors)
        self.gather_loads = c.ml * c.nl // self.vec_c
        self.gather_rounds = -(-self.gather_loads // self.threads)
        self.gather_guard = "@%in_bounds " if self.checks_bounds or self.gather_loads < self.threads else ""

    def _c_vector_type(self, n: int) -> str:
        """The type of an access of ``n`` elements of C."""
        if n == 1 or not (self.is_16bit or self.is_fp8):
            return width(n, self.c_element_type)
        return width(n // 2, "b16" if self.is_fp8 else "b32")

    def _loaded_c(self) -> tuple[str, tuple[int]]:
        """Type and number of the registers that a load of ``vec_c`` elements of C fills."""
        if self.is_fp8:
            return "b16", (max(1, self.vec_c // 2),)
        if self.is_16bit:
            return ("b32", (self.vec_c // 2,)) if self.vec_c > 1 else ("b16", (1,))
        return "b32" if self.is_s8 else self.c_element_type, (self.vec_c,)

    @property
    def c_declaration(self) -> str:
        """Registers of epilogue/c_elements.mako."""
        return " ".join(t.declaration for t in self.c_registers)

    @property
    def preinitialised(self) -> list[tuple[str, str, str]]:
        """(type, register, zero) of registers that are set before guarded instructions write them. Otherwise ptxas
        assumes that they are live before, and hundreds of them spill."""
        return []

    @staticmethod
    def operand_list(registers: list[str]) -> str:
        return braces(registers)

    # ---- launching

    @property
    def epilogue_parameters(self) -> list[str]:
        """Kernel parameters of the epilogue's operands."""
        return [f".param .u64 {name}," for name in self.arrays]

    @property
    def batch_parameters(self) -> list[str]:
        """Kernel parameters of a batch: byte strides of A, B and C, the launch's first item, its number of items."""
        if not self.batched:
            return []
        return [".param .u64 by_a, .param .u64 by_b, .param .u64 by_c, .param .u32 first_item, .param .u32 items,"]

    @property
    def ab_table_parameters(self) -> list[str]:
        """Kernel parameters of the address tables of A and B."""
        p, out = self.problem, []
        for name, addressing in (("a", p.addr_a), ("b", p.addr_b)):
            if addressing != STRIDED:
                out.append(f".param .u64 along_{name}, .param .u64 down_{name},")
            if addressing == WINDOW:
                out.append(f".param .u32 guard_{name}, .param .u32 high_{name},")
        return out

    @property
    def c_table_parameters(self) -> list[str]:
        """Kernel parameters of the address tables of C."""
        return [] if self.problem.addr_c == STRIDED else [".param .u64 rows_c, .param .u64 columns_c,"]

    @property
    def parameters(self) -> list[str]:
        """The kernel's parameter declarations, in lines."""
        return [
            ".param .u64 A, .param .u64 B, .param .u64 C, .param .u64 W,",
            *self.epilogue_parameters,
            *self.batch_parameters,
            *self.ab_table_parameters,
            *self.c_table_parameters,
            ".param .u32 M, .param .u32 N, .param .u32 K,",
            ".param .u32 lda, .param .u32 ldb, .param .u32 ldc, .param .u32 chunk,",
            f".param .{self.epilogue_type} alpha, .param .{self.epilogue_type} beta",
        ]

    @property
    def directives(self) -> list[str]:
        """The kernel's performance-tuning directives."""
        return [f".maxntid {self.threads}, 1, 1", f".minnctapersm {self.config.min_ctas_per_sm}"]

    def slices_for(self, problem: KernelGemm) -> tuple[int, int]:
        """(non-empty slices of K, length of a slice) for a problem of this class."""
        c = self.config
        chunk = ceil_div(ceil_div(problem.k, c.kg), c.u) * c.u
        return max(-(-problem.k // chunk), 1) if chunk else 1, chunk

    def launch(self, problem: KernelGemm) -> Launch:
        """The steps that compute ``problem``, which must be of this plan's class. A batch
        that exceeds the grid is split into several launches, which use the same workspace in turn."""
        if problem.results == 0:
            return Launch(())
        parts = [self._launch_range(p, run) for p in problem.gemms for run in self._batch_ranges(p)]
        steps = tuple(step for part in parts for step in part.steps)
        return Launch(steps, max(part.workspace for part in parts), parts[0].zeroed)

    def pdl_entries(self, entries: Sequence[str]) -> tuple[str, ...]:
        """The kernels that may be launched before the previous kernel of the stream has ended."""
        if self.config.pdl != PDL_WITHIN:
            return tuple(entries) if self.pdl else ()
        steps = (Step("", (0, 0, 0)), *self.launch(self.problem).steps)
        barred = {step.entry for before, step in pairwise(steps) if not before.entry}  # first, or behind a memset
        return tuple(entry for entry in entries if entry not in barred)

    def _batch_ranges(self, problem: KernelGemm) -> list[BatchRange]:
        most = self.batch_limit(problem)
        return [BatchRange(first, min(most, problem.batch - first)) for first in range(0, problem.batch, most)]

    def batch_limit(self, problem: KernelGemm) -> int:
        """The most batch items of one launch: grid.z counts the slices of all of them."""
        return GRID_LIMIT // self.slices_for(problem)[0]

    def _launch_range(self, problem: KernelGemm, run: BatchRange) -> Launch:
        """The steps that compute the batch items of ``run``."""
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
            (self.epilogue_type, "alpha"),
            (self.epilogue_type, "beta"),
        )
        pointers: tuple[Argument, ...] = (("u64", "A"), ("u64", "B"), ("u64", "C"), ("u64", "W"))
        arguments = (
            *pointers,
            *self._epilogue_arguments(problem),
            *self._batch_arguments(problem, run),
            *self._table_arguments(problem, "abc"),
            *scalars,
        )
        main = Step(self.entry, grid, (self.threads, 1, 1), self.shared, arguments)
        if self.reduction.prescales_c:
            return Launch((self._aux_kernel("scale", problem, run, ()), main))
        if self.reduction.stores_partials:
            size = slices * run.items * problem.m * problem.n * self.epilogue_bytes
            return Launch((main, self._aux_kernel("reduce", problem, run, (("u32", slices),))), size)
        if self.reduction.uses_flag:
            return Launch((main,), 4 * tiles_m * tiles_n * run.items, zeroed=True)
        return Launch((main,))

    def _batch_arguments(self, problem: KernelGemm, run: BatchRange) -> tuple[Argument, ...]:
        """The arguments of ``batch_parameters``."""
        if not self.batched:
            return ()
        return (*(("u64", offset) for offset in problem.offsets), ("u32", run.first), ("u32", run.items))

    @staticmethod
    def _table_arguments(problem: KernelGemm, operands: str) -> tuple[Argument, ...]:
        """The arguments of ``ab_table_parameters`` and ``c_table_parameters``."""
        out: list[Argument] = []
        for x in (getattr(problem.parts[0], name) for name in operands) if isinstance(problem, ImplicitGemm) else ():
            if x.found != STRIDED:
                out += [("table", table) for table in x.tables]
            if x.found == WINDOW:
                out += [("u32", x.packing.guard), ("u32", x.packing.high)]
        return tuple(out)

    @staticmethod
    def _epilogue_arguments(problem: KernelGemm) -> tuple[Argument, ...]:
        return tuple(("u64", name) for name in problem.epilogue_operands)

    def _aux_kernel(self, name: str, problem: KernelGemm, run: BatchRange, more: tuple[Argument, ...]) -> Step:
        """The launch of an auxiliary kernel over C: AUX_KERNEL_THREADS threads per block, 2^shift of them along a
        row; grid.z counts batch items."""
        vectors = -(-problem.n // self.vec_c)
        shift = min(log2(AUX_KERNEL_THREADS), (vectors - 1).bit_length())
        rows = AUX_KERNEL_THREADS >> shift
        grid = (-(-vectors // (1 << shift)), min(-(-problem.m // rows), GRID_LIMIT), run.items)
        return Step(
            f"{self.entry}_{name}",
            grid,
            (AUX_KERNEL_THREADS, 1, 1),
            0,
            (
                ("u64", "C"),
                ("u64", "W"),
                *self._epilogue_arguments(problem),
                *self._batch_arguments(problem, run),
                *self._table_arguments(problem, "c"),
                ("u32", problem.m),
                ("u32", problem.n),
                ("u32", problem.ldc),
                ("u32", shift),
                (self.epilogue_type, "beta"),
                *more,
            ),
        )

    # ---- the header

    @property
    def accesses(self) -> str:
        """The widths of global accesses."""
        c = self.config
        return f"accesses of {c.vec_a}, {c.vec_b}, {self.vec_c} elements of A, B, C"

    @property
    def epilogue_summary(self) -> str:
        """What the epilogue does, for its banner."""
        stores = {
            Reduction.NONE: "store C",
            Reduction.MEMSET_RED: "add to C by red.global",
            Reduction.FLAG_RED: "add to C by red.global",
            Reduction.WORKSPACE: "store partial sums in the workspace",
            Reduction.LAST_CTA: "store C",
            Reduction.DISTRIBUTED: "store C",
        }
        return stores[self.reduction] + (" through shared memory" if self.geometry.gathers else " from registers")

    @property
    def block_tile(self) -> str:
        """The extents of a block's tile of C."""
        return f"{self.config.ml} x {self.config.nl}"

    @property
    def grid(self) -> str:
        """What the axes of the grid count."""
        last = "items of all slices" if self.batched else "slices"
        return f"(tiles of M, tiles of N, {last})" if self.config.raster_group == 1 else f"(tiles, 1, {last})"

    @cached_property
    def command(self) -> str:
        name = self.device.name
        return f"python -m ptxgen emit {self.source_problem.command_options} --device {name} --config '{self.config}'"


def neutral(config: Config) -> Config:
    """The configuration that stands for all that generate the same text: the number of slices is a run-time value, but
    for blocks that wait for each other."""
    return config if config.splitk in (SPLIT_POLL, SPLIT_SHARE) else config.replace(kg=min(config.kg, 2))
