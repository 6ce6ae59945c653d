"""The launches of a product: packing kernels, the main kernel, auxiliary kernels, kernels of the sink; and their
workspace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ptxgen.codegen.launches.c_kernels import CKernels
from ptxgen.codegen.launches.launched import BatchRange, Launched
from ptxgen.codegen.launches.packing import Packing
from ptxgen.codegen.launches.result_ranges import ResultRange, ranges_of
from ptxgen.codegen.launches.sink_kernels import ALIGNMENT, SinkKernels
from ptxgen.codegen.parts.parameters import KernelParameters
from ptxgen.codegen.parts.part import Allocator, Part
from ptxgen.codegen.source import Launch, Step
from ptxgen.codegen.vectorized import ceil_div
from ptxgen.lowering.kernel_problem import KernelProblem


class Grid(Protocol):
    """The interface of tile schedulers that determines the grid of the main kernel."""

    def gemms(self, p: KernelProblem) -> tuple[KernelProblem, ...]:
        """The GEMMs of a problem that have launches of their own."""

    def grid(self, p: KernelProblem, items: int) -> tuple[int, int, int]:
        """The grid of a launch of ``items`` batch items."""

    def batch_limit(self, p: KernelProblem) -> int:
        """The most batch items of one launch."""


@dataclass(frozen=True)
class GemmLauncher:
    """Makes the launches of a plan. ``entry``, ``threads``, ``shared``: name, block size and bytes of dynamic shared
    memory of the main kernel; ``parts``: the parts of the plan that claim workspace."""

    entry: str
    threads: int
    shared: int
    scheduler: Grid
    parameters: KernelParameters
    packing: Packing
    c_kernels: CKernels
    sink: SinkKernels
    parts: Sequence[Part]

    def launch(self, problem: KernelProblem) -> Launch:
        """The steps that compute ``problem``. A batch that exceeds the grid is split into several launches, and so are
        the results of a reduction whose partial results take much workspace. All launches use the same workspace, one
        after the other."""
        resets = tuple(Step("", (n, 1, 1), arguments=(("u64", name),)) for name, n in problem.sink.resets)
        if problem.results == 0:
            empty = Launched(problem, BatchRange(0, 0))
            return Launch((*resets, *self.sink.before(empty), *self.sink.after(empty)))
        parts: list[tuple[KernelProblem, ResultRange | None]] = list(self._ranges(problem))
        first = parts[0][0] if parts and not problem.mirrored else None
        launches = [
            self._launch_range(p, run, part, None if p is first else first).moved(
                part.offsets(problem) if part is not None else {}
            )
            for p, part in parts or [(p, None) for p in self.scheduler.gemms(problem)]
            for product in (self.packing.product_problem(p),)
            for run in BatchRange.split(product.batch, self.scheduler.batch_limit(product))
        ]
        steps = (*resets, *(step for each in launches for step in each.steps))
        sizes = [each.workspace for each in launches]
        sizes += [part.kept + self.sink.kept_bytes(part) for _, part in parts if part is not None]
        return Launch(steps, max(sizes), launches[0].zeroed)

    def _ranges(self, problem: KernelProblem) -> Iterator[tuple[KernelProblem, ResultRange]]:
        """The ranges of results that have launches of their own, each with its problem; none: one launch computes all
        results. Kept states are the last region of the workspace; the first range has the largest regions before it."""
        kept = 0
        for x in ranges_of(problem, lambda: self._claimed(problem, 1)[0].bytes):
            p = x.problem(problem)
            kept = kept or ceil_div(self._launch_range(p, BatchRange(0, 1), None).workspace, ALIGNMENT) * ALIGNMENT
            yield p, replace(x, kept=kept)

    def _claimed(self, problem: KernelProblem, items: int) -> tuple[Allocator, int]:
        """The workspace for partial results of ``items`` batch items, and the offset of the sink's part of it."""
        p, workspace = self.packing.product_problem(problem), Allocator()
        for part in self.parts:
            part.claim(p, items, workspace)
        return workspace, self.sink.allocate(p, workspace)

    def _launch_range(
        self,
        problem: KernelProblem,
        run: BatchRange,
        results: ResultRange | None,
        first: KernelProblem | None = None,
    ) -> Launch:
        """The steps that compute the batch items of ``run``. ``results``: those of the launch, None: all; ``first``:
        the problem of the first range of results, whose launches packed the operand that all ranges share."""
        p, (workspace, sink_offset) = self.packing.product_problem(problem), self._claimed(problem, run.items)
        packed: frozenset[str] = frozenset()
        if first is None or results is None:
            buffers = self.packing.allocate(problem, run, workspace)
        else:
            buffers = self.packing.allocate(first, run, self._claimed(first, run.items)[0])
            packed = frozenset("b" if results.axis == "i" else "a")
        product = Launched(p, run, buffers, sink_offset, self.sink.mirror_parts(p), results)
        grid, arguments = self.scheduler.grid(p, run.items), self.parameters.rows.arguments(product)
        main = Step(self.entry, grid, (self.threads, 1, 1), self.shared, arguments)
        packing = self.packing.steps(Launched(problem, run, buffers, packed=packed))
        product_steps = (*packing, *self.c_kernels.steps(main, product))
        clear = (Step("", (workspace.cleared, 1, 1), arguments=(("u64", "W"),)),) if workspace.cleared else ()
        steps = (*clear, *self.sink.before(product), *product_steps, *self.sink.after(product))
        return Launch(steps, workspace.bytes, workspace.zeroed)
