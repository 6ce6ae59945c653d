"""The main loop of an FMA kernel: accumulators, order of multiply-adds, lanes of a warp."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ptxgen.codegen.config.config import Config, packs
from ptxgen.codegen.parts.algebra import ExpressionReducer
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.multistage import MultistageMainloop, TilePart
from ptxgen.codegen.parts.operand_sums import GUARD, OperandSums, RowSums
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.registers import Tile, load_type
from ptxgen.codegen.vectorized import Log2, Mask
from ptxgen.expr.instructions import register_class
from ptxgen.expr.node import variable, variables
from ptxgen.expr.value_types import PAIRS
from ptxgen.families.common.fma.geometry import FmaGeometry
from ptxgen.families.common.fma.layout import OperandLayout, lane_bits
from ptxgen.families.common.issue_order import products
from ptxgen.lowering.algebra import Vector
from ptxgen.lowering.complex_product import ComplexProduct
from ptxgen.problem.dtypes import dtype

#: the template of the schedule
KERNEL = "kernel/multistage.mako"


class ThreadTile:
    """A thread's tile of C: accumulators, order of multiply-adds, lanes of the warp. ``packed``: True if an accumulator
    register holds 16-bit sums of two columns."""

    config: Config
    arithmetic: Arithmetic
    packed: bool
    a: Any
    b: Any

    @property
    def math(self) -> str:
        return "math/hfma2.mako" if self.packed else "math/fma.mako"

    # ---- accumulators

    @property
    def ms(self) -> int:
        """The number of rows of C that a thread holds."""
        return self.config.ms

    @property
    def ns(self) -> int:
        """The number of columns of C that a thread holds."""
        return self.config.ns

    @property
    def ks(self) -> int:
        """The number of accumulator sets."""
        return self.config.ks

    def set_of(self, k: int) -> int:
        """The number of the accumulator set to which step ``k`` adds."""
        return k % self.ks

    @cached_property
    def acc(self) -> Tile:
        if self.packed:
            return Tile("acc", "b32", (self.ks, self.ms, self.ns // 2))
        return Tile("acc", self.arithmetic.type, (self.ks, self.ms, self.ns * self.arithmetic.parts))

    @property
    def joined(self) -> list[str]:
        return self.acc.all[self.acc.size // self.ks :]

    @cached_property
    def pairs(self) -> Tile:
        """The registers that hold an element of A twice, as a pair."""
        return Tile("dup_a", "b32", (self.ms,))

    @cached_property
    def products(self) -> list[tuple[int, int]]:
        """For each multiply-add of a step, in order: its row, and its column or pair of columns."""
        return products(self.ms, self.ns // 2 if self.packed else self.ns, self.config.mma_order)

    def products_of(self, part: TilePart) -> list[tuple[int, int]]:
        """The entries of ``products`` in a part of the tile."""
        if (part.a, part.b) == (1, 1):
            return self.products
        columns = self.ns // 2 if self.packed else self.ns
        return products(self.ms // part.a, columns // part.b, self.config.mma_order)

    def fmas(self, k: int, part: TilePart) -> list[tuple[str, str, str]]:
        """The registers (sum, element of A, element of B) of each multiply-add of step ``k`` in a part of the tile."""
        s, acc = self.set_of(k), self.acc
        rows = [self.a.element(i, k) for i in range(self.ms)]
        columns = [self.b.element(j, k) for j in range(self.ns)]
        return [(acc[s, i, j], rows[i], columns[j]) for i, j in self.products_of(part)]

    def fma_lines(self, k: int, part: TilePart) -> list[str]:
        """The instructions of the multiply-adds of step ``k`` of a part of the tile."""
        ptx_type = self.arithmetic.type
        negations = [f"neg.{ptx_type} {to}, {r};" for to, r in self.negations(k, part)]
        return negations + [f"fma.rn.{ptx_type} {sum}, {a}, {b}, {sum};" for sum, a, b in self.fmas(k, part)]

    def negations(self, k: int, part: TilePart) -> list[tuple[str, str]]:
        """The pairs (destination, source) of the negations that the multiply-adds of step ``k`` need."""
        return []

    def pair_fmas(self, k: int, part: TilePart) -> list[tuple[str, str, str]]:
        """The registers (sums, pair of A, pair of B) of each multiply-add of step ``k`` on pairs of columns."""
        s, b = self.set_of(k), self.b.buffer(k)
        return [(self.acc[s, i, j], self.pairs[i], self.b.fragment[b, j]) for i, j in self.products_of(part)]

    def pair_selections(self, k: int, part: TilePart) -> list[tuple[str, str, str]]:
        """For each element of A: (destination pair, source word, prmt selector) of its duplication into a pair."""
        a = self.a.buffer(k)
        return [
            (self.pairs[i], self.a.fragment[a, i // 2], "0x3232" if i % 2 else "0x1010")
            for i in range(self.ms // part.a)
        ]

    @cached_property
    def row_sums(self) -> list[list[str]]:
        """For each row of the thread, its registers of sums, or of pairs of sums, in the first set."""
        return [[self.acc[0, i, j] for j in range(self.acc.shape[2])] for i in range(self.ms)]

    @cached_property
    def further_row_sums(self) -> list[list[tuple[str, str]]]:
        """For each further set and row, the register pairs (sum of the first set, sum of this set)."""
        return [
            [(self.acc[0, i, j], self.acc[s, i, j]) for s in range(1, self.ks) for j in range(self.acc.shape[2])]
            for i in range(self.ms)
        ]

    # ---- lanes

    lane_n_mask = Mask("warp_n")

    @property
    def half_lane_n_mask(self) -> int:
        """The mask of the lane bits that number half of the lanes along N."""
        return (1 << self.bits_n - 1) - 1

    @property
    def log2_half_lanes_n(self) -> int:
        return self.bits_n - 1

    warps_across_mask = Mask("warps_across")

    @property
    def warp_rows(self) -> int:
        """The number of rows of the tile of a warp."""
        return self.warp_m * self.ms

    @property
    def row_distances(self) -> tuple[int, ...]:
        """The distances, by XOR, of the lanes of a warp that have the same columns."""
        bits = [1, *range(2 + self.log2_half_lanes_n, 5)] if self.interleaved else range(self.bits_n, 5)
        return tuple(1 << bit for bit in bits)

    @property
    def warp_columns(self) -> int:
        return self.warp_n * self.ns

    @property
    def bits_n(self) -> int:
        """log2 of the lanes of a warp along N."""
        return lane_bits(self.warp_m)[1]

    @property
    def warp_m(self) -> int:
        """The number of lanes of a warp along M."""
        return self.config.lanes_m

    @property
    def warp_n(self) -> int:
        """The number of lanes of a warp along N."""
        return 32 // self.config.lanes_m

    @property
    def warps_across(self) -> int:
        """The number of warps along N."""
        return self.config.nl // (self.warp_n * self.ns)

    log2_warps_across = Log2("warps_across")

    @property
    def interleaved(self) -> bool:
        """True if the bits of a lane number alternate between N and M."""
        return bool(self.config.lane_interleave) and all(bits > 0 for bits in lane_bits(self.warp_m))


@dataclass(frozen=True)
class FmaMainloop(ThreadTile, MultistageMainloop):
    """The main loop of scalar multiply-adds in f32 or f64, or of packed multiply-adds on pairs of f16."""

    a: OperandLayout
    b: OperandLayout
    arithmetic: Arithmetic

    fragment_addr = "addr/thread_fragments.mako"

    @property
    def operands(self) -> tuple[OperandLayout, OperandLayout]:
        return self.a, self.b

    @property
    def packed(self) -> bool:  # type: ignore[override]
        return self.b.packed

    def operand_sums(self) -> OperandSums:
        """The sums of rows of A: the threads with the first columns add their elements."""
        ptx_type, rows = self.arithmetic.type, range(self.ms)
        sums = Tile("a_sum", ptx_type, (self.ms,))
        additions = [
            [f"{GUARD}add.rn.{ptx_type} {sums[i]}, {sums[i]}, {self.a.element(i, k)};" for i in rows]
            for k in range(self.steps)
        ]
        places = [(self.a.offset(i), sums[i]) for i in rows]
        return RowSums(sums, additions, places, self.b.contiguous, 0, self.arithmetic.zero)

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        out = [(self.acc, "accumulators: set, row, column" + (" (pairs)" if self.packed else ""))]
        for x in self.operands:
            out.append((x.fragment, f"fragment of {x.name.upper()}"))
            out.append((x.fragment_ptrs, f"shared-memory addresses of this thread's fragments of {x.name.upper()}"))
            if not x.asynchronous:
                out.append((x.staging, f"{x.name.upper()} between global and shared memory"))
        return out


@dataclass(frozen=True)
class ComplexMainloop(FmaMainloop):
    """The main loop of complex multiply-adds. Each element of A, B and the sums has a register for its real part and
    one for its imaginary part."""

    algebra: ComplexProduct

    @cached_property
    def negated(self) -> Tile:
        """The negated parts of elements of A; ptxas turns these negations into operand signs."""
        return Tile("negated", self.arithmetic.type, (len(self.algebra.negated), self.ms))

    def negations(self, k: int, part: TilePart) -> list[tuple[str, str]]:
        rows = range(self.ms // part.a)
        return [(self.negated[n, i], self.a.element(i, k, x)) for n, x in enumerate(self.algebra.negated) for i in rows]

    def fmas(self, k: int, part: TilePart) -> list[tuple[str, str, str]]:
        s, steps = self.set_of(k), []
        for each in self.algebra.products:
            for i, j in self.products_of(part):
                a = self.a.element(i, k, each.a)
                if each.negated:
                    a = self.negated[self.algebra.negated.index(each.a), i]
                steps.append((self.acc[s, i, 2 * j + each.sum], a, self.b.element(j, k, each.b)))
        return steps

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        return [*super().register_table, (self.negated, "negated parts of elements of A")]


@dataclass(frozen=True)
class StepArray:
    """An array that each step reads besides A and B. ``ms``, ``ns``: rows and columns of the thread; ``steps``: steps
    of an iteration. Elements that do not change along K are loaded before the loop, the others in each step."""

    vector: Vector
    ms: int
    ns: int
    steps: int

    @property
    def name(self) -> str:
        return self.vector.name

    @property
    def axes(self) -> str:
        """The one or two axes of the array in the order of storage."""
        return self.vector.axis

    @property
    def along_k(self) -> bool:
        return "k" in self.axes

    @property
    def bytes(self) -> int:
        return dtype(self.vector.element.type).bytes

    @property
    def access(self) -> str:
        """The PTX type of a load."""
        return load_type(self.vector.element.type)

    @property
    def offsets(self) -> range:
        """The offsets of the elements along K, including those of the next iteration."""
        return range(0, (self.steps << 16) * self.bytes, self.bytes)

    @property
    def register_bits(self) -> int:
        return int(self.tile.ptx_type[1:])

    @property
    def rows(self) -> int:
        """The number of rows of the thread that have different elements."""
        return self.ms if "i" in self.axes else 1

    @property
    def columns(self) -> int:
        """The number of columns of the thread that have different elements."""
        return self.ns if "j" in self.axes else 1

    @cached_property
    def tile(self) -> Tile:
        """The registers of the array. An array along K alone has registers for each step of an iteration."""
        count = self.steps if self.axes == "k" else self.rows * self.columns
        return Tile(f"{self.name}_", register_class(self.vector.element.type), (count,))

    def register(self, k: int, i: int, j: int) -> str:
        """The register of the element of step ``k``, row ``i`` and column ``j``."""
        if self.axes == "k":
            return self.tile[k]
        return self.tile[(i if "i" in self.axes else 0) * self.columns + (j if "j" in self.axes else 0)]

    @property
    def elements(self) -> list[tuple[str, list[str]]]:
        """For each element of a step: its register and the registers of its indices, the outer one first."""
        pairs = itertools.product(range(self.rows), range(self.columns))
        return [(self.register(0, i, j), [_INDEX[axis].format(i=i, j=j) for axis in self.axes]) for i, j in pairs]


#: axis -> register with the index of an element
_INDEX = {"i": "%step_i{i}", "j": "%step_j{j}", "k": "%step_k"}


@dataclass(frozen=True)
class StepMainloop(FmaMainloop):
    """The main loop that reduces an expression over K by scalar instructions, or by instructions on pairs of columns.
    ``reducer``: the algebra of the accumulators; the algebra of the plan has the type to which results are extended."""

    reducer: ExpressionReducer

    math = "math/step.mako"

    @property
    def peels_remainder(self) -> bool:  # type: ignore[override]
        """True if the last iteration must skip steps beyond K: zeros would change the result, or arrays along K end."""
        return self.checks_bounds and (self.reducer.guarded or any(x.along_k for x in self.arrays))

    @cached_property
    def arrays(self) -> list[StepArray]:
        """The arrays besides A and B that steps read."""
        return [StepArray(v, self.ms, self.ns, self.steps) for v in self.reducer.algebra.vectors]

    @property
    def fixed_arrays(self) -> list[StepArray]:
        """The arrays of ``arrays`` that do not change along K."""
        return [x for x in self.arrays if not x.along_k]

    @property
    def k_vectors(self) -> list[StepArray]:
        """Those of ``arrays`` whose only axis is K."""
        return [x for x in self.arrays if x.axes == "k"]

    @property
    def k_matrices(self) -> list[StepArray]:
        """The arrays of ``arrays`` along K and along M or N."""
        return [x for x in self.arrays if x.along_k and len(x.axes) > 1]

    @cached_property
    def indices(self) -> list[str]:
        """Those of the indices i, j, k that steps, or the addresses of their arrays, use."""
        read = {
            *variables(*self.reducer.algebra.next),
            *(axis for x in self.arrays if x.axes != "k" for axis in x.axes),
        }
        return [axis for axis in "ijk" if axis in read]

    @property
    def rows(self) -> list[int]:
        """The rows of the thread, counted from its first row."""
        return [self.a.offset(i) for i in range(self.ms)]

    @property
    def columns(self) -> list[int]:
        """The columns of the thread, counted from its first column."""
        return [self.b.offset(j) for j in range(self.ns)]

    @cached_property
    def best(self) -> Tile | None:
        """The registers with the best value of each accumulator of argmin or argmax; None for other reductions."""
        state = self.reducer.algebra.state
        return None if state is None else Tile("best", register_class(state.type), self.acc.shape)

    def accumulator(self, s: int, i: int, j: int) -> list[str]:
        """The registers of the accumulator of set ``s`` for element (``i``, ``j``) of the thread's tile."""
        return [tile[s, i, j] for tile in (self.acc, self.best) if tile is not None]

    def join_lines(self, s: int, i: int, j: int) -> list[str]:
        """The instructions that join set ``s`` with the first one."""
        return self.reducer.join_components(self.accumulator(0, i, j), self.accumulator(s, i, j))

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        best = [] if self.best is None else [(self.best, "values at the positions in accumulators")]
        return [*super().register_table, *best]

    @cached_property
    def _step_pattern(self) -> str:
        """The instructions of a step as a format string; ``step_lines`` fills in the registers."""
        algebra = self.reducer.algebra
        indices = [variable(axis, "s32") for axis in self.indices]
        leaves = [algebra.a, algebra.b, *(x.vector.element for x in self.arrays), *indices]
        return self.reducer.step_pattern(leaves)

    def step_lines(self, k: int, part: TilePart) -> list[str]:
        """The instructions of step ``k`` for a part of the thread's tile."""
        pattern, s, arrays = self._step_pattern, self.set_of(k), self.arrays
        rows = [self.a.element(i, k) for i in range(self.ms)]
        columns = [self.b.element(j, k) for j in range(self.acc.shape[2])]
        indices = [_INDEX[axis] for axis in self.indices]
        lines = []
        for i, j in self.products_of(part):
            held = (x.register(k, i, j) for x in arrays)
            at = (index.format(i=i, j=j) for index in indices)
            lines += pattern.format(*self.accumulator(s, i, j), rows[i], columns[j], *held, *at).split("\n")
        return lines


