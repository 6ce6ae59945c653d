"""The main loop of a skinny kernel: threads of the block, products of a step, loads of unaligned rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.registers import Tile
from ptxgen.codegen.vectorized import Last, Log2
from ptxgen.families.common.matrix_instructions import Instruction
from ptxgen.families.skinny.geometry import SkinnyGeometry
from ptxgen.families.skinny.layout import QUAD, ElementLoads, Elements, Fragments, Round, SkinnyOperand, rounds
from ptxgen.lowering.kernel_problem import KernelProblem


@dataclass(frozen=True)
class SkinnyMainloop(Part):
    """The main loop of skinny kernels. ``x``: the operand along the long side of C; ``y``: the other operand;
    ``instruction``: the mma.sync instruction, None: multiply-adds; ``rounding``: the instruction that rounds f32 to
    tf32."""

    problem: KernelProblem
    config: Config
    geometry: SkinnyGeometry
    arithmetic: Arithmetic
    x: SkinnyOperand
    y: SkinnyOperand
    dp4a: bool
    instruction: Instruction | None
    rounding: str

    # ---- slots

    @property
    def math(self) -> str:
        return "math/skinny_mma.mako" if self.instruction else "math/skinny_fma.mako"

    @property
    def lane_map(self) -> str:
        """The template file that maps lanes to rows and K."""
        return "addr/skinny_mma.mako" if self.instruction else "addr/skinny.mako"

    @property
    def thread_map(self) -> str:
        """The template file that sets the pointers of a thread."""
        return "addr/skinny_unaligned.mako" if self.x.unaligned else self.lane_map

    # ---- threads

    @property
    def lanes(self) -> int:
        """The number of lanes of a warp that split K."""
        return int(self.geometry.lanes)

    @property
    def depth(self) -> int:
        """The number of elements of K of a step."""
        return int(self.geometry.depth)

    @property
    def steps(self) -> int:
        """The number of steps of a K iteration."""
        return int(self.geometry.steps)

    @property
    def step_stride(self) -> int:
        """The number of elements of K from one step to the next."""
        return int(self.geometry.step_stride)

    @property
    def prefetches(self) -> bool:
        """True if X is loaded one iteration ahead."""
        return bool(self.config.fragment_prefetch)

    @property
    def warps_along(self) -> int:
        """The warps along the long side of C."""
        return int(self.geometry.along) // self.config.lanes_long

    log2_warps_along = Log2("warps_along")
    log2_across = Log2("lanes")
    log2_u = Log2("config.u")
    #: log2 of the bytes of an element
    log2_size = Log2("problem.element.bytes")
    log2_lanes_long = Log2("config.lanes_long")

    @property
    def shuffle_masks(self) -> list[int]:
        """The XOR masks of the shuffles that add the sums of lanes along K."""
        if self.instruction:
            return []
        unit = 1 if self.x.kmajor else self.config.lanes_long
        return [unit << n for n in range(self.log2_across)]

    @property
    def first_y(self) -> str:
        """The register with the first row (column) of Y that this thread loads."""
        if self.instruction:
            return "%frag_row"
        return self.first_short

    # ---- accumulators

    @property
    def ms(self) -> int:
        """The number of rows of C that a thread holds."""
        return self.config.ms

    @property
    def ns(self) -> int:
        """The number of columns of C that a thread holds."""
        return self.config.ns

    @cached_property
    def acc(self) -> Tile:
        i = self.instruction
        if i:
            return Tile("acc", i.sum, (self.x.count // 2, self.y.count, i.sums))
        return Tile("acc", self._element_type, (self.x.count, self.y.count))

    def sum_at(self, i: int, j: int) -> str:
        """The register with the sum of row ``i`` and column ``j`` of a thread's tile."""
        i, j = (j, i) if self.config.long_n else (i, j)
        return self.fragments.sum_at(i, j) if self.instruction else self.acc[i, j]

    # ---- products by mma.sync

    @cached_property
    def fragments(self) -> Fragments:
        assert self.instruction is not None
        return Fragments(self.x, self.y, self.instruction, self.acc)

    # ---- products by multiply-adds

    @property
    def _element_type(self) -> str:
        return "s32" if self.problem.accumulator.integer else self.arithmetic.type

    @property
    def acc_zero(self) -> str:
        return "0" if self._element_type == "s32" else self.arithmetic.zero

    @property
    def fma_op(self) -> str:
        """The multiply-add instruction for accumulators."""
        return "mad.lo.s32" if self._element_type == "s32" else self.arithmetic.fma

    @property
    def add_op(self) -> str:
        """The addition instruction for accumulators."""
        return "add.s32" if self._element_type == "s32" else self.arithmetic.add

    @property
    def _depths(self) -> tuple[int, int]:
        """Elements of K that X, and that Y, has converted in registers at once."""
        if not self.x.kmajor:
            return 1, self.depth // (QUAD if self.dp4a else 1) if self.y.kmajor else 1
        packed = 1 if self.dp4a else max(self.x.packed, self.y.packed if self.y.kmajor else 1)
        return packed, packed

    @cached_property
    def elements_x(self) -> Elements:
        return Elements(self.x, self._element_type, (self.x.count, self._depths[0]))

    @cached_property
    def elements_y(self) -> Elements:
        return Elements(self.y, self._element_type, (self.y.count, self._depths[1]))

    def rounds(self, step: int) -> list[Round]:
        """The products of a step, in rounds."""
        return rounds(self.elements_x, self.elements_y, self.acc, step)

    # ---- unaligned rows

    @property
    def tail_vectors(self) -> int:
        """The most vectors of a row after its whole vectors."""
        return 2 if self.x.split_vectors else 1

    @property
    def tail_reserve(self) -> int:
        """The most elements after the last whole vector that the second chunk of this vector contains."""
        return self.x.vec if self.x.split_vectors else 0

    @property
    def k_tail_elements(self) -> int:
        """The number of elements at the end of each row that the K loop must not read."""
        return 2 * self.x.vec if self.x.split_vectors else self.x.vec - 1

    @cached_property
    def element_loads(self) -> tuple[tuple[SkinnyOperand, list[ElementLoads]], ...]:
        """The single loads of elements that no whole vector covers, by operand."""
        words = self.fragments.word_x if self.x.split_vectors else None
        return (self.x, self.x.element_loads(words)), (self.y, self.y.element_loads())

    last_lane = Last("lanes")
    last_lane_long = Last("config.lanes_long")
    last_warp_along = Last("warps_along")

    @property
    def first_long(self) -> str:
        """The register with the first row (column) of X of this thread."""
        return "%col" if self.config.long_n else "%row"

    @property
    def first_short(self) -> str:
        return "%row" if self.config.long_n else "%col"

    @property
    def iteration_elements(self) -> int:
        """The number of elements of K from one K iteration of a warp to the next."""
        return self.step_stride * self.steps

    @property
    def tail_elements(self) -> int:
        """The number of threads along K that multiply elements after the whole vectors."""
        return self.tail_vectors * self.depth

    @cached_property
    def row_sums(self) -> list[list[str]]:
        """For each row of a thread's tile, the registers of its sums."""
        return [[self.sum_at(i, j) for j in range(self.ns)] for i in range(self.ms)]

    @property
    def prefetched_steps(self) -> range:
        """The steps whose X is loaded one iteration ahead."""
        return range(self.steps if self.prefetches else 0)

    @property
    def loaded_steps(self) -> range:
        """The steps whose X is loaded at the start of their iteration."""
        return range(0 if self.prefetches else self.steps)

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        sums = "accumulators: along the long side, along the short one" + (", of a lane" if self.instruction else "")
        return [
            (self.acc, sums),
            (self.x.raw, f"loads of {self.x.upper}: step, load, word"),
            (self.y.raw, f"loads of {self.y.upper}, one step"),
        ]
