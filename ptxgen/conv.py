"""Convolutions as problems."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ptxgen.errors import ShapeError
from ptxgen.problem import Gemm
from ptxgen.sliding import DIRECTIONS, FILTERS, Sliding
from ptxgen.walks import product_of


@dataclass(frozen=True)
class Conv(Sliding):
    __doc__ = Sliding.__doc__

    @cached_property
    def gemm(self) -> Gemm:
        """The product that kernels compute. ShapeError: words of 32 bits do not hold its offsets or coordinates."""
        try:
            return product_of(self)
        except ShapeError as error:
            raise ShapeError(f"extents or padding are too large: {error} ({self.shape()})") from None


__all__ = ["DIRECTIONS", "FILTERS", "Conv"]
