"""Grouped matrix products as the GEMM that kernels compute."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.base import EXTENT_LIMIT
from ptxgen.problem.grouped import GroupedGemm

#: leading dimensions that stand for all up to the first, and for larger ones: kernels of the first have 32-bit offsets
SMALL_LD, LARGE_LD = 1 << 18, EXTENT_LIMIT - 1


@dataclass(frozen=True)
class GroupedKernelGemm(KernelGemm):
    """A lowered group. Its extents are typical ones, weighted by the work of the items; ``group``: the items; None: the
    problem stands for all groups of its types, layout and alignment."""

    group: GroupedGemm | None = None

    operation = "grouped"
    grouped: ClassVar[bool] = True

    @property
    def jagged(self) -> str:
        return self.group.jagged if self.group is not None else ""

    @property
    def arrays(self) -> tuple[str, ...]:
        return self.group.arrays if self.group is not None else super().arrays

    @property
    def shape_class(self) -> KernelGemm:
        return replace(self, group=None)

    @property
    def extent_gcd(self) -> tuple[int, int, int]:
        if self.group is None:
            return super().extent_gcd
        m, n, k = (int(x) for x in np.gcd.reduce(self.group.extents, axis=0, initial=0))
        return 1 if self.jagged == "m" else m, n, 1 if self.jagged == "k" else k

    def tiles_of(self, ml: Any, nl: Any) -> Any:
        if self.group is None:
            return super().tiles_of(ml, nl)
        m, n, _ = self.group.extents.T
        pairs = np.stack(np.broadcast_arrays(np.atleast_1d(ml), nl), axis=-1).reshape(-1, 2)
        found, place = np.unique(pairs, axis=0, return_inverse=True)
        counts: NDArray[np.int64] = np.array([(-(-m // a) * -(-n // b)).sum() for a, b in np.maximum(found, 1)])
        tiles = counts[place.reshape(-1)]
        return (
            tiles.reshape(np.broadcast_shapes(np.shape(ml), np.shape(nl)))
            if np.ndim(ml) or np.ndim(nl)
            else int(tiles[0])
        )

    @property
    def results(self) -> int:
        return self.group.results if self.group is not None else super().results

    @property
    def reduction(self) -> int:
        return self.group.reduction if self.group is not None else super().reduction

    @property
    def flops(self) -> int:
        return self.group.flops if self.group is not None else super().flops

    @property
    def bytes(self) -> int:
        return self.group.bytes if self.group is not None else super().bytes

    @property
    def vectors(self) -> tuple[int, int, int]:
        return self.group.vectors if self.group is not None else super().vectors


def lower_grouped(problem: GroupedGemm) -> GroupedKernelGemm:
    """A group as a kernel problem."""
    p: GroupedKernelGemm = object.__new__(GroupedKernelGemm)  # fields are valid: the problem has checked them
    extents = problem.extents.astype(np.float64)
    m, n, k = (_mean(extents[:, axis], extents.prod(axis=1)) for axis in range(3))
    lda, ldb, ldc = (LARGE_LD if x > SMALL_LD else SMALL_LD for x in problem.lds.max(axis=0, initial=1))
    names = ("layout", "dtype", "compute", "aligned_a", "aligned_b", "aligned_c", "deterministic", "out", "epilogue")
    p.__dict__.update({name: getattr(problem, name) for name in names})
    p.__dict__.update(m=m, n=n, k=k, lda=lda, ldb=ldb, ldc=ldc, group=problem)
    return p


def _mean(extents: NDArray[np.float64], work: NDArray[np.float64]) -> int:
    """The mean of the extents of an axis, weighted by work; if there is none, the largest extent."""
    total = work.sum()
    return round(float((extents * work).sum() / total)) if total else int(extents.max(initial=0))
