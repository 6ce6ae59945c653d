"""The tile policy of Zhang et al. (Journal of Systems Architecture 160, 2025, 103341) for grouped products.

Every item gets one of five tiles. The initial tile is the largest one that divides the item's M and N. While the
thread-level parallelism (TLP) of the whole group is below a threshold of the device, every item takes the next smaller
tile. TLP counts the threads of the warps that are active at the same time, from the resources of a block and the
limits of a multiprocessor.

Tables, equations and algorithms in this module are those of that article. Two lines of its Algorithm 1 are not
followed. Line 8 prints ``while TLP >= threshold``; the text says that tiles shrink while TLP is below the threshold.
Line 19 adds the new number of tiles to the old one; here it replaces it. A ``Method`` names the choices that the
article compares, and what its authors' program (github.com/zhangyu0722/BatchGEMM) does in another way.
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
PARTITIONS = 4  #: of a multiprocessor, each with a warp scheduler and a quarter of the registers
REGISTER_UNIT = 8  #: registers per thread are allocated in multiples of it


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
        """Equation 1, the column W_CP: elements of C per thread."""
        return self.m * self.n / self.threads

    @property
    def load_workload(self) -> float:
        """Equation 2, the column W_DL: elements of A, B and C that a thread loads in a step."""
        return (self.m * self.n + self.m * self.k + self.k * self.n) / self.threads

    @property
    def warps(self) -> int:
        return math.ceil(self.threads / WARP)


@dataclass(frozen=True)
class TileSet:
    """The tiles that items choose from, the smallest first. Each divides the next."""

    tiles: tuple[Tile, ...]

    def __iter__(self) -> Iterator[Tile]:
        return iter(self.tiles)

    def __len__(self) -> int:
        return len(self.tiles)

    def __getitem__(self, index: int) -> Tile:
        return self.tiles[index]

    @cached_property
    def sides(self) -> Ints:
        """Rows and columns of each tile."""
        return np.array([(tile.m, tile.n) for tile in self.tiles])

    @cached_property
    def warps(self) -> Ints:
        """Warps of a block of each tile."""
        return np.array([tile.warps for tile in self.tiles])

    @cached_property
    def threads(self) -> Ints:
        """Threads of a block of each tile."""
        return np.array([tile.threads for tile in self.tiles])

    @cached_property
    def unit(self) -> int:
        """The least side."""
        return int(self.sides.min())

    @cached_property
    def period(self) -> int:
        """The greatest side, in units."""
        return int(self.sides.max()) // self.unit

    @cached_property
    def largest_that_divides(self) -> Ints:
        """For extents M and N in units, modulo ``period``: the index of the largest tile that divides both."""
        return self._largest(lambda extents: np.equal(extents % self.sides, 0), 0)

    @cached_property
    def largest_that_fits(self) -> Ints:
        """For extents M and N in units, at most ``period``: the index of the largest tile that is not greater."""
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
#: Table 2: the tiles of earlier work, all with 128 threads; of its two depths the one that Table 3 has
UNIFORM_TILES = TileSet(
    (Tile("small", 16, 16, 16, 128), Tile("medium", 32, 32, 16, 128), Tile("large", 64, 64, 16, 128))
)

WARPS, BLOCKS = "warps", "blocks"  #: values of ``Method.criterion``
DIVIDES, NEAR, FITS = "divides", "near", "fits"  #: values of ``Method.initial``
#: elements of C that tiles of ``near`` cover at most, over those that the smallest tile covers
MOST_COVERED = 1.25


@dataclass(frozen=True)
class Method:
    """What Algorithm 1 chooses by.

    ``tiles``: those that items choose from. ``criterion``: ``warps``: TLP by Equation 4, of the warps that are active
    at once; ``blocks``: by Equation 3, of all threads of all blocks, as earlier work counts it. ``initial``:
    ``divides``: the initial tile divides M and N (Equation 10); ``near``: it computes at most a quarter more elements
    than the smallest tile, which its edges outside C add; ``fits``: it is not greater than M and N. ``single``:
    items take a smaller tile one after the other, those with the largest tile first, until TLP reaches the threshold,
    as in the authors' program; else all items take it together, as Algorithm 1 prints it.
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
    """What a block of a kernel occupies. ``registers``: per thread; ``shared``: bytes per block."""

    registers: int
    shared: int


