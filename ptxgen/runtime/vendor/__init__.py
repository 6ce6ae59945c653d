"""The vendor's libraries, timed in the same run as our kernels; one row each."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass

from ptxgen.problem.registry import Problem
from ptxgen.runtime.driver import Driver, Timing


@dataclass(frozen=True)
class Baseline:
    """``title``: what people call the library; ``operation``: what it is compared in; ``module``, ``kind``: where its
    class is, which is imported where it is used."""

    name: str
    title: str
    operation: str
    module: str
    kind: str

    def best(
        self,
        driver: Driver,
        problem: Problem,
        sets: Sequence[tuple[int, int, int]],
        timing: Timing,
        more: tuple[int, ...] = (),
    ) -> tuple[float, float]:
        """Microseconds of the library's best candidate and of its own first choice; ``sets``: the ring of operands that
        our kernel ran on; ``more``: what its epilogue read. UnavailableError: the library, or a GPU, is missing;
        LaunchError: it has no way to compute the problem."""
        computes = getattr(importlib.import_module(f"ptxgen.runtime.vendor.{self.module}"), self.kind)
        found: tuple[float, float] = computes(driver, problem, more).best(sets, timing)
        return found


BASELINES = {
    b.name: b
    for b in (
        Baseline("cublas", "cuBLASLt", "gemm", "cublaslt", "CublasLt"),
        Baseline("cudnn", "cuDNN", "conv", "cudnn", "Cudnn"),
    )
}
