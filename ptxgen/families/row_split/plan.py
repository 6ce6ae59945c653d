"""The plan of a row_split kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.parameters import KernelParameters, Parameters, given
from ptxgen.codegen.parts.part import Part
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.registers import Tile, width
from ptxgen.codegen.source import Launch, Step
from ptxgen.codegen.vectorized import ceil_div
from ptxgen.families.row_split.geometry import RowSplitGeometry
from ptxgen.lowering.kernel_problem import KernelProblem


@dataclass(frozen=True)
class RowSlabs:
    """A block has consecutive rows of C, and a slab of columns."""

    grid_text: str = "(blocks of rows, slabs of columns, 1)"


@dataclass(frozen=True)
class RowSplitParameters(KernelParameters):
    problem: KernelProblem
    arithmetic: Arithmetic

    @property
    def declared(self) -> list[Parameters]:
        return [
            given("u64", *self.problem.arrays),
            Parameters("u32", ("M", "N"), lambda p: (p.extents.m, p.extents.n)),
            Parameters("u32", ("ldb", "ldc"), lambda p: (p.operand(name).access.ld for name in "BC")),
            given(self.arithmetic.type, "alpha", "beta"),
        ]


@dataclass(frozen=True)
class RowLoop(Part):
    """The loop over the nonzeros of a row, ``depths[0]`` at once; the rest in ``depths[1:]``, in the same order.

    ``vec``: elements of a vector, ``vectors`` of a lane; ``size``: bytes of an element; ``access``, ``packed``: type
    and registers of a vector in memory; ``scalar``: the type of an element in memory.
    """

    kind: str
    lanes: int
    groups: int
    vec: int
    vectors: int
    size: int
    depths: tuple[int, ...]
    slab: int
    sums: Tile
    loaded: Tile
    wide: Tile
    half: Tile
    index: Tile
    value: Tile
    half_value: Tile
    from_b: Tile
    access: str
    packed: int
    scalar: str

    @classmethod
    def of(cls, p: KernelProblem, c: Config, g: RowSplitGeometry, arithmetic: str) -> RowLoop:
        half = p.element.bytes == 2
        pairs = half and c.vec_b > 1
        packed = c.vec_b // 2 if pairs else c.vec_b
        register = "b32" if pairs else "b16" if half else arithmetic
        depth = c.nonzeros_in_flight
        return cls(
            p.dtype,
            c.row_lanes,
            c.block_groups,
            c.vec_b,
            c.lane_vectors,
            p.element.bytes,
            tuple(depth >> i for i in range(depth.bit_length())),
            int(g.slab),
            Tile("sum", arithmetic, (c.lane_vectors, c.vec_b)),
            Tile("loaded", register, (depth, c.lane_vectors, packed)),
            Tile("wide", arithmetic, (c.vec_b,)),
            Tile("half", "b16", (2,)),
            Tile("index", "b32", (depth,)),
            Tile("value", arithmetic, (depth,)),
            Tile("half_value", "b16", (depth,)),
            Tile("ptr_b", "b64", (c.lane_vectors,)),
            width(packed, register),
            packed,
            "b16" if half else arithmetic,
        )

    @property
    def converts(self) -> bool:
        """True if elements are converted to the type of sums."""
        return self.size == 2

    @property
    def register_table(self) -> list[tuple[Tile, str]]:
        rows = [
            (self.sums, f"sums, {self.vectors} vectors of {self.vec}"),
            (self.loaded, f"loads in flight: {self.depths[0]} nonzeros, {self.vectors} vectors of {self.vec} elements"),
            (self.index, "column indices"),
            (self.value, "values of A"),
            (self.from_b, "first row of B at the columns of each vector"),
        ]
        converted = [
            (self.wide, "converted elements"),
            (self.half, "elements to convert"),
            (self.half_value, "values to convert"),
        ]
        return [*rows, *(converted if self.converts else [])]


class RowSplitPlan(Plan):
    kernel = "kernel/row_split.mako"
    mainloop: RowLoop
    parameter_meanings: Mapping[str, str] = {
        "indptr": "address of the row pointers",
        "indices": "address of the column indices",
        "values": "address of the nonzeros",
    }

    def _compose(self) -> None:
        assert isinstance(self.geometry, RowSplitGeometry)
        self.scheduler = RowSlabs()
        self.parameters = RowSplitParameters(self.problem, self.arithmetic)
        self.mainloop = RowLoop.of(self.problem, self.config, self.geometry, self.arithmetic.type)

    @property
    def accesses(self) -> str:
        return f"accesses of {self.config.vec_b} elements of B and C"

    @property
    def preconditions(self) -> list[str]:
        size = self.config.vec_b * self.problem.element.bytes
        return [
            f"addresses, leading dimensions and lengths of rows of B and C in multiples of {size} bytes",
            "row pointers and column indices of 32 bits: pointers that do not decrease, columns from 0 to K - 1",
        ]

    @property
    def block_tile(self) -> str:
        return f"{self.mainloop.groups} x {self.mainloop.slab}"

    def _launch(self, problem: KernelProblem) -> Launch:
        if problem.results == 0:
            return Launch(())
        grid = (ceil_div(problem.extents.m, self.mainloop.groups), ceil_div(problem.extents.n, self.mainloop.slab), 1)
        return Launch((Step(self.entry, grid, (self.threads, 1, 1), 0, self.parameters.rows.arguments(problem)),))
