"""Convolutions with 3x3 filters by Winograd's minimal filtering: 16 GEMMs over tiles of 2x2 results, or 36 over tiles
of 4x4.

A tile of 2x2 results depends on a patch of 4x4 pixels. With the matrices of Lavin and Gray ("Fast Algorithms for
Convolutional Neural Networks", CVPR 2016) results are Y = Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A, for a filter g and a patch d,
summed over channels before the last transform. Each of the 16 points of transformed filters and patches is one GEMM:
filters by channels times channels by tiles. A tile takes 16 products, where a direct convolution takes 36. A tile of
4x4 results has a patch of 6x6 pixels and takes 36 products in place of 144, with larger errors.

F(2x2, 3x3) computes results and input gradients. Gradients of filters have 3x3 elements, which the 2x2 gradients of a
tile's results and its patch give: F(3x3, 2x2) has the same points and the same B, and the GEMMs are filters by tiles
times tiles by channels. So have F(4x4, 3x3) and F(3x3, 4x4).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from ptxgen.lowering.kernel_problem import KernelProblem, MatrixAccess
from ptxgen.lowering.sink import StoreTile
from ptxgen.lowering.strided import matrix_product
from ptxgen.problem.conv import Conv
from ptxgen.settings import settings

TILES = (2, 4)  #: rows and columns of results of a tile, of each algorithm
TAPS = (1, 3, 3)  #: of the filters, along depth, height, width
UNIT = 4  #: transformed matrices are padded to multiples of it, so that accesses have 16 bytes
#: tile -> channels of images and results: with fewer, transforms take longer than the products that they save, or sums
#: of fewer products have larger errors than direct ones, relative to the products
LEAST_CHANNELS = {2: 16, 4: 32}
#: tile -> rows and columns of images and of results for weight gradients, likewise
LEAST_PIXELS = {2: 6, 4: 10}
#: tile -> rows and columns of padding on each side of a convolution, if limited: a result at a corner has products with
#: few pixels of its patch, but the errors of all of them
MOST_PADDING = {4: 1}


@dataclass(frozen=True)
class WinogradTransform:
    """The tensors that the transforms read and write. ``channels`` of the images, ``filters``: channels of the results;
    ``height``, ``width`` of the images, ``tile``: rows and columns of results of a tile; ``results``: those of the
    results; ``first``: the row and column of the image at the top left of the first patch. Steps in elements:
    ``image_steps`` and ``result_steps`` by image, channel, row, column; ``filter_steps`` by filter, channel, row,
    column, from tap ``filter_start`` on. For weight gradients, ``results`` are the extents of the gradients of the
    results, and filters those of the gradients to compute."""

    images: int
    channels: int
    filters: int
    height: int
    width: int
    tile: int
    results: tuple[int, int]
    first: tuple[int, int]
    image_steps: tuple[int, int, int, int]
    filter_steps: tuple[int, int, int, int]
    filter_start: int
    result_steps: tuple[int, int, int, int]

    @property
    def tiles(self) -> tuple[int, int]:
        """Rows and columns of tiles of an image."""
        rows, columns = (-(-n // self.tile) for n in self.results)
        return rows, columns

    @property
    def tile_count(self) -> int:
        """Tiles of all images."""
        rows, columns = self.tiles
        return self.images * rows * columns


@dataclass(frozen=True)
class Winograd:
    """The products of a convolution, one for each point of a transformed patch: transformed filters times transformed
    images, or of a weight gradient: transformed gradients of results times transformed images.

    ``tile``: rows and columns of results of a tile; ``image``: the operand with the images, of the
    convolution and of the products: a or b. ``channels_adjacent``: channels are adjacent in memory (NHWC), not pixels;
    ``images_adjacent``: images are (CHWN). ``transform``: the tensors; ``sink``: that of the convolution, whose arrays
    every kernel of a launch takes; None: the representative of a class.
    """

    tile: int
    image: str
    channels_adjacent: bool
    images_adjacent: bool
    weight_grad: bool
    transform: WinogradTransform | None
    sink: StoreTile | None

    @property
    def patch(self) -> int:
        """Rows and columns of the pixels that a tile of results depends on."""
        return patch_of(self.tile)

    @property
    def points(self) -> int:
        """Points of a transformed patch: the GEMMs of the batch."""
        return self.patch**2

    @property
    def tiles_adjacent(self) -> bool:
        """Whether tiles are adjacent in the transformed matrices, not channels."""
        return not (self.channels_adjacent or self.weight_grad)

    @property
    def tile_digits(self) -> tuple[str, str, str]:
        """The digits of the number of a tile, fastest first: adjacent tiles have pixels near in memory."""
        if self.images_adjacent:
            return "image", "tile_column", "tile_row"
        return "tile_column", "tile_row", "image"


@dataclass(frozen=True)
class TransformedMatrix(MatrixAccess):
    """A matrix of transformed elements in the workspace, which ``algorithm`` makes."""

    algorithm: Winograd = field(kw_only=True)

    kind: ClassVar[str] = "minimal_filtering"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset((capability(self.algorithm.tile),))

    @property
    def arrays(self) -> tuple[str, ...]:
        return self.algorithm.sink.arrays if self.algorithm.sink is not None else ()

    def representative(self) -> TransformedMatrix:
        return replace(self, algorithm=replace(self.algorithm, transform=None, sink=None))


def capability(tile: int) -> str:
    """What a family provides that computes tiles of so many rows and columns of results."""
    return f"minimal_filtering_{tile}x{tile}"


def winograd(p: KernelProblem) -> Winograd | None:
    """The algorithm whose products ``p`` is; None: another one."""
    access = p.operands[0].access
    return access.algorithm if isinstance(access, TransformedMatrix) else None


def patch_of(tile: int) -> int:
    """Rows and columns of the pixels that a tile of results depends on."""
    return tile + TAPS[1] - 1


def winograd_forms(v: Conv, p: KernelProblem) -> tuple[KernelProblem, ...]:
    """The products of a convolution or of a gradient by each algorithm that can compute it. ``p``: the implicit
    GEMM."""
    return tuple(form for tile in TILES if (form := winograd_form(v, p, tile)) is not None)


def winograd_form(v: Conv, p: KernelProblem, tile: int) -> KernelProblem | None:
    """The products of a convolution or of a gradient over tiles of ``tile`` rows and columns of results. None: it has
    other filters, strides or types, few channels, groups or a depth axis, or more padding than tiles of this size
    allow, or few pixels and weight gradients, or PTXGEN_WINOGRAD is off."""
    gradient, weights = v.direction == "input_grad", v.direction == "weight_grad"
    channels, filters = (v.k, v.c) if gradient else (v.c, v.k)
    plain = v.groups == 1 and v.strides == v.dilations == (1, 1, 1) and (v.t, v.r, v.s) == TAPS and not v.deep
    types = v.dtype == v.compute == v.out == "f32"
    if not (plain and types) or any(v.pads[0]) or v.fold:
        return None
    if settings().winograd == "off":
        return None
    if min(channels, filters) < LEAST_CHANNELS[tile] or 0 in (v.n, v.h, v.w, *v.results):
        return None
    if weights and min(v.h, v.w, *v.results[1:]) < LEAST_PIXELS[tile]:
        return None
    pads = [2 - n if gradient else n for n in (*v.pads[1], *v.pads[2])]
    if not weights and max(pads) > MOST_PADDING.get(tile, max(pads)):
        return None
    x, w, y = (v.steps(name) for name in "xwy")
    image, filter_, result = (_of_axes(x, "nchw"), _of_axes(w, "kcrs"), _of_axes(y, "nkpq"))
    extents, results, start = (v.h, v.w), v.results[1:], 0
    first = (-pads[0], -pads[2])
    if gradient:  # a convolution of the gradient of results with the rotated filters
        image, result, extents, results = result, image, results, extents
        start = 2 * (w["r"] + w["s"])
        filter_ = (w["c"], w["k"], -w["r"], -w["s"])
    adjacent = v.layout == "NHWC"
    transform = WinogradTransform(
        v.n,
        channels,
        filters,
        *extents,
        tile,
        (results[0], results[1]),
        first,
        image,
        filter_,
        start,
        result,
    )
    rows, columns, depth = (_up(n) for n in (filters, transform.tile_count, channels))
    if weights:
        columns, depth = depth, columns
    images_first = not v.swapped  # the operands of the GEMMs are in the order of those of the convolution
    if images_first:
        rows, columns = columns, rows
    algorithm = Winograd(
        tile,
        image="a" if images_first else "b",
        channels_adjacent=adjacent,
        images_adjacent=v.layout == "CHWN",
        weight_grad=weights,
        transform=transform,
        sink=p.sink,
    )
    products = matrix_product(
        rows,
        columns,
        depth,
        "TN" if weights or not adjacent else "NN",
        v.dtype,
        v.compute,
        out=v.out,
        batch=algorithm.points,
        deterministic=v.deterministic,
        swapped=v.swapped,
    )
    form = products.with_accesses(lambda x: TransformedMatrix(*x.numbers, algorithm=algorithm))
    return replace(form, name=p.name)


def _up(n: int) -> int:
    return -(-n // UNIT) * UNIT


def _of_axes(steps: dict[str, int], axes: str) -> tuple[int, int, int, int]:
    a, b, c, d = (steps[letter] for letter in axes)
    return a, b, c, d
