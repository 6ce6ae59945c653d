"""Winograd's minimal filtering for convolutions with 3x3 filters: 16 GEMMs over tiles of 2x2 results, or 36 GEMMs over
tiles of 4x4 results.

A tile of 2x2 results depends on a patch of 4x4 pixels. With the matrices of Lavin and Gray ("Fast Algorithms for
Convolutional Neural Networks", CVPR 2016) the results are Y = Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A, for a filter g and a patch d,
summed over channels before the transform by A. A transformed filter or patch has 16 points, and each point is one GEMM:
(filters by channels) times (channels by tiles). A tile takes 16 products, where a direct convolution takes 36. A tile
of 4x4 results has a patch of 6x6 pixels and takes 36 products in place of 144, with larger errors.

F(2x2, 3x3) computes forward convolutions and input gradients. A weight gradient has 3x3 elements, which follow from the
patch of a tile and the gradients of its 2x2 results: F(3x3, 2x2) has the same points and the same B, and its GEMMs are
(filters by tiles) times (tiles by channels). F(4x4, 3x3) and F(3x3, 4x4) correspond likewise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from ptxgen.lowering.kernel_problem import KernelProblem, MatrixAccess
from ptxgen.lowering.sink import StoreTile

TILES = (2, 4)  #: the rows of results of a tile, which equal its columns, for each algorithm
TAPS = (1, 3, 3)  #: the taps of the filters along depth, height and width
UNIT = 4  #: transformed matrices are padded to multiples of this number, so that their rows can be accessed by 16 bytes
#: tile -> least channels of images and results. With fewer, the transforms take longer than the products that they
#: save, or the errors are larger than those of direct sums, relative to the products
LEAST_CHANNELS = {2: 16, 4: 32}
#: tile -> least rows and columns of images and of results for weight gradients, for the same reasons
LEAST_PIXELS = {2: 6, 4: 10}
#: tile -> most rows and columns of padding on each side of a convolution, if limited. A result at a corner has products
#: with few pixels of its patch, but the errors of all of them
MOST_PADDING = {4: 1}


@dataclass(frozen=True)
class WinogradTransform:
    """The tensors that the transforms read and write.

    ``channels``, ``height``, ``width``: extents of the images; ``filters``: channels of the results; ``tile``: rows
    (and columns) of results of a tile; ``results``: rows and columns of the results; ``first``: row and column of the
    image pixel at the top left of the first patch; ``image_steps``, ``result_steps``: strides in elements by image,
    channel, row, column; ``filter_steps``: strides by filter, channel, row, column; ``filter_start``: offset of the
    first tap. For a weight gradient, the results are the result gradients, and the filters are the weight gradients to
    compute.
    """

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
        """The numbers of rows and of columns of tiles of an image."""
        rows, columns = (-(-n // self.tile) for n in self.results)
        return rows, columns

    @property
    def tile_count(self) -> int:
        """The number of tiles of all images."""
        rows, columns = self.tiles
        return self.images * rows * columns


@dataclass(frozen=True)
class Winograd:
    """The products of a convolution, one for each point: transformed filters times transformed images. In a weight
    gradient: transformed result gradients times transformed images.

    ``tile``: rows (and columns) of results of a tile; ``image``: the operand with the images, a or b, of the
    convolution and of the products; ``channels_adjacent``: True if channels are adjacent in memory (NHWC);
    ``images_adjacent``: True if images are (CHWN); if both are False, pixels are. ``transform``: the tensors; None for
    the representative of a class. ``sink``: the sink of the convolution, whose arrays every kernel of a launch
    receives. ``nonfinite``: True if infinities and NaN must reach the same results as in direct sums.
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
        """The rows (and columns) of the patch of a tile."""
        return patch_of(self.tile)

    @property
    def points(self) -> int:
        """The number of points of a transformed patch, each of which is one GEMM of the batch."""
        return self.patch**2

    @property
    def tiles_adjacent(self) -> bool:
        """True if tiles, not channels, are adjacent in the transformed matrices."""
        return not (self.channels_adjacent or self.weight_grad)

    @property
    def tile_digits(self) -> tuple[str, str, str]:
        """The digits of a tile number, fastest first. The order puts tiles that are near in memory next to each
        other."""
        if self.images_adjacent:
            return "image", "tile_column", "tile_row"
        return "tile_column", "tile_row", "image"


@dataclass(frozen=True)
class TransformedMatrix(MatrixAccess):
    """The access to a matrix of transformed elements in the workspace. ``algorithm``: the ``Winograd`` that makes the
    matrix."""

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
    """The capability of families that compute tiles of ``tile`` rows and columns of results."""
    return f"minimal_filtering_{tile}x{tile}"


def winograd(p: KernelProblem) -> Winograd | None:
    """The Winograd algorithm of which ``p`` is the products. None: ``p`` is another problem."""
    access = p.operands[0].access
    return access.algorithm if isinstance(access, TransformedMatrix) else None


def patch_of(tile: int) -> int:
    """The rows (and columns) of the patch of a tile of ``tile`` rows."""
    return tile + TAPS[1] - 1
