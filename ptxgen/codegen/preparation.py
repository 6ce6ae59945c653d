"""Preparations: kernels that run once for constant operands (a sparse matrix) and make arrays for many launches."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ptxgen.codegen.source import Step
from ptxgen.lowering.kernel_problem import KernelProblem

SIZES = "sizes"  #: the array of 32-bit words to which steps write sizes, in the order of ``Stage.sizes``


@dataclass(frozen=True)
class Stage:
    """Steps of a preparation that run one after the other.

    ``arrays``: name -> bytes of each prepared array, allocated before the steps run; ``scratch``: name -> bytes of each
    array that only the steps use; ``sizes``: name -> upper limit of each number that the steps write to the array
    ``sizes``. The host reads these numbers after the steps.
    """

    steps: tuple[Step, ...]
    arrays: Mapping[str, int] = field(default_factory=dict)
    scratch: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PreparationCost:
    """The work of a preparation, from which its time is predicted. ``launches``: the number of kernels and memsets;
    ``allocations``: the number of stages with arrays; ``reads``: the number of times the host reads sizes; ``bytes``:
    bytes that the steps move, approximately."""

    launches: int
    allocations: int
    reads: int
    bytes: float


#: a generator that yields stages, and receives from each ``yield`` the tuple of sizes that the steps wrote
Stages = Generator[Stage, tuple[int, ...], None]


class Scan:
    """Numbers of the block that computes a prefix sum of counts. In a round each thread adds ``scan_each`` adjacent
    counts of 4 bytes, and each warp stores its sum to shared memory."""

    scan_threads: ClassVar[int] = 1024
    scan_each: ClassVar[int] = 4

    @property
    def scan_step(self) -> int:
        """The number of counts of a round."""
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
    """The base class of preparations, which make arrays from operands that many launches read. Equal preparations of
    the same operands make equal arrays, so a handle runs each different preparation once.

    ``kernel``: the template of the module; ``templates``: the folder of the template; None: the package's;
    ``reads_values``: True if the arrays depend on the values of the sparse matrix, not only on its pattern.
    """

    kernel: ClassVar[str]
    templates: ClassVar[Path | None] = None
    reads_values: ClassVar[bool] = False

    @property
    def description(self) -> list[str]:
        """The lines of the module's header that say what the preparation makes."""
        raise NotImplementedError

    def stages(self, p: KernelProblem) -> Stages:
        """The stages for the operands of ``p``. Arguments of steps name arrays of the problem, or arrays that this or
        an earlier preparation of the plan has made."""
        raise NotImplementedError

    def limits(self, p: KernelProblem) -> dict[str, int]:
        """The upper limits of all sizes."""
        return {name: n for stage in self._stages_of(p, {}) for name, n in stage.sizes.items()}

    def expected(self, p: KernelProblem) -> Mapping[str, int]:
        """Estimates of sizes, by name. Sizes without an estimate count with their limits."""
        return {}

    def read_bytes(self, p: KernelProblem) -> int:
        """The bytes that the steps read, approximately."""
        raise NotImplementedError

    def cost(self, p: KernelProblem) -> PreparationCost:
        """The work of the preparation for the operands of ``p`` if the sizes are as ``expected``."""
        stages = list(self._stages_of(p, self.expected(p)))
        written = sum(n for x in stages for n in (*x.arrays.values(), *x.scratch.values()))
        return PreparationCost(
            sum(len(x.steps) for x in stages),
            sum(bool(x.arrays) for x in stages),
            sum(bool(x.sizes) for x in stages),
            self.read_bytes(p) + written,
        )

    def _stages_of(self, p: KernelProblem, sizes: Mapping[str, int]) -> Iterator[Stage]:
        """The stages for given ``sizes``; sizes that are not given have their limits."""
        stages = self.stages(p)
        with suppress(StopIteration):
            stage = next(stages)
            while True:
                yield stage
                stage = stages.send(tuple(min(sizes.get(name, n), n) for name, n in stage.sizes.items()))


@dataclass(frozen=True)
class PreparationModule:
    """The object that the template of a preparation reads as ``plan``."""

    preparation: Any
    target: str
    ptx_version: str
