"""Convolutions with 3x3 filters by Winograd's minimal filtering: 16 GEMMs over tiles of 2x2 results, or 36 over tiles
of 4x4.

A tile of 2x2 results depends on a patch of 4x4 pixels. With the matrices of Lavin and Gray ("Fast Algorithms for
Convolutional Neural Networks", CVPR 2016) results are Y = Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A, for a filter g and a patch d,
summed over channels before the last transform. Each of the 16 points of transformed filters and patches is one GEMM:
filters by channels times channels by tiles. A tile takes 16 products, where a direct convolution takes 36. A tile of
4x4 results has a patch of 6x6 pixels and takes 36 products in place of 144, with larger errors.

F(2x2, 3x3) computes results and input gradients. Weight gradients have 3x3 elements, which the 2x2 gradients of a
tile's results and its patch give: F(3x3, 2x2) has the same points and the same B, and the GEMMs are filters by tiles
times tiles by channels. The same holds for F(4x4, 3x3) and F(3x3, 4x4).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from ptxgen.lowering.kernel_problem import KernelProblem, MatrixAccess
from ptxgen.lowering.sink import StoreTile

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
    every kernel of a launch takes; None: the representative of a class. ``nonfinite``: infinities and NaN must reach
    the same results as in direct sums.
    """

    tile: int
    image: str
    channels_adjacent: bool
    images_adjacent: bool
    weight_grad: bool
    transform: WinogradTransform | None
    sink: StoreTile | None
    nonfinite: bool = False

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
        """True if tiles are adjacent in the transformed matrices, not channels."""
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

    capability: ClassVar[str] = "minimal_filtering"

    @property
    def needs(self) -> frozenset[str]:
        needs = frozenset((capability(self.algorithm.tile),))
        return needs | {"nonfinite"} if self.algorithm.nonfinite else needs

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
