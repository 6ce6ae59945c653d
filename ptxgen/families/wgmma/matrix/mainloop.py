"""The K loop of a wgmma kernel: its instruction, the products of a stage, the accumulators and the barriers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.vectorized import WARP, Last
from ptxgen.families.wgmma import bf16x3, promotion
from ptxgen.families.wgmma.geometry import COLUMNS, ROWS, STEP, WARPGROUP, WgmmaGeometry, stage_depth
from ptxgen.families.wgmma.layout import ADDRESS_MASK, OperandPath, Product
from ptxgen.families.wgmma.matrix.quantized_weights import (
    ChunkLoads,
    Dequantized,
    QuantizedFragments,
    QuantizedOperand,
)
from ptxgen.families.wgmma.matrix.rs_fragments import (
    BYTE_ROWS,
    WGMMA_NEXT_ROW,
    WGMMA_ROWS,
    WORD_ROWS,
    Fragments,
    Term,
)
from ptxgen.families.wgmma.packing.smem_realign import Realignment
from ptxgen.families.wgmma.packing.split_bf16x3 import SplitOperand
from ptxgen.lowering.block_scales import block_scaled
from ptxgen.lowering.kernel_problem import KernelProblem

WARPGROUP_BARRIER = 2  #: number of the named barrier of math warpgroup 0


class StageSum(NamedTuple):
    """Products of a stage that accumulate in one set of registers. ``complete``: the sums that are added to the totals
    when these products have been issued, as (registers, number of later groups of products that may still run). The
    last sum of a stage is never among them."""

    registers: Tile
    products: list[Product]
    complete: list[tuple[Tile, int]]


class WeightStep(NamedTuple):
    """K step ``k`` of a stage of quantized weights. ``begins_group``: True if the step begins a group with scales of
    its own; ``frees_previous``: True if the previous stage is free when the wait of the step ends; ``chunks``: the
    loads that follow the dequantization; ``complete``: the sums that are added to the totals before the products are
    issued."""

    k: int
    begins_group: bool
    frees_previous: bool
    dequantized: list[Dequantized]
    chunks: list[ChunkLoads]
    complete: list[list[tuple[Tile, int]]]
    products: list[Product]
    operands: list[str]


@dataclass(frozen=True)
class Mainloop(Part):
    """The loop of the math warpgroups over stages. ``arithmetic``: the arithmetic of sums outside the loop."""

    problem: KernelProblem
    config: Config
    geometry: WgmmaGeometry
    x: OperandPath
    y: OperandPath
    arithmetic: Arithmetic

    ADDRESS_MASK = ADDRESS_MASK

    @property
    def split(self) -> bool:
        """True if operands are bf16 planes."""
        return bf16x3.planes(self.problem) > 1

    @property
    def promotes(self) -> bool:
        """True if sums of parts of K are added to the totals in f32 (promotion)."""
        return promotion.promotes(self.problem)

    @property
    def mi(self) -> int:
        """The number of wgmma instructions that a warpgroup stacks along X."""
        return int(self.geometry.math.mi)

    @property
    def a_from_registers(self) -> bool:
        """True if wgmma takes X from registers instead of shared memory."""
        return bool(self.geometry.math.a_from_registers)

    # ---- templates

    @property
    def template(self) -> str:
        if isinstance(self.x, QuantizedOperand):
            return "math/wgmma_quantized.mako"
        return "math/wgmma_rs.mako" if self.a_from_registers else "math/wgmma.mako"

    @property
    def accumulate(self) -> str:
        """The template file that adds the sums of a K iteration to those of all iterations."""
        if self.promotes:
            return "math/promote.mako"
        if isinstance(self.x, QuantizedOperand):
            return "math/accumulate_rows.mako"
        return "math/accumulate_steps.mako" if self.a_from_registers else "math/accumulate_inplace.mako"

    @property
    def additions(self) -> str:
        """The template file that adds two-level sums to the totals."""
        if isinstance(self.x, QuantizedOperand):
            return "math/group_scales.mako"
        return "math/block_scales.mako" if block_scaled(self.problem) else "math/two_level_accumulate.mako"

    # ---- a stage

    @cached_property
    def realign(self) -> Realignment:
        return Realignment.of((self.x, self.y), self.config)

    @property
    def stage_bytes(self) -> int:
        return int(self.geometry.pipeline.stage_bytes)

    @property
    def stage_units(self) -> int:
        """The size of a stage in units of 16 bytes, as in descriptors."""
        return self.stage_bytes // 16

    @property
    def later_tx_bytes(self) -> int:
        """The value of ``tx_bytes`` after the first round of the stages."""
        return self.tx_bytes - self.resident_tx_bytes

    @property
    def load_guards(self) -> dict[str, str]:
        """Role of an operand -> the guard predicate of its loads."""
        return {x.role: "@%first_round " if x is self.resident else "" for x in (self.x, self.y)}

    @cached_property
    def step_products(self) -> list[list[Product]]:
        """For each K step, its wgmma instructions."""
        return [self.products[n : n + self.mi] for n in range(0, len(self.products), self.mi)]

    @property
    def tx_bytes(self) -> int:
        """The bytes for which a full barrier waits: this block's loads, and slices that other blocks multicast."""
        return self.x.tx_bytes * self.config.cluster_y + self.y.tx_bytes * self.config.cluster_x

    @property
    def resident(self) -> OperandPath | None:
        """The operand that stays in the stages, so that only the first round of the stages loads it. None: there is
        none."""
        if not self.config.resident_b:
            return None
        return self.x if self.x.name == "b" else self.y

    @property
    def resident_tx_bytes(self) -> int:
        """The part of ``tx_bytes`` that only the first round of the stages loads."""
        x = self.resident
        blocks = self.config.cluster_y if x is self.x else self.config.cluster_x
        return x.tx_bytes * blocks if x is not None else 0

    @property
    def instruction(self) -> str:
        p = self.problem
        if self.split:
            return f"m64n{self.y_tile}k{STEP // bf16x3.FACTOR_BYTES}.f32.bf16.bf16"
        elements = [p.operand(x.name.upper()).element for x in (self.x, self.y)]
        if isinstance(self.x, QuantizedOperand):  # dequantized
            elements[0] = p.element
        types = ".".join(x.mma for x in elements)
        return f"m64n{self.y_tile}k{STEP // p.element.bytes}.{p.accumulator}.{types}"

    @property
    def immediates(self) -> str:
        """The operands of wgmma after scale-d: signs of A and B; for 16-bit types also which of them are MN-major."""
        p = self.problem
        if self.split:
            return ", 1, 1, 0, 0"
        major = f", {int(not self.y.kmajor)}"
        if not self.a_from_registers:
            major = f", {int(not self.x.kmajor)}" + major
        return ", 1, 1" + (major if p.element.bytes == 2 else "") if not p.accumulator.integer else ""

    @property
    def instruction_of_ones(self) -> str:
        """The instruction that multiplies 64 rows of X by 8 columns of ones."""
        return self.instruction.replace(f"n{self.y_tile}k", f"n{COLUMNS}k")

    @property
    def immediates_of_ones(self) -> str:
        """The operands of this instruction after scale-d: ones are K-major."""
        two_bytes = self.problem.element.bytes == 2
        return f", 1, 1, {int(not self.x.kmajor)}, 0" if two_bytes else ", 1, 1"

    @cached_property
    def row_sums(self) -> Tile:
        """The registers of the sums of rows of A: two rows, each twice."""
        return Tile("row_sum", "f32", (self.mi, 4))

    @property
    def k_steps(self) -> int:
        """The number of wgmma instructions along K in a stage, if operands are not planes."""
        return int(stage_depth(self.config)) * self.y.element // STEP

    @property
    def promoted_steps(self) -> int:
        """The number of K steps after which a sum is added to the total; without two-level sums, those of a stage."""
        return promotion.depth(self.problem) * self.y.element // STEP or self.k_steps

    @property
    def stage_sums(self) -> list[StageSum]:
        """The sums of a stage."""
        each = len(self.products) if self.split else self.promoted_steps * self.mi
        parts = [self.products[n : n + each] for n in range(0, len(self.products), each)]
        sums = self.partial_sums if self.promotes else [self.wgmma_acc]
        out = []
        for n, part in enumerate(parts):
            filled, last = (n + 1) % len(sums) == 0, n + 1 == len(parts)
            complete = [(x, len(sums) - 1 - j) for j, x in enumerate(sums)][: len(sums) - last] if filled else []
            out.append(StageSum(sums[n % len(sums)], part, complete))
        return out

    @property
    def complete_sums(self) -> list[tuple[Tile, int]]:
        """The value of ``StageSum.complete`` if every sum is added before the next one begins."""
        return [(self.wgmma_acc, 0)]

    def begins_sum(self, k: int) -> str:
        """The operand scale-d of K step ``k`` of a stage. It is false if wgmma overwrites its accumulators, and true if
        it adds to them."""
        if not self.promotes:
            return "1" if k else "%accumulate"
        return "1" if k % self.promoted_steps else "0"

    def begins_group(self, k: int) -> bool:
        """True if K step ``k`` begins a group of weights that has scales of its own."""
        assert isinstance(self.x, QuantizedOperand)
        group = self.x.access.group
        return group > 0 and k % (group * self.y.element // STEP) == 0

    def weight_steps(self, offsets: Sequence[Sequence[list[str]]]) -> list[WeightStep]:
        """The K steps of a stage whose X is quantized weights. ``offsets``: as ``QuantizedFragments.dequantized``."""
        f = self.fragments
        assert isinstance(f, QuantizedFragments)
        return [
            WeightStep(
                k,
                self.begins_group(k),
                k == 1 and not self.promotes,
                f.dequantized(k, offsets),
                f.next_chunk(k),
                [self.complete_sums] if self.ends_sum(k - 1) else [],
                products,
                f.operands[k],
            )
            for k, products in enumerate(self.step_products)
        ]

    def ends_sum(self, k: int) -> bool:
        """True if the sum that ends with K step ``k`` is added to the total within the stage."""
        return self.promotes and (k + 1) % self.promoted_steps == 0 and 0 < k + 1 < self.k_steps

    @cached_property
    def products(self) -> list[Product]:
        """The wgmma instructions of a stage."""
        x, y, m64 = self.x, self.y, range(self.mi)
        if isinstance(x, SplitOperand) and isinstance(y, SplitOperand):  # all of K for each pair of planes
            steps = range(self.config.u * bf16x3.FACTOR_BYTES // STEP)
            return [
                Product(
                    m,
                    x.k_step_offset(k) + m * x.m64_bytes + i * x.plane_bytes >> 4,
                    y.k_step_offset(k) + j * y.plane_bytes >> 4,
                    str(int(n + k > 0)),
                )
                for n, (i, j) in enumerate(bf16x3.PAIRS)
                for k in steps
                for m in m64
            ]
        return [
            Product(m, x.k_step_offset(k) + m * x.m64_bytes >> 4, y.k_step_offset(k) >> 4, self.begins_sum(k))
            for k in range(self.k_steps)
            for m in m64
        ]

    # ---- warpgroups

    @property
    def wg_rows(self) -> int:
        """The number of elements along X from the first row of one warpgroup to the first row of the next."""
        return 0 if self.config.pingpong else self.mi * ROWS

    @property
    def x_wg_bytes(self) -> int:
        """The number of bytes of shared memory from the X rows of one warpgroup to those of the next."""
        if self.config.pingpong:
            return 0
        if isinstance(self.fragments, Fragments) and self.a_from_registers:
            return self.mi * ROWS // self.fragments.inner * self.fragments.box_bytes
        repeated = not self.x.kmajor and self.x.box[0] < ROWS
        return 0 if repeated else self.mi * self.x.m64_bytes

    @cached_property
    def fragments(self) -> Fragments | QuantizedFragments:
        """The register fragments of X, if wgmma takes X from registers."""
        x = self.x
        if isinstance(x, QuantizedOperand):
            return QuantizedFragments(x.access, self.problem.dtype, self.mi, x.span, x.tile * x.span, self.config.u)
        return Fragments(int(self.geometry.math.element_bytes), self.mi, self.x.span, self.x.depth)

    @property
    def row_terms(self) -> tuple[Term, ...]:
        """A thread's first row of 64, as terms of its number in the warpgroup."""
        if not (self.a_from_registers and isinstance(self.fragments, Fragments)):
            return WGMMA_ROWS
        return WORD_ROWS if self.fragments.words else BYTE_ROWS

    @property
    def next_row(self) -> int:
        """The distance, in rows, from a thread's first row to its second row."""
        return WGMMA_NEXT_ROW if self.row_terms is WGMMA_ROWS else 1

    # ---- accumulators

    @property
    def y_tile(self) -> int:
        return int(self.geometry.y.tile)

    @property
    def groups(self) -> int:
        """The number of groups of 8 columns of a thread's accumulators."""
        return self.y_tile // COLUMNS

    @property
    def acc_type(self) -> str:
        """The PTX type of the sums' registers. Integer sums are in the registers of the f32 to which they are
        converted."""
        return "b32" if self.arithmetic.s32_to_f32 else self.arithmetic.type

    @property
    def join(self) -> str:
        """The instruction that adds sums of different K slices."""
        return "add.s32" if self.arithmetic.s32_to_f32 else self.arithmetic.add

    @cached_property
    def acc(self) -> Tile:
        """The registers of the sums of all K iterations."""
        return Tile("acc", self.acc_type, (self.mi, 4 * self.groups))

    @property
    def f16_pairs(self) -> bool:
        """True if wgmma adds in f16, with two sums per register."""
        return self.problem.accumulator.bytes == 2

    @cached_property
    def wgmma_acc(self) -> Tile:
        """The registers in which wgmma accumulates."""
        if self.promotes:
            return self.partial_sums[0]
        return Tile("acc_pair", "b32", (self.mi, 2 * self.groups)) if self.f16_pairs else self.acc

    @cached_property
    def partial_sums(self) -> list[Tile]:
        """The registers of two-level sums, in the order in which wgmma fills them."""
        names = ("iter_acc", "next_acc")[: self.config.promotion_buffers]
        return [Tile(name, self.arithmetic.type, self.acc.shape) for name in names]

    @property
    def last_sum(self) -> Tile:
        """The registers of the last sum of a stage."""
        return self.partial_sums[-1]

    # ---- the header

    @property
    def next_round(self) -> list[str]:
        """The instruction that ends the first round of the stages, if that round also loads a resident operand; else
        empty."""
        return ["setp.ne.and.u32 %first_round, %stage, 0, %first_round;"] if self.resident else []

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        out = [(self.acc, "sums: [instruction along X][pair of columns]")]
        if self.f16_pairs:
            out.append((self.wgmma_acc, "f16 accumulators, two in a register"))
        if self.promotes:
            depth = promotion.depth(self.problem)
            out += [(sums, f"sums of up to {depth} of K") for sums in self.partial_sums]
        return out

    @property
    def shared_map(self) -> list[str]:
        x, y = self.x, self.y
        return [
            f"{self.config.stages} stages of {self.stage_bytes} bytes: {x.name.upper()} at 0 ({x.span}-byte swizzle),"
            f" {y.name.upper()} at {y.base} ({y.span}-byte swizzle)"
        ]


@dataclass(frozen=True)
class Pipeline(Part):
    """The stages between the producer warp and the math warpgroups: their mbarriers, and the threads that arrive at
    these.

    The mbarriers are at ``base`` in shared memory: full[stages], empty[stages], one for sums of the cluster's other
    blocks, then those of the epilogue.
    """

    config: Config
    geometry: WgmmaGeometry
    a_from_registers: bool
    promotes: bool
    c_barriers: int  #: mbarriers of the epilogue, for each warpgroup
    ones_bytes: int  #: bytes before the mbarriers of the ones that sums of A are products with

    @property
    def stages(self) -> int:
        return self.config.stages

    @property
    def base(self) -> int:
        return self.ones + self.ones_bytes

    @property
    def ones(self) -> int:
        """The offset in shared memory of the ones that sums of A are products with."""
        return int(self.geometry.shared - self.geometry.pipeline.barrier_bytes)

    @property
    def shared_map(self) -> list[str]:
        ones = [f"{self.ones}: ones"] if self.ones_bytes else []
        return [*ones, f"{self.base}: mbarriers: full, empty, cluster sums, C"]

    @property
    def empty(self) -> int:
        """The number of bytes from the first mbarrier to empty[0]."""
        return 8 * self.stages

    last_stage = Last("stages")

    @property
    def barriers(self) -> list[tuple[int, int]]:
        """For each stage, the bytes from the first mbarrier to its full and to its empty mbarrier."""
        return [(8 * n, self.empty + 8 * n) for n in range(self.stages)]

    @property
    def group_text(self) -> str:
        """A text for the header: the threads that issue loads, or arrive, belong to a warp or to a warpgroup."""
        return "warp" if self.a_from_registers else "warpgroup"

    @property
    def producer_text(self) -> str:
        return "warpgroup" if self.setmaxnreg else "warp"

    last_multicast_cta = Last("multicast_ctas")

    @property
    def multicast_text(self) -> str:
        return "its row or column of the cluster" if self.multicast_2d else "the cluster"

    @property
    def dsmem(self) -> int:
        """The number of bytes from the first mbarrier to the mbarrier for the cluster's sums."""
        return 16 * self.stages

    @property
    def c(self) -> int:
        """The number of bytes from the first mbarrier to the first mbarrier of the epilogue."""
        return 16 * self.stages + 8

    @property
    def counts_dsmem(self) -> bool:
        """True if an mbarrier counts the bytes of sums from other blocks; else a cluster barrier follows."""
        return self.config.cluster_k > 1 and not self.config.dsmem_completion

    @property
    def others(self) -> list[tuple[int, int]]:
        """The (offset, arrival count) of each mbarrier besides those of the stages."""
        dsmem = [(self.dsmem, 1)] if self.counts_dsmem else []
        return dsmem + [(self.c + 8 * n, 1) for n in range(self.config.math_warpgroups * self.c_barriers)]

    @property
    def producer_warp(self) -> int:
        return 4 * self.config.math_warpgroups

    @property
    def first_barriers(self) -> list[tuple[int, int, int]]:
        """For each math warpgroup but the last: its number, the number of its named barrier, and the next warpgroup."""
        return [(wg, WARPGROUP_BARRIER + wg, wg + 1) for wg in range(self.config.math_warpgroups - 1)]

    @property
    def last_barrier(self) -> int:
        """The number of the last math warpgroup's named barrier."""
        return WARPGROUP_BARRIER + self.config.math_warpgroups - 1

    @property
    def setmaxnreg(self) -> tuple[int, int] | None:
        """The registers of a thread in the producer warpgroup, and in a math warpgroup. None: all threads have the same
        number."""
        g = self.geometry
        return (int(g.budget.producer), int(g.budget.math)) if g.budget.setmaxnreg else None

    @property
    def multicast_ctas(self) -> int:
        """The number of blocks of a cluster that load for each other."""
        return self.config.cluster_x * self.config.cluster_y

    @property
    def multicast_2d(self) -> bool:
        """True if the blocks of a cluster are not in one line."""
        return self.config.cluster_x > 1 and self.config.cluster_y > 1

    @property
    def clustered(self) -> bool:
        return self.multicast_ctas * self.config.cluster_k > 1

    @property
    def empty_arrivals(self) -> int:
        """The number of arrivals that free a stage: one per warpgroup (one per warp, if warps load X to registers) in
        each block that multicasts from or to this block."""
        c = self.config
        blocks = c.cluster_x + c.cluster_y - 1
        warps = WARPGROUP // WARP if self.a_from_registers else 1
        return (1 if c.pingpong else c.math_warpgroups) * blocks * warps

    @property
    def arriving_thread(self) -> str:
        """The register with the number of a thread that may arrive: thread i arrives at block i of the cluster."""
        return "%lane" if self.a_from_registers else "%wg_thread"

    @property
    def empty_scope(self) -> str:
        return "cluster" if self.multicast_ctas > 1 else "cta"

    @property
    def frees_last_stage(self) -> bool:
        """True if the stage of the last iteration must be freed after the K loop. With two-level sums, the loop frees
        it like the other stages."""
        return not self.promotes and (bool(self.config.persistent) or self.multicast_ctas > 1)
