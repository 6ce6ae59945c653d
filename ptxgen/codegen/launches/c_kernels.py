"""The reduction of slices of K in global memory: its workspace, and the auxiliary kernels over C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ptxgen.codegen.launches.launched import Launched
from ptxgen.codegen.parts.arithmetic import Arithmetic
from ptxgen.codegen.parts.batch import Batch
from ptxgen.codegen.parts.c_access import CAccess
from ptxgen.codegen.parts.parameters import (
    ParameterList,
    Parameters,
    given,
    on_one_line,
    other_addresses,
    scalar_parameters,
    sink_parameters,
)
from ptxgen.codegen.parts.part import Allocator, Part, Reduction
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import log2
from ptxgen.cuda_abi import GRID_LIMIT
from ptxgen.lowering.kernel_problem import KernelProblem

AUX_KERNEL_THREADS = 256  #: threads per block of auxiliary kernels


class Slicing(Protocol):
    """The numbers of a tile scheduler that the reduction of slices depends on."""

    def slices(self, p: KernelProblem) -> int:
        """The number of slices of K that store partial sums."""

    def tiles(self, p: KernelProblem) -> tuple[int, int, int]:
        """Tiles of one batch item along both sides, and their product."""


@dataclass(frozen=True)
class CKernels(Part):
    """The auxiliary kernel that scales C by beta before the main kernel, or the one that adds partial sums after the
    main kernel, if either is needed. ``entry``: the name of the main kernel."""

    entry: str
    reduction: Reduction
    arithmetic: Arithmetic
    batch: Batch
    c: CAccess
    scheduler: Slicing

    THREADS = AUX_KERNEL_THREADS
    template = "epilogue/splitk_kernels.mako"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the auxiliary kernels: ``scale``, ``reduce`` or none."""
        if self.reduction.prescales_c:
            return ("scale",)
        return ("reduce",) if self.reduction.stores_partials else ()

    def claim(self, p: KernelProblem, items: int, workspace: Allocator) -> None:
        if self.reduction.stores_partials:
            size = self.scheduler.slices(p) * items * p.m * p.n * self.arithmetic.bytes
            workspace.claim(size, "partial sums [slice][item][M][N]")
        if self.reduction.uses_flag:
            workspace.claim(4 * self.scheduler.tiles(p)[2] * items, "flags [item][tile]", zeroed=True)

    @property
    def parameter_list(self) -> ParameterList:
        """The parameters of an auxiliary kernel."""
        return ParameterList(self._parameters)

    @property
    def _parameters(self) -> list[Parameters]:
        shared = [*other_addresses(self.c.problem), *self.batch.parameters, *self.c.addressing.parameters]
        sizes = Parameters("u32", ("M", "N", "ldc"), lambda x: (x.p.m, x.p.n, x.p.operand("C").access.ld))
        k = [Parameters("u32", ("K",), lambda x: (x.p.k,))] if self.c.problem.sink.reads_k else []
        shift = Parameters("u32", ("shift",), lambda x: (self._shift(x.p),))
        slices = Parameters("u32", ("slices",), lambda x: (self.scheduler.slices(x.p),), same_line=True)
        return [
            given("u64", "C", "W"),
            *on_one_line([*shared, sizes, *k, shift]),
            *scalar_parameters(self.c.problem.sink.scalars_after_sums),
            *sink_parameters(self.c.problem),
            *([slices] if self.reduction.stores_partials else []),
        ]

    def steps(self, main: Step, launched: Launched) -> tuple[Step, ...]:
        """The launch of the main kernel, and of the auxiliary kernel before or after the main kernel."""
        if self.reduction.prescales_c:
            return self._step("scale", launched), main
        return (main, self._step("reduce", launched)) if self.reduction.stores_partials else (main,)

    def _shift(self, p: KernelProblem) -> int:
        """log2 of the number of threads of a block along a row of C."""
        vectors: int = -(-p.n // self.c.vec)
        return min(log2(self.THREADS), (vectors - 1).bit_length())

    def _step(self, name: str, launched: Launched) -> Step:
        """The launch of an auxiliary kernel over C; grid.z counts batch items."""
        p, shift = launched.p, self._shift(launched.p)
        vectors, rows = -(-p.n // self.c.vec), self.THREADS >> shift
        grid = (-(-vectors // (1 << shift)), min(-(-p.m // rows), GRID_LIMIT), launched.run.items)
        return Step(f"{self.entry}_{name}", grid, (self.THREADS, 1, 1), 0, self.parameter_list.arguments(launched))
