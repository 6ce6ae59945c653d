"""Convolutions with few results per pixel, as sums of products of taps.

A pixel of the operand is multiplied by the taps of all filters once, whatever results read it. Each result is then a
sum of such products, one for each tap. With few filters, a pixel has fewer products than channels.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ptxgen.lowering.kernel_problem import GemmExtents, KernelProblem, MatrixAccess

MAX_PRODUCTS = 96  #: upper limit of the products of a pixel: taps times filters
LEAST_CHANNELS = 16  #: least channels: products of fewer take more bytes in shared memory than pixels


@dataclass(frozen=True)
class TapAxis:
    """One axis of the image. Tap r of result i reads pixel i · ``stride`` + r · ``dilation`` - ``padding``.

    ``pixels``, ``results``, ``taps``: extents; ``pixel_stride``, ``result_stride``, ``filter_stride``: elements from
    one pixel, result or tap to the next."""

    pixels: int
    results: int
    taps: int
    stride: int
    dilation: int
    padding: int
    pixel_stride: int
    result_stride: int
    filter_stride: int

    def covered(self, results: Any) -> Any:
        """The number of adjacent pixels that contains the windows of ``results`` adjacent results."""
        return (results - 1) * self.stride + (self.taps - 1) * self.dilation + 1


@dataclass(frozen=True)
class TapProducts:
    """A convolution with few results per pixel. Strides are in elements.

    ``image``: the GEMM operand (a, b) that holds the pixels; ``images``, ``channels``: extents of the operand;
    ``filters``: results per pixel; ``rows``, ``columns``: the axes of the image; ``image_strides``, ``result_strides``:
    from one image, and from one channel of pixels or results, to the next; ``filter_strides``: from one channel, and
    from one filter, to the next; ``filter_start``: offset of the first tap; ``channels_last``: True if the channels of
    a pixel are contiguous; ``vec``: channels of the widest aligned access.
    """

    image: str
    images: int
    channels: int
    filters: int
    rows: TapAxis
    columns: TapAxis
    image_strides: tuple[int, int]
    result_strides: tuple[int, int]
    filter_strides: tuple[int, int]
    filter_start: int
    channels_last: bool
    vec: int

    @property
    def taps(self) -> int:
        return self.rows.taps * self.columns.taps

    @property
    def products(self) -> int:
        """The number of products of a pixel."""
        return self.taps * self.filters

    @property
    def constants(self) -> tuple[int, ...]:
        """The numbers that are constants in generated code. The last one is the vector width."""
        axes = (n for axis in (self.rows, self.columns) for n in (axis.taps, axis.stride, axis.dilation))
        return *axes, self.filters, int(self.channels_last), self.vec


@dataclass(frozen=True)
class TapOperand(MatrixAccess):
    """The access to an operand of a convolution whose results are sums of products of taps. ``mode``: how auxiliary
    kernels address the operand; ``constants``: ``TapProducts.constants``."""

    constants: tuple[int, ...] = field(kw_only=True)
    products: TapProducts = field(compare=False, repr=False, kw_only=True)

    capability: ClassVar[str] = "few_results"


def tap_products(p: KernelProblem) -> TapProducts | None:
    """The ``TapProducts`` of a problem; None: its operands have other accesses."""
    access = p.operands[0].access
    return access.products if isinstance(access, TapOperand) else None


def tap_products_form(p: KernelProblem, products: TapProducts) -> KernelProblem:
    """``p`` computed from products of taps. ``p`` may be several matrix products, of which the form is one."""
    form = p.with_accesses(lambda x: TapOperand(*x.numbers, constants=products.constants, products=products))
    sides = products.images * products.rows.results * products.columns.results, products.filters
    m, n = sides if products.image == "a" else sides[::-1]
    return replace(form, extents=GemmExtents(m, n, products.channels * products.taps), parts=())
