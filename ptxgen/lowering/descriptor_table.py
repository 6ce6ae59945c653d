"""Grouped products: the extents of the items, and the access to matrices by a descriptor table in device memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ptxgen.lowering.kernel_problem import GemmExtents, KernelProblem, MatrixAccess
from ptxgen.problem.dtypes import Dtype


class Items(Protocol):
    """The items of a group: sizes and places of their matrices. Arrays have one row per item."""

    @property
    def items(self) -> Sequence[Any]: ...

    @property
    def jagged(self) -> str: ...

    @property
    def element(self) -> Dtype: ...

    @property
    def output(self) -> Dtype: ...

    @property
    def extents(self) -> NDArray[np.int64]:
        """The extents M, N, K of each item."""

    @property
    def rows(self) -> NDArray[np.int64]:
        """The numbers of stored rows of A, B, C of each item."""

    @property
    def kernel_columns(self) -> NDArray[np.int64]:
        """The lengths of the stored rows of A, B, C of each item, in elements that kernels see."""

    @property
    def kernel_lds(self) -> NDArray[np.int64]:
        """The leading dimensions of A, B, C of each item, in elements that kernels see."""

    @property
    def starts(self) -> NDArray[np.int64]:
        """The first element of A, B, C of each item, in arrays that hold all items."""

    def steps(self, name: str) -> tuple[int, int]:
        """The strides in bytes of array ``name`` of a jagged group: from one item to the next, and from one index of
        the jagged axis to the next."""

    def epilogue_sizes(self, name: str) -> tuple[NDArray[np.int64], int]:
        """For the array that holds an epilogue operand of all items: the first element of each item, and the total
        number of elements."""

    def epilogue_operand_dtype(self, name: str) -> Dtype: ...

    @property
    def offsets(self) -> NDArray[np.int64]:
        """The ends of the items along the jagged axis."""

    @property
    def results(self) -> int: ...

    @property
    def reduction(self) -> int: ...

    @property
    def flops(self) -> int: ...


@dataclass(frozen=True)
class GroupExtents(GemmExtents):
    """The extents of a group: M, N and K are typical values, means over items weighted by work. ``group``: the items;
    None: these are the extents of the representative of a class."""

    group: Any = None
    jagged: str = ""

    @property
    def results(self) -> int:
        return int(self.group.results if self.group is not None else super().results)

    @property
    def reduction(self) -> int:
        return int(self.group.reduction if self.group is not None else super().reduction)

    @property
    def flops(self) -> int:
        return int(self.group.flops if self.group is not None else super().flops)

    @property
    def common_divisors(self) -> tuple[int, int, int]:
        if self.group is None:
            return super().common_divisors
        m, n, k = (int(x) for x in np.gcd.reduce(self.group.extents, axis=0, initial=0))
        return 1 if self.jagged == "m" else m, n, 1 if self.jagged == "k" else k

    @property
    def tensor_items(self) -> int:
        return len(self.group.items) if self.group is not None else super().tensor_items

    def representative(self) -> GroupExtents:
        return replace(self, group=None)

    def tiles(self, ml: Any, nl: Any, u: Any = 1, kg: Any = 1) -> Any:
        if self.group is None:
            return super().tiles(ml, nl, u, kg)
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
        """The number of multiply-adds of all tiles if each is computed as a whole tile."""
        assert self.group is not None
        k = self.group.extents[:, 2]
        return _each(lambda a, b: float((self._item_tiles(a, b) * k).sum()) * a * b, ml, nl)

    def padded_products(self, sizes: Sequence[int]) -> NDArray[np.float64]:
        """A table of the multiply-adds of all items with padding: in row r and column c, M is padded to multiples of
        ``sizes[r]`` and N to multiples of ``sizes[c]``."""
        assert self.group is not None
        m, n, k = self.group.extents.T.astype(np.float64)
        unit = np.array(sizes, np.float64)[:, None]
        fmas: NDArray[np.float64] = (np.ceil(m / unit) * unit * k) @ (np.ceil(n / unit) * unit).T
        return fmas

    def repeated_b(self, ml: Any) -> Any:
        """The number of elements of B that are read again: each row of tiles after the first one of an item reads B
        once more. ``ml``: rows of a tile."""
        assert self.group is not None
        m, n, k = self.group.extents.T
        return _each(lambda a: float(((np.maximum(-(-m // max(a, 1)), 1) - 1) * n * k).sum()), ml)

    def split_tiles(self, ml: Any, nl: Any, u: Any, kg: Any) -> Any:
        """The number of tiles whose K is split into several slices, each slice counted."""
        assert self.group is not None
        k = self.group.extents[:, 2]

        def split(a: int, b: int, depth: int, n: int) -> int:
            return int(self._item_tiles(a, b, depth, n)[k > slice_length(self.reduction, depth, n)].sum())

        return _each(split, ml, nl, u, kg)

    def _item_tiles(self, ml: int, nl: int, u: int = 1, kg: int = 1) -> NDArray[np.int64]:
        """Tiles of each item; each K slice of a tile counts."""
        assert self.group is not None
        m, n, k = self.group.extents.T
        tiles: NDArray[np.int64] = -(-m // max(ml, 1)) * -(-n // max(nl, 1))
        if kg > 1:
            tiles = tiles * np.maximum(-(-k // slice_length(self.reduction, u, kg)), 1)
        return tiles


@dataclass(frozen=True)
class DescriptorTable(MatrixAccess):
    """The access to matrix A, B or C (``name``) of each item of a group through a descriptor table. ``jagged``: the
    axis along which items are parts of one array; their sizes are on the device. ``group``: the items; None: this is
    the representative of a class."""

    name: str = field(kw_only=True)
    jagged: str = field(default="", kw_only=True)
    group: Any = field(default=None, compare=False, repr=False, kw_only=True)

    capability: ClassVar[str] = "descriptor_table"

    @property
    def item_rows(self) -> bool:
        """True if one tensor map describes the rows of all items, because the items are ranges of rows of one array or
        matrices at equal distances."""
        along = {"A": "m", "B": "", "C": "m"} if self.jagged == "m" else {"A": "k", "B": "k", "C": ""}
        if not self.jagged or along[self.name] != self.jagged:
            return bool(self.jagged)
        return self.name == "C" or self.kmajor == (self.jagged == "m")

    @property
    def item_columns(self) -> bool:
        """True if items are ranges of columns of one array."""
        return bool(self.jagged) and not self.item_rows

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(("item_rows" if self.item_rows else "item_columns" if self.item_columns else self.capability,))

    @property
    def arrays(self) -> tuple[str, ...]:
        return ("offsets",) if self.jagged else ()

    def tensor(self, size: int) -> tuple[int, int, int, int]:
        if self.group is None:
            return super().tensor(size)
        x = "ABC".index(self.name)
        by, along = self.group.steps(self.name.lower())
        rows, columns, lds = self.group.rows[:, x], self.group.kernel_columns[:, x], self.group.kernel_lds[:, x]
        count = int(rows.sum() if along and self.item_rows else rows.max(initial=0))
        width = int(columns.sum() if self.item_columns else columns.max(initial=0))
        return width, count, int(lds.max(initial=1)), by

    def representative(self) -> DescriptorTable:
        return replace(self, group=None)


def grouped(p: KernelProblem) -> bool:
    """True if the problem is a group, whose items have shapes of their own."""
    return isinstance(p.operands[0].access, DescriptorTable)


def items_of(p: KernelProblem) -> Items:
    """The items of a group."""
    items: Items = p.extents.group
    return items


def slice_length(longest: int, u: int, kg: int) -> int:
    """The length along K of the slices of all items: the longest K has ``kg`` slices, whose length is a multiple of
    ``u``."""
    u, each = max(u, 1), -(-longest // max(kg, 1))
    return max(-(-each // u), 1) * u


def _each(of: Callable[..., float], *columns: Any) -> Any:
    """Applies ``of`` to the integers in each row of ``columns``; equal rows are evaluated once."""
    arrays = np.broadcast_arrays(*columns)
    code = np.zeros(arrays[0].size, np.int64)
    for x in arrays:  # sorting numbers is much faster than sorting rows
        values, place = np.unique(x, return_inverse=True)
        code = code * len(values) + place.reshape(-1)
    _, first, place = np.unique(code, return_index=True, return_inverse=True)
    rows = zip(*(x.reshape(-1)[first].tolist() for x in arrays), strict=True)
    return np.array([of(*row) for row in rows])[place.reshape(-1)].reshape(arrays[0].shape)