def mainloop(plan: Plan, geometry: FmaGeometry) -> FmaMainloop:
    """The FMA main loop of a plan, with its operands. The packing of the plan must be set before."""
    p, c, g = plan.packing.product_problem(plan.problem), plan.config, geometry
    steps, ahead = int(g.uk), bool(c.fragment_prefetch)
    common = (plan.threads, c.u, steps, ahead)
    x, y = p.operands
    packed = [bool(packs(c, name)) for name in "ab"]
    reducer, held = plan.reducer, (p.held_type("A"), p.held_type("B"))
    if isinstance(reducer, ExpressionReducer) and c.column_pairs:
        reducer, held = reducer.paired, (PAIRS[x.dtype], y.dtype)
    a = OperandLayout(g.a, *common, held[0], x.element, 0, packed[0], x.access.mode, x.access.ld)
    b = OperandLayout(g.b, *common, held[1], y.element, a.size, packed[1], y.access.mode, y.access.ld)
    if isinstance(reducer, ExpressionReducer):
        return StepMainloop(c, g, steps, a, b, plan.arithmetic, reducer)
    if isinstance(p.algebra, ComplexProduct):
        return ComplexMainloop(c, g, steps, a, b, plan.arithmetic, p.algebra)
    return FmaMainloop(c, g, steps, a, b, plan.arithmetic)
