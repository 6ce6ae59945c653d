"""A kernel family that is registered from outside the package: one thread per element of C, without tiles of M, N and K.

Its grid has one axis, of blocks of consecutive elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ptxgen.codegen.config.axes import Axis, searched
from ptxgen.codegen.config.config import Columns, Config
from ptxgen.codegen.config.rule import Rule
from ptxgen.codegen.geometry import Geometry
from ptxgen.codegen.parts.parameters import KernelParameters, Parameters, addresses, given
from ptxgen.codegen.plan import Plan
from ptxgen.codegen.source import Launch, Step
from ptxgen.families import registry
from ptxgen.families.common import perf_blocks
from ptxgen.families.common.candidates import CandidateSpace, Ints, single_axis_changes, violations
from ptxgen.families.registry import Family
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.device import Device

AXES = (Axis("threads", 64, "threads of a block", (32, 64, 128), least=32, most=1024),)

RULES = (
    Rule(
        "toy_types",
        lambda p, c, g, d: p.dtype == p.out == p.compute == "f32" and p.batch == 1 and not p.sink.epilogue,
        "family toy multiplies single products in f32 without an epilogue, not {p.dtype}",
    ),
    Rule("toy_warps", lambda p, c, g, d: c.threads % 32 == 0, "threads={c.threads} must be a multiple of a warp, 32"),
)


def geometry(p: KernelProblem, c: Any) -> Geometry:
    none = c.threads * 0
    return Geometry(threads=c.threads, shared=none, registers=none + 24, blocks=-(-p.m * p.n // c.threads))


class Model:
    """The performance model: the more threads in a block, the faster; faster than the other families."""

    @staticmethod
    def cell(p: KernelProblem, c: Columns, g: Geometry, d: Device) -> None:
        """Times do not depend on extents."""

    @staticmethod
    def work(p: KernelProblem, c: Columns, g: Geometry, d: Device) -> perf_blocks.Work:
        return perf_blocks.Work.of(len(c), resident=1, busy=1 / c.threads)

    @staticmethod
    def microseconds(p: KernelProblem, d: Device, w: Any, rows: Any, x: Any, cell: Any) -> Any:
        return np.float32(0.01) * (1 + w.busy[rows])


class Candidates(CandidateSpace):
    name = "toy"
    axes, class_axes = searched(AXES), {}
    tile = ("threads",)
    fixed = ("operand_addressing", "toy_types")
    tile_rules = ("axis", "range", "threads", "toy_warps")
    extent_rules = ("range",)

    def tiles(self, p: KernelProblem) -> Columns:
        return Columns.product(dict(self.axes)).replace(family=self.code)

    shapes = tiles

    def variants(self, p: KernelProblem, d: Device) -> list[list[dict[str, int]]]:
        return []

    def cells(self, p: KernelProblem, d: Device, tiles: Columns) -> tuple[Columns, Ints]:
        return tiles, violations(self, p, tiles, d, self.extent_rules)

    def canonical(self, p: KernelProblem, c: Columns) -> Columns:
        return c

    def changes(self, p: KernelProblem, d: Device, config: Config) -> Iterator[dict[str, int]]:
        yield from single_axis_changes(self)

    def with_dependent_axes(self, p: KernelProblem, config: Config, changes: dict[str, int]) -> list[Config]:
        return [config.replace(**changes)]


@dataclass(frozen=True)
class ElementScheduler:
    """A block computes ``threads`` consecutive elements of C."""

    grid_text: str = "(blocks of elements of C, 1, 1)"


@dataclass(frozen=True)
class ToyParameters(KernelParameters):
    """The addresses of all arrays, extents, leading dimensions, alpha and beta."""

    problem: KernelProblem

    @property
    def declared(self) -> list[Parameters]:
        return [
            *addresses(self.problem),
            Parameters("u32", ("M", "N", "K"), lambda p: (p.m, p.n, p.k)),
            Parameters("u32", ("lda", "ldb", "ldc"), lambda p: (p.operand(name).access.ld for name in "ABC")),
            given("f32", "alpha", "beta"),
        ]


class ToyPlan(Plan):
    kernel = "one_per_element.mako"
    templates = Path(__file__).parent
    accesses = "accesses of single elements"
    block_tile = "one element per thread"

    def _compose(self) -> None:
        self.scheduler = ElementScheduler()
        self.parameters = ToyParameters(self.problem)
        self.a_kmajor, self.b_kmajor = self.problem.layout[0] == "N", self.problem.layout[1] == "T"

    def _launch(self, problem: KernelProblem) -> Launch:
        if problem.results == 0:
            return Launch(())
        grid, arguments = (-(-problem.m * problem.n // self.threads), 1, 1), self.parameters.rows.arguments(problem)
        return Launch((Step(self.entry, grid, (self.threads, 1, 1), 0, arguments),))


FAMILY = Family(
    name="toy",
    axes=AXES,
    geometry=geometry,
    rules=RULES,
    candidates=Candidates(),
    model=Model(),
    plan=lambda p, c: ToyPlan,
    provides=registry.STORES_PRODUCTS | {"strided"},
)


def register() -> None:
    registry.register(FAMILY)


def unregister() -> None:
    registry.unregister("toy")
