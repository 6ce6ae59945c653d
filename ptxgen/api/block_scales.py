"""Scales of the operands of ``gemm``: their types, and block scales, whose shape tells the extents of the blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ptxgen.api.arrays import View, is_torch, require_same_memory, tensor
from ptxgen.errors import DtypeError, ShapeError
from ptxgen.problem.block_scales import DEPTH, SCALINGS, Scaling

_WORDS = {scaling: word for word, scaling in SCALINGS.items()}
#: the block scales of an operand: the word by which a problem names their layout, and the array of scales
BlockScale = tuple[str, View]
#: the types that scales may have. The values of the second one are the powers of two from 2⁻¹²⁷ to 2¹²⁷, and NaN
F32, POWERS_OF_TWO = "float32", "float8_e8m0fnu"


def scales_in_f32(scales: Any, argument: str) -> Any:
    """The scales as an array of float32. Powers of two are converted by the library of the array, without rounding;
    float32, and objects without a type, stay as they are. DtypeError: the scales have another type."""
    name = str(getattr(scales, "dtype", F32))
    if POWERS_OF_TWO in name:
        return scales.float() if is_torch(scales) else scales.astype(np.float32)
    if F32 not in name:
        raise DtypeError(f"{argument} has dtype {name.removeprefix('torch.')}; it must be {F32} or {POWERS_OF_TWO}")
    return scales


def block_scales(
    a: View, b: View, scale_a: Any, scale_b: Any, always: bool = False
) -> tuple[BlockScale, BlockScale] | None:
    """The block scales of A and of B. None: the operands are no 8-bit floats, or the scales are single numbers or one
    for each row and column. If ``always``, they are read as block scales in any case.

    ``a``: M×K; ``b``: K×N. ``scale_a``: M×⌈K/128⌉ or ⌈M/128⌉×⌈K/128⌉; ``scale_b``: ⌈K/128⌉×N or ⌈K/128⌉×⌈N/128⌉.
    ShapeError, DtypeError, InputError: the scales do not fit the operands.
    """
    first = _Side("scale_a", tensor(scale_a, "scale_a"), scale_a, a, a.shape[-2], 1)
    second = _Side("scale_b", tensor(scale_b, "scale_b"), scale_b, b, b.shape[-1], 0)
    sides, blocks = (first, second), -(-a.shape[-1] // DEPTH)
    if always:
        return first.checked(blocks), second.checked(blocks)
    if not a.dtype.fp8 or any(len(x.view.shape) < 2 for x in sides):
        return None
    counts = [math.prod(x.view.shape) for x in sides]
    plain = counts in ([1, 1], [first.extent, second.extent])
    if all(x.is_vector for x in sides) and (not all(x.fits(blocks) for x in sides) or (plain and blocks <= 1)):
        return None
    return first.checked(blocks), second.checked(blocks)


def item_block_scales(a: View, b: View, scale_a: Any, scale_b: Any, least: int) -> tuple[BlockScale, BlockScale]:
    """The block scales of A and of B whose items are ranges of K: one for each row of A and each column of B, and each
    block of an item. ``a``: M×K; ``b``: K×N; ``scale_a``: M×B; ``scale_b``: B×N; ``least``: the least B.

    ShapeError, DtypeError, InputError: the scales do not fit the operands; messages have the shape of ``scale_a`` as
    its transpose, B×M.
    """
    first = _Side("scale_a", tensor(scale_a, "scale_a"), scale_a, a, a.shape[-2], 1)
    second = _Side("scale_b", tensor(scale_b, "scale_b"), scale_b, b, b.shape[-1], 0)
    counts = []
    for x in (first, second):
        shape = x.view.shape[:: -1 if x.along_k else 1]
        if len(shape) != 2 or shape[1] != x.extent or shape[0] < least:
            raise ShapeError(
                f"{x.argument} is {'x'.join(map(str, shape))}; it must be Bx{x.extent} with B of at least {least}, one"
                f" scale of each column for each {DEPTH} rows of an item"
            )
        counts.append(shape[0])
    if counts[0] != counts[1]:
        raise ShapeError(f"scale_a has {counts[0]} rows and scale_b has {counts[1]}; they must have the same number")
    return first.checked(counts[0]), second.checked(counts[0])


class _Side:
    """The scales of one operand. ``extent``: the number of rows of A, or of columns of B; ``along_k``: which of the
    last two axes of the scales is along K, 0 or 1."""

    def __init__(self, argument: str, view: View, given: Any, operand: View, extent: int, along_k: int) -> None:
        self.argument, self.view, self.given, self.operand = argument, view, given, operand
        self.extent, self.along_k = extent, along_k

    @property
    def is_vector(self) -> bool:
        """True if at most one axis has several elements."""
        return sum(n != 1 for n in self.view.shape) <= 1

    @property
    def rows(self) -> int:
        """The number of scales along the rows of A, or along the columns of B."""
        return self.view.shape[-2:][1 - self.along_k]

    def fits(self, blocks: int) -> bool:
        """True if there are ``blocks`` scales along K, and one scale for each row, or for each 128 rows, along the
        other axis."""
        items, wanted = self.view.shape[:-2], self.operand.shape[:-2]
        same = items == wanted or math.prod((*items, *wanted)) == 1
        return same and self.view.shape[-2:][self.along_k] == blocks and self.rows in self._rows_per_block

    @property
    def _rows_per_block(self) -> dict[int, int]:
        """A map from the number of scales along the rows to the number of rows that share one scale."""
        return {-(-self.extent // DEPTH): DEPTH, self.extent: 1}

    def checked(self, blocks: int) -> BlockScale:
        """The word by which a problem names the layout of these scales, and the array of scales. ``blocks``: the number
        of blocks along K. ShapeError, DtypeError, InputError: the scales do not fit the operand."""
        v = self.view
        if not self.fits(blocks):
            pairs = [(rows, blocks)[:: 1 if self.along_k else -1] for rows in (self.extent, -(-self.extent // DEPTH))]
            texts = dict.fromkeys("x".join(map(str, (*self.operand.shape[:-2], *pair))) for pair in pairs)
            line = "row of a" if self.along_k else "column of b"
            raise ShapeError(
                f"{self.argument} is {'x'.join(map(str, v.shape))}; it must be {' or '.join(texts)}: for each {DEPTH}"
                f" of K, one scale for each {line}, or for {DEPTH} of them"
            )
        require_same_memory(self.argument, v, self.argument[-1], self.operand)
        rows = self._rows_per_block[self.rows]
        by_k = self.along_k == 0
        if self._contiguous(v, (1, 0)) and not v.host:
            return _WORDS[Scaling(rows, not by_k)], v
        if not v.host and not self._contiguous(v, (0, 1)):
            v = tensor(self.given.contiguous() if hasattr(self.given, "contiguous") else self.given.copy(), "scales")
        return _WORDS[Scaling(rows, by_k)], v

    def _contiguous(self, v: View, order: tuple[int, int]) -> bool:
        """True if the scales are stored without gaps, and the last two axes are in ``order`` in memory."""
        shape = (*v.shape[:-2], *(v.shape[-2:][n] for n in order))
        strides = (*v.strides[:-2], *(v.strides[-2:][n] for n in order))
        step = 1
        for n, s in zip(reversed(shape), reversed(strides), strict=True):
            if n != 1 and s != step:
                return 0 in shape
            step *= n
        return True
