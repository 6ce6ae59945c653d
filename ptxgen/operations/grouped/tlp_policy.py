"""The tile policy of Zhang et al. (Journal of Systems Architecture 160, 2025, 103341) for grouped products.

Every item gets one of five tiles. The initial tile is the largest one that divides the item's M and N. While the
thread-level parallelism (TLP) of the whole group is below a threshold of the device, every item takes the next smaller
tile. TLP counts the threads of the warps that are active at the same time, from the resources of a block and the
limits of a multiprocessor.

Tables, equations and algorithms in this module are those of that article. Two lines of its Algorithm 1 are not
followed. Line 8 prints ``while TLP >= threshold``; the text says that tiles shrink while TLP is below the threshold.
Line 19 adds the new number of tiles to the old one; here the new number replaces the old one. A ``Method`` has the
choices that the article compares, and those in which the program of its authors (github.com/zhangyu0722/BatchGEMM)
differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptxgen.arguments import word
from ptxgen.errors import InputError
from ptxgen.problem.device import Device

Ints = NDArray[np.int64]

WARP = 32  #: threads
PARTITIONS = 4  #: partitions of a multiprocessor, each with a warp scheduler and a quarter of the registers
REGISTER_UNIT = 8  #: registers per thread are allocated in multiples of this number


@dataclass(frozen=True)
class Tile:
    """A row of Table 3: a block of ``threads`` computes ``m`` x ``n`` elements of C in steps of ``k``."""

    name: str
    m: int
    n: int
    k: int
    threads: int

    @property
    def compute_workload(self) -> float:
        """The column W_CP of Table 3, by Equation 1: elements of C per thread."""
        return self.m * self.n / self.threads

    @property
    def load_workload(self) -> float:
        """The column W_DL of Table 3, by Equation 2: elements of A, B and C that a thread loads in a step."""
        return (self.m * self.n + self.m * self.k + self.k * self.n) / self.threads

    @property
    def warps(self) -> int:
        return math.ceil(self.threads / WARP)


@dataclass(frozen=True)
class TileSet:
    """The tiles from which items choose, the smallest first. Each tile divides the next one."""

    tiles: tuple[Tile, ...]

    def __iter__(self) -> Iterator[Tile]:
        return iter(self.tiles)

    def __len__(self) -> int:
        return len(self.tiles)

    def __getitem__(self, index: int) -> Tile:
        return self.tiles[index]

    @cached_property
    def sides(self) -> Ints:
        """The rows and columns of each tile."""
        return np.array([(tile.m, tile.n) for tile in self.tiles])

    @cached_property
    def warps(self) -> Ints:
        """The warps of a block, for each tile."""
        return np.array([tile.warps for tile in self.tiles])

    @cached_property
    def threads(self) -> Ints:
        """The threads of a block, for each tile."""
        return np.array([tile.threads for tile in self.tiles])

    @cached_property
    def unit(self) -> int:
        """The least number of rows or columns of a tile."""
        return int(self.sides.min())

    @cached_property
    def period(self) -> int:
        """The greatest number of rows or columns of a tile, in multiples of ``unit``."""
        return int(self.sides.max()) // self.unit

    @cached_property
    def largest_that_divides(self) -> Ints:
        """A table by M and N, in multiples of ``unit`` modulo ``period``: the index of the largest tile that divides
        both."""
        return self._largest(lambda extents: np.equal(extents % self.sides, 0), 0)

    @cached_property
    def largest_that_fits(self) -> Ints:
        """A table by M and N, in multiples of ``unit`` up to ``period``: the index of the largest tile that is not
        larger than they are."""
        return self._largest(lambda extents: np.greater_equal(extents, self.sides), 1)

    def _largest(self, allowed: Callable[[Ints], Ints], more: int) -> Ints:
        counts = np.arange(self.period + more)
        extents = np.stack(np.meshgrid(counts, counts, indexing="ij"), axis=-1) * self.unit
        allows = np.all(allowed(extents[..., None, :]), axis=3)
        return np.asarray(len(self) - 1 - allows[..., ::-1].argmax(axis=-1), np.int64)


#: Table 3
TILES = TileSet(
    (
        Tile("small", 16, 16, 16, 128),
        Tile("small-medium", 16, 32, 16, 128),
        Tile("medium", 32, 32, 16, 128),
        Tile("medium-large", 32, 64, 16, 256),
        Tile("large", 64, 64, 16, 256),
    )
)
#: the tiles of earlier work in Table 2, all with 128 threads; of the two depths there, the one that Table 3 has
UNIFORM_TILES = TileSet(
    (Tile("small", 16, 16, 16, 128), Tile("medium", 32, 32, 16, 128), Tile("large", 64, 64, 16, 128))
)

WARPS, BLOCKS = "warps", "blocks"  #: values of ``Method.criterion``
DIVIDES, NEAR, FITS = "divides", "near", "fits"  #: values of ``Method.initial``
#: the largest ratio of elements that a tile of ``near`` computes to those that the smallest tile computes
MOST_COVERED = 1.25


@dataclass(frozen=True)
class Method:
    """The criteria by which Algorithm 1 chooses tiles.

    ``tiles``: the tiles from which items choose. ``criterion``: ``warps``: TLP counts the warps that are active at once
    (Equation 4); ``blocks``: TLP counts all threads of all blocks, as in earlier work (Equation 3). ``initial``:
    ``divides``: the initial tile divides M and N (Equation 10); ``near``: with its edges outside C, it computes at most
    a quarter more elements than the smallest tile; ``fits``: it is not larger than M and N. ``single``: items take
    smaller tiles one after the other, those with the largest tile first, until TLP reaches the threshold, as in the
    authors' program; otherwise all items take smaller tiles together, as in Algorithm 1.
    """

    tiles: TileSet = TILES
    criterion: str = WARPS
    initial: str = DIVIDES
    single: bool = False

    def __post_init__(self) -> None:
        word("criterion", self.criterion, (WARPS, BLOCKS))
        word("initial", self.initial, (DIVIDES, NEAR, FITS))


PAPER = Method()  #: Algorithm 1 as the article prints it


@dataclass(frozen=True)
class Resources:
    """The resources of a block. ``registers``: registers per thread; ``shared``: bytes of shared memory per block."""

    registers: int
    shared: int


def estimated_resources(tile: Tile, element_bytes: int = 4, stages: int = 2) -> Resources:
    """The estimated resources of a kernel of ``tile`` that is not assembled yet: registers for the sums, for the loaded
    elements of A and B, and for 32 addresses and counters; shared memory for ``stages`` tiles of A and B."""
    words = max(element_bytes // 4, 1)
    loads = math.ceil((tile.load_workload - tile.compute_workload) * element_bytes / 4)
    return Resources(
        registers=32 + math.ceil(tile.compute_workload) * words + loads,
        shared=stages * (tile.m + tile.n) * tile.k * element_bytes,
    )


# ---- Equations 5 to 9: active warps of a multiprocessor


def warps_by_blocks(device: Device, threads: int) -> int:
    """The active warps of a multiprocessor by Equation 5: the limit of resident blocks times the warps of a block."""
    return device.blocks_sm * math.ceil(threads / WARP)


def warps_by_registers(device: Device, registers: int) -> int:
    """The active warps by Equation 6: each partition holds the warps whose registers fit its quarter of the register
    file."""
    allocated = math.ceil(max(registers, 1) / REGISTER_UNIT) * REGISTER_UNIT
    return PARTITIONS * (device.registers_sm // PARTITIONS // (allocated * WARP))


def warps_by_shared(device: Device, threads: int, shared: int) -> int:
    """The active warps by Equation 8: the number of blocks whose shared memory fits, times the warps of a block."""
    return device.shared_sm // max(shared + device.shared_reserved, 1) * math.ceil(threads / WARP)


def active_warps(device: Device, threads: int, resources: Resources) -> int:
    """The warps that are active on one multiprocessor at the same time, by Equation 9.

    ``threads``: the threads that compute a tile. Further threads of the kernel count as ended, with their resources
    free. Equation 7, the limit by the scalar registers of AMD's GPUs, has no counterpart: uniform registers of NVIDIA's
    GPUs do not limit occupancy.
    """
    return min(
        warps_by_blocks(device, threads),
        warps_by_registers(device, resources.registers),
        warps_by_shared(device, threads, resources.shared),
        device.threads_sm // WARP,
    )


# ---- Equations 3 and 4: thread-level parallelism of a group


def tlp(device: Device, counts: ArrayLike, resources: Sequence[Resources] | None = None, method: Method = PAPER) -> int:
    """Thread-level parallelism by Equation 4: the threads of the warps that are active on the device at the same time.

    ``counts``: the number of blocks of each tile; ``resources``: the resources of a block of each tile, estimated if
    None. With one tile, the active warps are all its warps, or those that Equation 9 permits on all multiprocessors,
    whichever are fewer. With several tiles, a warp occupies a fraction of a multiprocessor that depends on its tile. If
    the criterion of ``method`` is ``blocks``, all threads of all blocks count (Equation 3). InputError: a block does
    not fit a multiprocessor.
    """
    used = None if resources is None else tuple(resources)
    return int(_tlp(device, np.asarray(counts, np.int64).reshape(1, -1), used, method)[0])


def _tlp(device: Device, counts: Ints, resources: tuple[Resources, ...] | None, method: Method) -> Ints:
    """``tlp`` of each row of ``counts``."""
    tiles = method.tiles
    if method.criterion == BLOCKS:
        return np.asarray(counts @ tiles.threads, np.int64)
    warps = counts * tiles.warps
    occupied = (warps / _active_by_tile(device, resources, tiles)).sum(axis=1)
    active = np.minimum(device.sms / np.maximum(occupied, 1e-9), 1.0)
    return np.asarray(WARP * np.round(warps.sum(axis=1) * active, 6), np.int64)


def full_tlp(device: Device, resources: Sequence[Resources] | None = None, tiles: TileSet = TILES) -> int:
    """The threads that are active on a device that is full of blocks of one tile, for the tile with the fewest."""
    active = _active_by_tile(device, None if resources is None else tuple(resources), tiles)
    return int(WARP * device.sms * active.min())


def occupancy(
    device: Device, counts: ArrayLike, resources: Sequence[Resources] | None = None, tiles: TileSet = TILES
) -> float:
    """Occupancy by Equation 12: the active warps over those that the device supports, while as many blocks run as fit
    at once."""
    return tlp(device, counts, resources, Method(tiles)) / (device.sms * device.threads_sm)


@lru_cache(64)
def _active_by_tile(device: Device, resources: tuple[Resources, ...] | None, tiles: TileSet) -> NDArray[np.float64]:
    """The active warps of a multiprocessor for each tile. InputError: a block does not fit a multiprocessor."""
    given = tuple(estimated_resources(t) for t in tiles) if resources is None else resources
    if len(given) != len(tiles):
        raise InputError(f"resources has {len(given)} elements; it must have {len(tiles)}, one for each tile")
    active = [active_warps(device, t.threads, r) for t, r in zip(tiles, given, strict=True)]
    for tile, used, warps in zip(tiles, given, active, strict=True):
        if warps < tile.warps:
            raise InputError(
                f"resources of tile {tile.name} are {used.registers} registers per thread and {used.shared} bytes of"
                f" shared memory; a block of {tile.threads} threads does not fit a multiprocessor of {device.name}"
            )
    return np.array(active, np.float64)


# ---- Algorithm 1


@dataclass(frozen=True)
class Scheme:
    """A choice of a tile for every item. ``tiles``: for each item, an index into the tiles of the method; ``counts``:
    the number of blocks of each tile; ``tlp``: the thread-level parallelism of the group."""

    tiles: Ints
    counts: Ints
    tlp: int


def initial_tiles(items: ArrayLike, method: Method = PAPER) -> Ints:
    """The initial tiles by Equation 10: for each item (M, N, K), the index of the largest tile that divides M and N.

    Because kernels use predicates, extents count as rounded up to the smallest tile. So every item has a tile, and no
    tile computes more elements outside C than the smallest tile would. K does not limit the choice, because the last
    step along K is predicated, too. Empty items have the smallest tile. If ``method.initial`` is ``near`` or ``fits``,
    tiles need not divide the extents.
    """
    return _initial_tiles(_extents(items), method)


def _initial_tiles(extents: Ints, method: Method) -> Ints:
    """``initial_tiles`` of checked extents."""
    tiles = method.tiles
    units = -(-extents[:, :2] // tiles.unit)
    if method.initial == FITS:
        within = np.minimum(units, tiles.period)
        chosen: Ints = tiles.largest_that_fits[within[:, 0], within[:, 1]]
    elif method.initial == NEAR:
        covered = (-(-extents[:, None, :2] // tiles.sides) * tiles.sides).prod(axis=2)
        near = covered <= MOST_COVERED * covered[:, :1]
        chosen = np.asarray(len(tiles) - 1 - near[:, ::-1].argmax(axis=1), np.int64)
    else:
        chosen = tiles.largest_that_divides[units[:, 0] % tiles.period, units[:, 1] % tiles.period]
    chosen[(units == 0).any(axis=1)] = 0
    return chosen


def blocks_of_items(items: ArrayLike, chosen: ArrayLike, tiles: TileSet = TILES) -> Ints:
    """The number of tiles along M and along N of each item, one row per item. ``chosen``: the index of each item's
    tile."""
    return _blocks(_extents(items), np.asarray(chosen, np.int64), tiles)


def _blocks(extents: Ints, chosen: Ints, tiles: TileSet) -> Ints:
    """``blocks_of_items`` of checked extents."""
    return np.asarray(-(-extents[:, :2] // tiles.sides[chosen].reshape(-1, 2)), np.int64)


def scheme_of(
    items: ArrayLike,
    chosen: ArrayLike,
    device: Device,
    resources: Sequence[Resources] | None = None,
    method: Method = PAPER,
) -> Scheme:
    """The scheme with given tiles. ``chosen``: for each item the index of its tile. InputError: an argument breaks a
    rule."""
    extents, tiles = _extents(items), np.asarray(chosen, np.int64)
    if tiles.shape != extents.shape[:1]:
        raise InputError(f"chosen has shape {tiles.shape}; it must have one index for each of {len(extents)} items")
    if ((tiles < 0) | (tiles >= len(method.tiles))).any():
        raise InputError(f"chosen has {tiles.min()} to {tiles.max()}; indices must be 0 to {len(method.tiles) - 1}")
    return _scheme(extents, tiles, device, None if resources is None else tuple(resources), method)


def _scheme(
    extents: Ints, chosen: Ints, device: Device, resources: tuple[Resources, ...] | None, method: Method
) -> Scheme:
    blocks = _blocks(extents, chosen, method.tiles)
    counts = np.bincount(chosen, blocks[:, 0] * blocks[:, 1], len(method.tiles)).astype(np.int64)
    return Scheme(chosen, counts, int(_tlp(device, counts[None], resources, method)[0]))


def single_schemes(
    items: ArrayLike, device: Device, resources: Sequence[Resources] | None = None, tiles: TileSet = TILES
) -> Iterator[Scheme]:
    """The schemes in which all items have the same tile, one for each tile, the smallest tile first."""
    extents, used = _extents(items), None if resources is None else tuple(resources)
    for index in range(len(tiles)):
        yield _scheme(extents, np.full(len(extents), index), device, used, Method(tiles))


def schemes(
    items: ArrayLike, device: Device, resources: Sequence[Resources] | None = None, method: Method = PAPER
) -> Iterator[Scheme]:
    """The schemes that Algorithm 1 visits: the initial one, then schemes in which every item's tile is one size smaller
    than before, until all tiles are the smallest. If items take smaller tiles one after the other (``method.single``):
    the initial scheme, and for each size the two schemes in which half and all of the items with this size are one size
    smaller."""
    extents, used = _extents(items), None if resources is None else tuple(resources)
    chosen = _initial_tiles(extents, method)
    yield _scheme(extents, chosen, device, used, method)
    if not method.single:
        while chosen.any():
            chosen = np.maximum(chosen - 1, 0)
            yield _scheme(extents, chosen, device, used, method)
        return
    for size in reversed(range(1, len(method.tiles))):
        having = np.flatnonzero(chosen == size)
        for some in np.array_split(having, 2):
            if len(some):
                chosen = chosen.copy()
                chosen[some] = size - 1
                yield _scheme(extents, chosen, device, used, method)


def choose_tiles(
    items: ArrayLike,
    device: Device,
    threshold: int | None = None,
    resources: Sequence[Resources] | None = None,
    method: Method = PAPER,
) -> Scheme:
    """The choice of Algorithm 1: the first scheme whose TLP is at least ``threshold``, else the scheme with the
    smallest tiles.

    ``items``: (M, N, K) of each item; ``threshold``: a number of threads, ``default_threshold`` if None; ``resources``:
    the resources of a block of each tile, estimated if None. InputError: an argument breaks a rule.
    """
    limit = default_threshold(device, resources, method) if threshold is None else threshold
    if method.single:
        return _choose_one_by_one(
            _extents(items), device, limit, None if resources is None else tuple(resources), method
        )
    scheme = None
    for scheme in schemes(items, device, resources, method):
        if scheme.tlp >= limit:
            break
    assert scheme is not None
    return scheme


def _choose_one_by_one(
    extents: Ints, device: Device, limit: int, resources: tuple[Resources, ...] | None, method: Method
) -> Scheme:
    """``choose_tiles`` for a method whose items take smaller tiles one after the other."""
    scheme = _scheme(extents, _initial_tiles(extents, method), device, resources, method)
    chosen = scheme.tiles
    for size in reversed(range(1, len(method.tiles))):
        if scheme.tlp >= limit:
            return scheme
        having = np.flatnonzero(chosen == size)
        if not len(having):
            continue
        before, after = (_blocks(extents[having], np.full(len(having), n), method.tiles) for n in (size, size - 1))
        counts = np.tile(scheme.counts, (len(having), 1))
        counts[:, size] -= np.cumsum(before.prod(axis=1))
        counts[:, size - 1] += np.cumsum(after.prod(axis=1))
        reached = np.flatnonzero(_tlp(device, counts, resources, method) >= limit)
        chosen = chosen.copy()
        chosen[having[: reached[0] + 1] if len(reached) else having] = size - 1
        scheme = _scheme(extents, chosen, device, resources, method)
    return scheme


def default_threshold(device: Device, resources: Sequence[Resources] | None = None, method: Method = PAPER) -> int:
    """The threshold of a device that was not tuned: half of the threads that are active when the device is full, so
    that a group that fills the device keeps its tiles. The article gives no number."""
    return full_tlp(device, resources, method.tiles) // 2


def tune_threshold(measured: Sequence[Sequence[tuple[int, float]]]) -> int:
    """The threshold with the least geometric mean of times; of several, the smallest. ``measured``: for each group,
    (TLP, time) of each of its schemes, in the order of ``schemes``."""
    if not measured or not all(measured):
        raise InputError("measured is empty; it must have the TLP and the time of at least one scheme of every group")
    known = sorted({t for group in measured for t, _ in group})
    return min((0, *known, known[-1] + 1), key=lambda threshold: log_mean(measured, threshold))


def log_mean(measured: Sequence[Sequence[tuple[int, float]]], threshold: int) -> float:
    """The mean of the logarithms of the times of the schemes that ``threshold`` chooses. ``measured``: as for
    ``tune_threshold``."""
    times = (next((us for t, us in group if t >= threshold), group[-1][1]) for group in measured)
    return sum(math.log(max(us, 1e-9)) for us in times) / len(measured)


def _extents(items: ArrayLike) -> Ints:
    """M, N and K of each item, one row per item. InputError: ``items`` is not a list of (M, N, K)."""
    extents = np.asarray(items, np.int64)
    if extents.size == 0:
        return np.zeros((0, 3), np.int64)
    if extents.ndim != 2 or extents.shape[1] != 3:
        raise InputError(f"items has shape {extents.shape}; it must be a list of (M, N, K)")
    if (extents < 0).any():
        i = int(np.argwhere(extents < 0)[0, 0])
        raise InputError(f"item {i} is {tuple(extents[i].tolist())}; extents must not be negative")
    return extents


# ---- the grid of the largest item


def idle_blocks(items: ArrayLike, chosen: ArrayLike, tiles: TileSet = TILES) -> int:
    """The number of blocks without a tile if every item has the grid of the largest one, as in MAGMA and in the
    authors' program: the third axis of the grid is the item, the other two have as many blocks as any item has tiles
    along M and N. ``chosen``: for each item the index of its tile."""
    blocks = blocks_of_items(items, chosen, tiles)
    if not len(blocks):
        return 0
    return int(blocks.max(axis=0).prod()) * len(blocks) - int(blocks.prod(axis=1).sum())
