"""The tile policy of Zhang et al. (Journal of Systems Architecture 160, 2025, 103341) for grouped products.

Every item gets one of five tiles. The initial tile is the largest one that divides the item's M and N. While the
thread-level parallelism (TLP) of the whole group is below a threshold of the device, every item takes the next smaller
tile. TLP counts the threads of the warps that are active at the same time, from the resources of a block and the
limits of a multiprocessor.

Tables, equations and algorithms in this module are those of that article. Two lines of its Algorithm 1 are not
followed. Line 8 prints ``while TLP >= threshold``; the text says that tiles shrink while TLP is below the threshold.
Line 19 adds the new number of tiles to the old one; here it replaces it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

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


#: Table 3, from the smallest tile to the largest. Each divides the next
TILES = (
    Tile("small", 16, 16, 16, 128),
    Tile("small-medium", 16, 32, 16, 128),
    Tile("medium", 32, 32, 16, 128),
    Tile("medium-large", 32, 64, 16, 256),
    Tile("large", 64, 64, 16, 256),
)
#: rows and columns, and warps of a block, of each of TILES
_SIDES = np.array([(tile.m, tile.n) for tile in TILES])
_WARPS = np.array([tile.warps for tile in TILES])
_UNIT, _PERIOD = _SIDES.min(), _SIDES.max() // _SIDES.min()


def _largest_tiles() -> Ints:
    """For extents M and N in units of the smallest tile, modulo ``_PERIOD``: the index of the largest tile that divides
    both."""
    extents = np.stack(np.meshgrid(np.arange(_PERIOD), np.arange(_PERIOD), indexing="ij"), axis=-1) * _UNIT
    divides = (extents[..., None, :] % _SIDES == 0).all(axis=-1)
    return np.asarray(len(TILES) - 1 - divides[..., ::-1].argmax(axis=-1), np.int64)


_LARGEST = _largest_tiles()


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


def tlp(device: Device, counts: ArrayLike, resources: Sequence[Resources] | None = None) -> int:
    """Equation 4: threads of the warps that are active on the device at the same time.

    ``counts``: number of blocks of each of TILES; ``resources``: those of a block of each tile, estimated if None.
    With one kind of tile this is the smaller of all its warps and what Equation 9 lets be active on all
    multiprocessors. With several, each warp occupies its tile's fraction of a multiprocessor. InputError: a block does
    not fit a multiprocessor.
    """
    blocks = np.asarray(counts, np.int64)
    warps = blocks * _WARPS
    occupied = (warps / _active_by_tile(device, None if resources is None else tuple(resources))).sum()
    active = min(1.0, device.sms / occupied) if occupied else 0.0
    return int(WARP * round(float(warps.sum()) * active, 6))


@lru_cache(64)
def _active_by_tile(device: Device, resources: tuple[Resources, ...] | None) -> NDArray[np.float64]:
    """Active warps of a multiprocessor for each tile. InputError: a block does not fit."""
    given = tuple(estimated_resources(t) for t in TILES) if resources is None else resources
    if len(given) != len(TILES):
        raise InputError(f"resources has {len(given)} elements; it must have {len(TILES)}, one for each tile")
    active = [active_warps(device, t.threads, r) for t, r in zip(TILES, given, strict=True)]
    for tile, used, warps in zip(TILES, given, active, strict=True):
        if warps < tile.warps:
            raise InputError(
                f"resources of tile {tile.name} are {used.registers} registers per thread and {used.shared} bytes of"
                f" shared memory; a block of {tile.threads} threads does not fit a multiprocessor of {device.name}"
            )
    return np.array(active, np.float64)


# ---- Algorithm 1


@dataclass(frozen=True)
class Scheme:
    """A tile for every item. ``tiles``: indices into TILES, one an item; ``counts``: blocks of each of TILES; ``tlp``:
    thread-level parallelism of the group."""

    tiles: Ints
    counts: Ints
    tlp: int


def initial_tiles(items: ArrayLike) -> Ints:
    """Equation 10: for each (M, N, K), the index of the largest tile that divides M and N.

    Predicates relax it: extents count as rounded up to the smallest tile. So every item has a tile, and no tile
    computes more elements outside C than the smallest one would. The last step along K is predicated too, and does not
    limit the choice. Empty items have the smallest tile.
    """
    return _initial_tiles(_extents(items))


def _initial_tiles(extents: Ints) -> Ints:
    """``initial_tiles`` of checked extents."""
    units = -(-extents[:, :2] // _UNIT)
    chosen: Ints = _LARGEST[units[:, 0] % _PERIOD, units[:, 1] % _PERIOD]
    chosen[(units == 0).any(axis=1)] = 0
    return chosen


def blocks_of_items(items: ArrayLike, tiles: ArrayLike) -> Ints:
    """Tiles along M and along N of each item, one row an item."""
    return _blocks(_extents(items), np.asarray(tiles, np.int64))


def _blocks(extents: Ints, tiles: Ints) -> Ints:
    """``blocks_of_items`` of checked extents."""
    return np.asarray(-(-extents[:, :2] // _SIDES[tiles].reshape(-1, 2)), np.int64)


def schemes(items: ArrayLike, device: Device, resources: Sequence[Resources] | None = None) -> Iterator[Scheme]:
    """The schemes that Algorithm 1 visits: the initial one, then each with every item's tile one size smaller, until
    all tiles are the smallest."""
    extents, used = _extents(items), None if resources is None else tuple(resources)
    tiles = _initial_tiles(extents)
    while True:
        blocks = _blocks(extents, tiles)
        counts = np.bincount(tiles, blocks[:, 0] * blocks[:, 1], len(TILES)).astype(np.int64)
        yield Scheme(tiles, counts, tlp(device, counts, used))
        if not tiles.any():
            return
        tiles = np.maximum(tiles - 1, 0)


def choose_tiles(
    items: ArrayLike, device: Device, threshold: int | None = None, resources: Sequence[Resources] | None = None
) -> Scheme:
    """Algorithm 1: the first scheme whose TLP is at least ``threshold``, else the one with the smallest tiles.

    ``items``: (M, N, K) of each; ``threshold``: threads, ``default_threshold`` if None; ``resources``: those of a block
    of each of TILES, estimated if None. InputError: an argument breaks a rule.
    """
    limit = default_threshold(device) if threshold is None else threshold
    scheme = None
    for scheme in schemes(items, device, resources):
        if scheme.tlp >= limit:
            break
    assert scheme is not None
    return scheme


def default_threshold(device: Device) -> int:
    """The threshold of a device without a tuned one: half of its resident threads."""
    return device.sms * device.threads_sm // 2


def tune_threshold(measured: Sequence[Sequence[tuple[int, float]]]) -> int:
    """The threshold with the least geometric mean of times. ``measured``: for each group, (TLP, time) of each of its
    schemes in the order of ``schemes``. The smallest of equally good thresholds."""
    if not measured or not all(measured):
        raise InputError("measured is empty; it must have the TLP and the time of at least one scheme of every group")

    def mean(threshold: int) -> float:
        times = (next((us for t, us in group if t >= threshold), group[-1][1]) for group in measured)
        return sum(math.log(us) for us in times)

    known = sorted({t for group in measured for t, _ in group})
    return min((0, *known, known[-1] + 1), key=mean)


def _extents(items: ArrayLike) -> Ints:
    """M, N and K of each item, one row an item. InputError: ``items`` is not a list of three extents each."""
    found = np.asarray(items, np.int64)
    if found.size == 0:
        return np.zeros((0, 3), np.int64)
    if found.ndim != 2 or found.shape[1] != 3:
        raise InputError(f"items has shape {found.shape}; it must be a list of (M, N, K)")
    if (found < 0).any():
        i = int(np.argwhere(found < 0)[0, 0])
        raise InputError(f"item {i} is {tuple(found[i].tolist())}; extents must not be negative")
    return found


# ---- the launch of Zhang et al.


def idle_blocks(items: ArrayLike, tiles: ArrayLike) -> int:
    """The blocks without a tile in the launch of Zhang et al., a baseline: grid z is the item, x and y are tiles along
    M and N of the largest item. ``tiles``: as ``choose_tiles`` gives them."""
    blocks = blocks_of_items(items, np.asarray(tiles, np.int64))
    if not len(blocks):
        return 0
    return int(blocks.max(axis=0).prod()) * len(blocks) - int(blocks.prod(axis=1).sum())
