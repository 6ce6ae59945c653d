"""Scales of blocks of the operands of ``gemm``: their shapes tell the blocks."""

from __future__ import annotations

import math
from typing import Any

from ptxgen.api.arrays import View, require_same_memory, tensor
from ptxgen.errors import DtypeError, ShapeError
from ptxgen.problem.block_scales import DEPTH, SCALINGS, Scaling
from ptxgen.problem.dtypes import dtype

_WORDS = {scaling: word for word, scaling in SCALINGS.items()}
#: of an operand: the word of the problem for its blocks, and the scales as stored
BlockScale = tuple[str, View]


def block_scales(
    a: View, b: View, scale_a: Any, scale_b: Any, always: bool = False
) -> tuple[BlockScale, BlockScale] | None:
    """The scales of blocks of A and of B. None: they are single numbers, or vectors of one for each row and column,
    or the operands are no 8-bit floats, unless ``always``.

    ``a``: M×K; ``b``: K×N. ``scale_a``: one row for each row of a, or for 128 of them; ``scale_b``: likewise columns;
    along K one for each 128. ShapeError, DtypeError, InputError: the scales do not fit the operands.
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


class _Side:
    """The scales of an operand. ``extent``: its rows, of B columns; ``along_k``: the axis of its scales along K, of the
    last two."""

    def __init__(self, argument: str, view: View, given: Any, operand: View, extent: int, along_k: int) -> None:
        self.argument, self.view, self.given, self.operand = argument, view, given, operand
        self.extent, self.along_k = extent, along_k

    @property
    def is_vector(self) -> bool:
        """True if at most one axis has several elements."""
        return sum(n != 1 for n in self.view.shape) <= 1

    @property
    def rows(self) -> int:
        """Scales along the rows."""
        return self.view.shape[-2:][1 - self.along_k]

    def fits(self, blocks: int) -> bool:
        """True if the scales are of ``blocks`` blocks of K, and of rows or of blocks of rows."""
        items, wanted = self.view.shape[:-2], self.operand.shape[:-2]
        same = items == wanted or math.prod((*items, *wanted)) == 1
        return same and self.view.shape[-2:][self.along_k] == blocks and self.rows in self._rows_per_block

    @property
    def _rows_per_block(self) -> dict[int, int]:
        """Scales along the rows -> rows of a block."""
        return {-(-self.extent // DEPTH): DEPTH, self.extent: 1}

    def checked(self, blocks: int) -> BlockScale:
        """The word of the problem, and the scales as stored. ``blocks``: of K."""
        v = self.view
        if not self.fits(blocks):
            pairs = [(rows, blocks)[:: 1 if self.along_k else -1] for rows in (self.extent, -(-self.extent // DEPTH))]
            texts = dict.fromkeys("x".join(map(str, (*self.operand.shape[:-2], *pair))) for pair in pairs)
            line = "row of a" if self.along_k else "column of b"
            raise ShapeError(
                f"{self.argument} is {'x'.join(map(str, v.shape))}; it must be {' or '.join(texts)}: for each {DEPTH}"
                f" of K, one scale for each {line}, or for {DEPTH} of them"
            )
        if v.dtype is not dtype("f32"):
            raise DtypeError(f"{self.argument} is {v.dtype}; it must be f32")
        require_same_memory(self.argument, v, self.argument[-1], self.operand)
        rows = self._rows_per_block[self.rows]
        by_k = self.along_k == 0
        if self._contiguous(v, (1, 0)) and not v.host:
            return _WORDS[Scaling(rows, not by_k)], v
        if not v.host and not self._contiguous(v, (0, 1)):
            v = tensor(self.given.contiguous() if hasattr(self.given, "contiguous") else self.given.copy(), "scales")
        return _WORDS[Scaling(rows, by_k)], v

    def _contiguous(self, v: View, order: tuple[int, int]) -> bool:
        """True if the scales are stored without gaps, with the axes of items in ``order``."""
        shape = (*v.shape[:-2], *(v.shape[-2:][n] for n in order))
        strides = (*v.strides[:-2], *(v.strides[-2:][n] for n in order))
        step = 1
        for n, s in zip(reversed(shape), reversed(strides), strict=True):
            if n != 1 and s != step:
                return False
            step *= n
        return True