def estimated_resources(tile: Tile, element_bytes: int = 4, stages: int = 2) -> Resources:
    """Resources of a kernel of ``tile`` that is not assembled yet: registers for the sums, the loaded elements of A and
    B and 32 addresses and counters; shared memory for ``stages`` tiles of A and B."""
    words = max(element_bytes // 4, 1)
    loads = math.ceil((tile.load_workload - tile.compute_workload) * element_bytes / 4)
    return Resources(
        registers=32 + math.ceil(tile.compute_workload) * words + loads,
        shared=stages * (tile.m + tile.n) * tile.k * element_bytes,
    )


# ---- Equations 5 to 9: active warps of a multiprocessor


def warps_by_blocks(device: Device, threads: int) -> int:
    """Equation 5: the limit of resident blocks, times the warps of a block."""
    return device.blocks_sm * math.ceil(threads / WARP)


def warps_by_registers(device: Device, registers: int) -> int:
    """Equation 6: each partition holds the warps whose registers fit its quarter of the register file."""
    allocated = math.ceil(max(registers, 1) / REGISTER_UNIT) * REGISTER_UNIT
    return PARTITIONS * (device.registers_sm // PARTITIONS // (allocated * WARP))


def warps_by_shared(device: Device, threads: int, shared: int) -> int:
    """Equation 8: the blocks whose shared memory fits, times the warps of a block."""
    return device.shared_sm // max(shared + device.shared_reserved, 1) * math.ceil(threads / WARP)


def active_warps(device: Device, threads: int, resources: Resources) -> int:
    """Equation 9: warps that are active on one multiprocessor at the same time.

    ``threads``: those that compute a tile. The surplus threads of the kernel count as ended, with what they occupied.
    Equation 7, the scalar registers of AMD's GPUs, has no counterpart: uniform registers of NVIDIA's GPUs limit no
    occupancy.
    """
    return min(
        warps_by_blocks(device, threads),
        warps_by_registers(device, resources.registers),
        warps_by_shared(device, threads, resources.shared),
        device.threads_sm // WARP,
    )


# ---- Equations 3 and 4: thread-level parallelism of a group


def tlp(device: Device, counts: ArrayLike, resources: Sequence[Resources] | None = None, method: Method = PAPER) -> int:
    """Equation 4: threads of the warps that are active on the device at the same time.

    ``counts``: number of blocks of each tile; ``resources``: those of a block of each tile, estimated if None. With one
    tile this is the smaller of all its warps and what Equation 9 lets be active on all multiprocessors. With
    several, each warp occupies its tile's fraction of a multiprocessor. Equation 3, if it is the criterion: threads of
    all blocks. InputError: a block does not fit a multiprocessor.
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
    """Threads that are active on a device full of blocks of the tile that has the fewest."""
    active = _active_by_tile(device, None if resources is None else tuple(resources), tiles)
    return int(WARP * device.sms * active.min())


def occupancy(
    device: Device, counts: ArrayLike, resources: Sequence[Resources] | None = None, tiles: TileSet = TILES
) -> float:
    """Equation 12: active warps over those that the device supports, while as many blocks run as fit at once."""
    return tlp(device, counts, resources, Method(tiles)) / (device.sms * device.threads_sm)


@lru_cache(64)
def _active_by_tile(device: Device, resources: tuple[Resources, ...] | None, tiles: TileSet) -> NDArray[np.float64]:
    """Active warps of a multiprocessor for each tile. InputError: a block does not fit."""
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
    """A tile for every item. ``tiles``: indices into the tiles of the method, one an item; ``counts``: blocks of each
    tile; ``tlp``: thread-level parallelism of the group."""

    tiles: Ints
    counts: Ints
    tlp: int


def initial_tiles(items: ArrayLike, method: Method = PAPER) -> Ints:
    """Equation 10: for each (M, N, K), the index of the largest tile that divides M and N.

    Predicates relax it: extents count as rounded up to the smallest tile. So every item has a tile, and no tile
    computes more elements outside C than the smallest one would. The last step along K is predicated too, and does not
    limit the choice. Empty items have the smallest tile. If ``method.initial`` is ``near`` or ``fits``, tiles need not
    divide the extents.
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
    """Tiles along M and along N of each item, one row an item. ``chosen``: the index of the tile of each."""
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
    """The scheme with given tiles, one an item. InputError: an argument breaks a rule."""
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
    """For each tile the scheme in which all items have it, the smallest tile first."""
    extents, used = _extents(items), None if resources is None else tuple(resources)
    for index in range(len(tiles)):
        yield _scheme(extents, np.full(len(extents), index), device, used, Method(tiles))


def schemes(
    items: ArrayLike, device: Device, resources: Sequence[Resources] | None = None, method: Method = PAPER
) -> Iterator[Scheme]:
    """The schemes that Algorithm 1 visits: the initial one, then each with every item's tile one size smaller, until
    all tiles are the smallest. If items take smaller tiles one after the other: the initial scheme, and for each size
    those with half and with all items of this size one size smaller."""
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
    """Algorithm 1: the first scheme whose TLP is at least ``threshold``, else the one with the smallest tiles.

    ``items``: (M, N, K) of each; ``threshold``: threads, ``default_threshold`` if None; ``resources``: those of a block
    of each tile, estimated if None. InputError: an argument breaks a rule.
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
    """Does what ``choose_tiles`` does, by a method whose items take smaller tiles one after the other."""
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
    """The threshold of a device without a tuned one: half of the threads that are active when it is full, so that a
    group that fills it keeps its tiles. The article gives no number."""
    return full_tlp(device, resources, method.tiles) // 2


def tune_threshold(measured: Sequence[Sequence[tuple[int, float]]]) -> int:
    """The threshold with the least geometric mean of times. ``measured``: for each group, (TLP, time) of each of its
    schemes in the order of ``schemes``. The smallest of equally good thresholds."""
    if not measured or not all(measured):
        raise InputError("measured is empty; it must have the TLP and the time of at least one scheme of every group")
    known = sorted({t for group in measured for t, _ in group})
    return min((0, *known, known[-1] + 1), key=lambda threshold: log_mean(measured, threshold))


def log_mean(measured: Sequence[Sequence[tuple[int, float]]], threshold: int) -> float:
    """The mean of the logarithms of the times that ``threshold`` chooses. ``measured``: that of ``tune_threshold``."""
    times = (next((us for t, us in group if t >= threshold), group[-1][1]) for group in measured)
    return sum(math.log(max(us, 1e-9)) for us in times) / len(measured)


def _extents(items: ArrayLike) -> Ints:
    """M, N and K of each item, one row an item. InputError: ``items`` is not a list of three extents each."""
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
    """The blocks without a tile in a grid of the largest item, as MAGMA and the authors' program launch it: the third
    axis is the item, the others are tiles along M and N of the item that has the most. ``chosen``: as ``choose_tiles``
    gives them."""
    blocks = blocks_of_items(items, chosen, tiles)
    if not len(blocks):
        return 0
    return int(blocks.max(axis=0).prod()) * len(blocks) - int(blocks.prod(axis=1).sum())
