"""Preparations: kernels that run once for constant operands, as a sparse matrix, and make arrays for many launches."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ptxgen.codegen.source import Step
from ptxgen.lowering.kernel_problem import KernelProblem

SIZES = "sizes"  #: the array of 32-bit words that steps write sizes to, in the order of ``Stage.sizes``


@dataclass(frozen=True)
class Stage:
    """Steps of a preparation that run one after the other.

    ``arrays``: name -> bytes of each array that is allocated before the steps run; ``scratch``: the same of arrays that
    no launch reads; ``sizes``: name -> upper limit of each number that the steps write to the array ``sizes``. The host
    reads the numbers after the steps.
    """

    steps: tuple[Step, ...]
    arrays: Mapping[str, int] = field(default_factory=dict)
    scratch: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PreparationCost:
    """What a preparation does. ``launches``: of kernels and memsets; ``allocations``, one for each stage with arrays;
    ``reads``: of sizes by the host; ``bytes``: that its steps move, about."""

    launches: int
    allocations: int
    reads: int
    bytes: float


#: yields stages; the value of a ``yield`` is the tuple of the sizes that the steps wrote
Stages = Generator[Stage, tuple[int, ...], None]


class Scan:
    """Numbers of the block that adds up counts in order. In a round each thread takes ``scan_each`` adjacent counts of
    4 bytes, and each warp stores its sum to shared memory."""

    scan_threads: ClassVar[int] = 1024
    scan_each: ClassVar[int] = 4

    @property
    def scan_step(self) -> int:
        """Counts of a round."""
        return self.scan_threads * self.scan_each

    @property
    def scan_step_bytes(self) -> int:
        return 4 * self.scan_step

    @property
    def scan_offsets(self) -> range:
        return range(0, 4 * self.scan_each, 4)

    @property
    def scan_warps(self) -> int:
        return self.scan_threads // 32

    @property
    def scan_sum_bytes(self) -> int:
        return 4 * self.scan_warps

    @property
    def scan_sum_offsets(self) -> range:
        return range(0, self.scan_sum_bytes, 4)


@dataclass(frozen=True)
class Preparation:
    """How arrays are made from operands that many launches read. Equal preparations of the same operands make equal
    arrays, so one handle runs each of them once.

    ``kernel``: the template of its module; ``templates``: the folder that has it, None: the package's;
    ``reads_values``: True if the arrays depend on the values of the sparse matrix, and not on its pattern alone.
    """

    kernel: ClassVar[str]
    templates: ClassVar[Path | None] = None
    reads_values: ClassVar[bool] = False

    @property
    def description(self) -> list[str]:
        """What it makes, for the header of the module."""
        raise NotImplementedError

    def stages(self, p: KernelProblem) -> Stages:
        """The stages for the operands of ``p``. Arguments of steps name arrays of the problem, or arrays that this or
        an earlier preparation of the plan has made."""
        raise NotImplementedError

    def limits(self, p: KernelProblem) -> dict[str, int]:
        """The upper limits of all sizes."""
        return {name: n for stage in self._stages_of(p, {}) for name, n in stage.sizes.items()}

    def expected(self, p: KernelProblem) -> Mapping[str, int]:
        """The sizes, estimated; those that it does not name are at their limits."""
        return {}

    def read_bytes(self, p: KernelProblem) -> int:
        """The bytes that its steps read, about."""
        raise NotImplementedError

    def cost(self, p: KernelProblem) -> PreparationCost:
        """What it does for the operands of ``p``, if the sizes are as expected."""
        stages = list(self._stages_of(p, self.expected(p)))
        written = sum(n for x in stages for n in (*x.arrays.values(), *x.scratch.values()))
        return PreparationCost(
            sum(len(x.steps) for x in stages),
            sum(bool(x.arrays) for x in stages),
            sum(bool(x.sizes) for x in stages),
            self.read_bytes(p) + written,
        )

    def _stages_of(self, p: KernelProblem, sizes: Mapping[str, int]) -> Iterator[Stage]:
        """The stages if the steps write these sizes, the others at their limits."""
        stages = self.stages(p)
        with suppress(StopIteration):
            stage = next(stages)
            while True:
                yield stage
                stage = stages.send(tuple(min(sizes.get(name, n), n) for name, n in stage.sizes.items()))


@dataclass(frozen=True)
class PreparationModule:
    """What the template of a preparation reads as ``plan``."""

    preparation: Any
    target: str
    ptx_version: str
