"""Grouped matrix products as the GEMM that kernels compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.base import EXTENT_LIMIT
from ptxgen.problem.grouped import GroupedGemm

#: leading dimensions that represent all up to the first, and all larger ones: kernels of the first have 32-bit offsets
SMALL_LD, LARGE_LD = 1 << 18, EXTENT_LIMIT - 1


@dataclass(frozen=True)
class GroupedKernelGemm(KernelGemm):
    """A lowered group. Its extents are typical ones, weighted by the work of the items; ``group``: the items; None: the
    problem represents all groups of its types, layout and alignment."""

    group: GroupedGemm | None = None
    jagged: str = ""

    operation = "grouped"
    grouped: ClassVar[bool] = True

    def key(self) -> str:
        return self.group.key() if self.group is not None else super().key()

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

    @property
    def tensor_items(self) -> int:
        return len(self.group.items) if self.group is not None else super().tensor_items

    def tensor(self, name: str) -> tuple[int, int, int, int]:
        if self.group is None:
            return super().tensor(name)
        x = "abc".index(name)
        by, along = self.group.steps(name)
        rows = self.group.rows[:, x]
        count = int(rows.sum() if along else rows.max(initial=0))
        return int(self.group.columns[:, x].max(initial=0)), count, int(self.group.lds[:, x].max(initial=1)), by

    def tiles_of(self, ml: Any, nl: Any, u: Any = 1, kg: Any = 1) -> Any:
        if self.group is None:
            return super().tiles_of(ml, nl, u, kg)
        counts = _each(lambda a, b, depth, n: int(self._item_tiles(a, b, depth, n).sum()), ml, nl, u, kg)
        return counts if any(map(np.ndim, (ml, nl, u, kg))) else int(counts)

    def tile_iterations(self, ml: Any, nl: Any, u: Any, kg: Any = 1) -> tuple[Any, Any]:
        assert self.group is not None
        k = self.group.extents[:, 2]

        def mean(a: int, b: int, depth: int, n: int) -> float:
            whole = self._item_tiles(a, b) * -(-k // depth)
            return float(whole.sum() / max(self._item_tiles(a, b, depth, n).sum(), 1))

        def longest(a: int, b: int, depth: int, n: int) -> float:
            longest_k = int(k[self._item_tiles(a, b) > 0].max(initial=0))
            return float(-(-min(longest_k, slice_length(self.reduction, depth, n)) // depth))

        return _each(mean, ml, nl, u, kg), _each(longest, ml, nl, u, kg)

    def tile_products(self, ml: Any, nl: Any) -> Any:
        """Products of whole tiles."""
        assert self.group is not None
        k = self.group.extents[:, 2]
        return _each(lambda a, b: float((self._item_tiles(a, b) * k).sum()) * a * b, ml, nl)

    def padded_products(self, sizes: Sequence[int]) -> NDArray[np.float64]:
        """Products of all items if M is padded to multiples of one of ``sizes`` (rows), and N to those of another
        (columns)."""
        assert self.group is not None
        m, n, k = self.group.extents.T.astype(np.float64)
        unit = np.array(sizes, np.float64)[:, None]
        found: NDArray[np.float64] = (np.ceil(m / unit) * unit * k) @ (np.ceil(n / unit) * unit).T
        return found

    def split_tiles(self, ml: Any, nl: Any, u: Any, kg: Any) -> Any:
        """Tiles that are one of several slices."""
        assert self.group is not None
        k = self.group.extents[:, 2]

        def split(a: int, b: int, depth: int, n: int) -> int:
            return int(self._item_tiles(a, b, depth, n)[k > slice_length(self.reduction, depth, n)].sum())

        return _each(split, ml, nl, u, kg)

    def _item_tiles(self, ml: int, nl: int, u: int = 1, kg: int = 1) -> NDArray[np.int64]:
        """Tiles of each item, each slice of K counted."""
        assert self.group is not None
        m, n, k = self.group.extents.T
        tiles: NDArray[np.int64] = -(-m // max(ml, 1)) * -(-n // max(nl, 1))
        if kg > 1:
            tiles = tiles * np.maximum(-(-k // slice_length(self.reduction, u, kg)), 1)
        return tiles

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
    lda, ldb, ldc = (int(x) for x in problem.lds.max(axis=0, initial=1))
    if not problem.jagged:
        lda, ldb, ldc = (LARGE_LD if x > SMALL_LD else SMALL_LD for x in (lda, ldb, ldc))
    names = ("layout", "dtype", "compute", "aligned_a", "aligned_b", "aligned_c", "deterministic", "out", "epilogue")
    p.__dict__.update({name: getattr(problem, name) for name in names})
    p.__dict__.update(m=m, n=n, k=k, lda=lda, ldb=ldb, ldc=ldc, group=problem, jagged=problem.jagged)
    return p


def slice_length(longest: int, u: int, kg: int) -> int:
    """The length of a slice of K of every item: the longest K has ``kg`` slices, which are multiples of ``u``."""
    u, each = max(u, 1), -(-longest // max(kg, 1))
    return max(-(-each // u), 1) * u


def _mean(extents: NDArray[np.float64], work: NDArray[np.float64]) -> int:
    """The mean of the extents of an axis, weighted by work; if there is none, the largest extent."""
    total = work.sum()
    return round(float((extents * work).sum() / total)) if total else int(extents.max(initial=0))


def _each(of: Callable[..., float], *columns: Any) -> Any:
    """``of`` for the integers of each row, evaluated once for equal rows."""
    arrays = np.broadcast_arrays(*columns)
    code = np.zeros(arrays[0].size, np.int64)
    for x in arrays:  # sorting numbers is much faster than sorting rows
        values, place = np.unique(x, return_inverse=True)
        code = code * len(values) + place.reshape(-1)
    _, first, place = np.unique(code, return_index=True, return_inverse=True)
    rows = zip(*(x.reshape(-1)[first].tolist() for x in arrays), strict=True)
    return np.array([of(*row) for row in rows])[place.reshape(-1)].reshape(arrays[0].shape)
