"""The tile policy by thread-level parallelism: the tables, equations and algorithm of Zhang et al."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from ptxgen.errors import InputError
from ptxgen.operations.grouped import tlp_policy as policy
from ptxgen.operations.grouped.tlp_policy import TILES, Method, Resources, Tile
from ptxgen.problem.device import device

H200 = device("h200")
NAMES = [t.name for t in TILES]
#: Table 6, the last module
INCEPTION_9 = [(49, 192, 192), (49, 128, 192), (49, 384, 192), (49, 192, 192), (49, 48, 192)]
#: few registers, no shared memory: only threads and blocks limit the active warps
LIGHT = [Resources(16, 0)] * len(TILES)


def names(scheme: policy.Scheme) -> list[str]:
    return [NAMES[i] for i in scheme.tiles]


def test_workloads_of_table_3() -> None:
    rows = [(t.name, t.m, t.n, t.k, t.threads, t.compute_workload, t.load_workload) for t in TILES]
    assert rows == [
        ("small", 16, 16, 16, 128, 2, 6),
        ("small-medium", 16, 32, 16, 128, 4, 10),
        ("medium", 32, 32, 16, 128, 8, 16),
        ("medium-large", 32, 64, 16, 256, 8, 14),
        ("large", 64, 64, 16, 256, 16, 24),
    ]


@pytest.mark.parametrize(
    ("side", "compute", "loads"), [(16, 2, {8: 4, 16: 6}), (32, 8, {8: 12, 16: 16}), (64, 32, {8: 40, 16: 48})]
)
def test_workloads_of_table_2(side: int, compute: int, loads: dict[int, int]) -> None:
    """Tiles of earlier work, all with 128 threads: their workloads differ by a factor of 16."""
    for k, load in loads.items():
        tile = Tile("", side, side, k, 128)
        assert (tile.compute_workload, tile.load_workload) == (compute, load)


def test_each_tile_divides_the_next() -> None:
    for small, large in pairwise(TILES):
        assert large.m % small.m == large.n % small.n == 0
        assert large.m * large.n == 2 * small.m * small.n


def test_initial_tile_is_the_largest_that_divides_the_padded_extents() -> None:
    items = [(m, n, 8) for m in range(0, 145, 9) for n in (*range(0, 145, 16), 17, 33, 130)]
    for (m, n, _), chosen in zip(items, policy.initial_tiles(items), strict=True):
        rows, columns = -(-m // 16) * 16, -(-n // 16) * 16
        dividing = [i for i, t in enumerate(TILES) if rows % t.m == 0 and columns % t.n == 0]
        assert chosen == (dividing[-1] if m and n else 0), (m, n)


def test_resources_of_another_choice_are_not_kept() -> None:
    """The warps of a multiprocessor are kept by device and resources."""
    counts = [100_000, 0, 0, 0, 0]
    choices = [policy.tlp(d, counts, [Resources(n, 0)] * 5) for d in (H200, device("t4")) for n in (16, 128, 16)]
    assert choices[0] == choices[2] > choices[1]
    assert choices[3] == choices[5] > choices[4]
    assert choices[0] != choices[3]


def test_warps_by_the_number_of_blocks() -> None:
    """Equation 5: a block of up to 32 threads is one warp, so the limit is that of blocks."""
    assert [policy.warps_by_blocks(H200, t) for t in (1, 32, 33, 128, 256)] == [32, 32, 64, 128, 256]


def test_warps_by_registers_and_shared_memory() -> None:
    # the occupancy table of the CUDA guide for 65,536 registers
    for registers, warps in ((32, 64), (33, 48), (64, 32), (72, 28), (128, 16), (168, 12), (255, 8)):
        assert policy.warps_by_registers(H200, registers) == warps
    # 228 KiB, of which each block uses 1 KiB more than it declares
    assert policy.warps_by_shared(H200, 128, 16 << 10) == 228 // 17 * 4
    assert policy.warps_by_shared(H200, 256, 227 << 10) == 8
    assert policy.warps_by_shared(device("t4"), 256, 16 << 10) == 4 * 8


def test_active_warps_are_the_least_limit() -> None:
    assert policy.active_warps(H200, 256, Resources(32, 0)) == 64  # of threads
    assert policy.active_warps(H200, 32, Resources(32, 0)) == 32  # of blocks
    assert policy.active_warps(H200, 256, Resources(128, 0)) == 16  # of registers
    assert policy.active_warps(H200, 256, Resources(32, 100 << 10)) == 16  # of shared memory
    assert policy.active_warps(device("rtx4090"), 256, Resources(32, 0)) == 48


def test_active_warps_agree_with_resident_blocks() -> None:
    """Warps become active by whole blocks; Equation 9 is less than one block higher."""
    for tile in TILES:
        for registers in (24, 40, 96, 255):
            for shared in (0, 4096, 49152, 200_000):
                for name in ("t4", "rtx4090", "h200"):
                    d = device(name)
                    blocks = int(d.blocks_per_sm(tile.threads, registers, shared))
                    active = policy.active_warps(d, tile.threads, Resources(registers, shared))
                    assert blocks * tile.warps <= active < (blocks + 1) * tile.warps


def test_tlp_is_that_of_all_blocks_until_the_device_is_full() -> None:
    assert policy.tlp(H200, [10, 0, 0, 0, 0], LIGHT) == 10 * 128
    assert policy.tlp(H200, [0, 0, 0, 0, 10], LIGHT) == 10 * 256
    assert policy.tlp(H200, [0] * 5, LIGHT) == 0
    full = H200.sms * H200.threads_sm
    assert policy.tlp(H200, [0, 0, 0, 0, 100_000], LIGHT) == full == policy.tlp(H200, [9999] * 5, LIGHT)
    # 128 registers: 16 of 64 warps
    heavy = [Resources(128, 0)] * 5
    assert policy.tlp(H200, [0, 0, 0, 0, 100_000], heavy) == full // 4


def test_tlp_of_several_tiles_is_between_theirs() -> None:
    """Half of the multiprocessors' time for warps of which 64 are active, half for those of which 16 are."""
    mixed = [Resources(32, 0)] * 4 + [Resources(128, 0)]
    medium, large = 64 * H200.sms, 16 * H200.sms  # warps that fill the device
    counts = [0, 0, medium // 4, 0, large // 8]
    assert policy.tlp(H200, counts, mixed) == 32 * (medium + large) // 2


def test_resources_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match=r"resources of tile small are 4800 .* a block of 128 threads does not fit"):
        policy.tlp(H200, [1] * 5, [Resources(300 << 4, 0)] * 5)
    with pytest.raises(InputError, match="resources has 1 elements; it must have 5"):
        policy.tlp(H200, [1] * 5, LIGHT[:1])


@pytest.mark.parametrize(
    ("m", "n", "tile"),
    [
        (64, 64, "large"),
        (128, 512, "large"),
        (32, 64, "medium-large"),
        (96, 64, "medium-large"),
        (32, 32, "medium"),
        (64, 32, "medium"),
        (16, 32, "small-medium"),
        (784, 96, "small-medium"),
        (16, 16, "small"),
        (64, 16, "small"),
        (784, 16, "small"),
    ],
)
def test_initial_tile_is_the_largest_that_divides(m: int, n: int, tile: str) -> None:
    assert NAMES[policy.initial_tiles([(m, n, 192)])[0]] == tile
    fits = [t for t in TILES if m % t.m == n % t.n == 0 and t.m <= m and t.n <= n]  # Equation 10 as printed
    assert fits[-1].name == tile


def test_equation_10_gives_the_last_inception_module_no_tile_and_predicates_do() -> None:
    assert not any(m % t.m == 0 for m, _, _ in INCEPTION_9 for t in TILES)
    chosen = policy.initial_tiles(INCEPTION_9)
    assert [NAMES[i] for i in chosen] == ["large", "large", "large", "large", "small"]
    blocks = policy.blocks_of_items(INCEPTION_9, chosen)
    assert blocks.tolist() == [[1, 3], [1, 2], [1, 6], [1, 3], [4, 3]]


def test_predicates_add_no_more_than_the_smallest_tile_does() -> None:
    rng = np.random.default_rng(0)
    items = rng.integers(1, 600, (500, 3))
    chosen = policy.initial_tiles(items)
    sides = np.array([(t.m, t.n) for t in TILES])[chosen]
    covered = policy.blocks_of_items(items, chosen) * sides
    assert (covered == -(-items[:, :2] // 16) * 16).all()
    assert (items[:, :2] <= covered).all()


def test_empty_items_have_no_blocks() -> None:
    items = [(0, 64, 64), (64, 0, 64), (64, 64, 0), (1, 1, 1)]
    chosen = policy.initial_tiles(items)
    assert [NAMES[i] for i in chosen] == ["small", "small", "large", "small"]
    assert policy.blocks_of_items(items, chosen).prod(axis=1).tolist() == [0, 0, 1, 1]
    assert policy.choose_tiles([], H200).counts.tolist() == [0] * 5


def test_tiles_shrink_together_while_tlp_is_below_the_threshold() -> None:
    items = [(64, 64, 64), (32, 64, 64), (128, 128, 64)]
    seen = list(policy.schemes(items, H200, LIGHT))
    assert [names(s) for s in seen] == [
        ["large", "medium-large", "large"],
        ["medium-large", "medium", "medium-large"],
        ["medium", "small-medium", "medium"],
        ["small-medium", "small", "small-medium"],
        ["small", "small", "small"],
    ]
    # blocks: 1+1+4, 2+2+8, 4+4+16, 8+8+32, 16+8+64
    assert [s.counts.sum() for s in seen] == [6, 12, 24, 48, 88]
    assert [s.tlp for s in seen] == [6 * 256, 10 * 256 + 2 * 128, 24 * 128, 48 * 128, 88 * 128]
    for threshold, expected in ((0, 0), (1536, 0), (1537, 1), (2817, 2), (3073, 3), (6145, 4), (10**9, 4)):
        assert names(policy.choose_tiles(items, H200, threshold, LIGHT)) == names(seen[expected])


def test_large_groups_keep_their_initial_tiles() -> None:
    """The printed condition, ``while TLP >= threshold``, would shrink the tiles of a group that fills the device."""
    many, few = [(512, 512, 128)] * 256, [(512, 512, 128)] * 2
    assert set(names(policy.choose_tiles(many, H200))) == {"large"}
    assert set(names(policy.choose_tiles(few, H200))) == {"small-medium"}
    assert set(names(policy.choose_tiles(few[:1], H200))) == {"small"}


def test_default_threshold_is_half_of_what_every_tile_reaches() -> None:
    """With half of the resident threads, which the smallest tile alone reached, every list had the smallest tile."""
    used = [Resources(80, 17408)] * len(TILES)  # 24 of 64 warps by registers
    assert policy.full_tlp(H200, used) == 24 * 32 * H200.sms
    assert policy.default_threshold(H200, used) == 12 * 32 * H200.sms
    for index in range(len(TILES)):
        counts = [0] * len(TILES)
        counts[index] = 10**6
        assert policy.tlp(H200, counts, used) >= policy.full_tlp(H200, used)


def test_old_tlp_counts_the_threads_of_all_blocks() -> None:
    """Equation 3 knows no limit, so larger groups reach the same threshold with larger tiles."""
    old = Method(criterion=policy.BLOCKS)
    assert policy.tlp(H200, [1, 2, 3, 4, 10**6], None, old) == 6 * 128 + (4 + 10**6) * 256
    items = [(256, 256, 64)] * 40
    threshold = H200.sms * H200.threads_sm
    assert set(names(policy.choose_tiles(items, H200, threshold, LIGHT, old))) == {"medium-large"}
    heavy = [Resources(128, 0)] * 5  # a quarter of the resident threads, which no scheme can exceed
    assert set(names(policy.choose_tiles(items, H200, threshold, heavy))) == {"small"}


def test_items_take_smaller_tiles_one_after_the_other() -> None:
    """As in the authors' program: those with the largest tile first, until the threshold is reached."""
    single = Method(single=True)
    items = [(64, 64, 64)] * 3 + [(32, 32, 64)]
    for threshold, expected in (
        (896, ["large", "large", "large", "medium"]),
        (897, ["medium-large", "large", "large", "medium"]),
        (1409, ["medium-large", "medium-large", "medium-large", "medium"]),
        (1665, ["small-medium", "medium", "medium", "medium"]),
        (10**9, ["small"] * 4),
    ):
        assert names(policy.choose_tiles(items, H200, threshold, LIGHT, single)) == expected
    visited = list(policy.schemes(items, H200, LIGHT, single))
    assert names(visited[0])[:3] == ["large"] * 3
    assert names(visited[-1]) == ["small"] * 4
    assert all((a.tiles >= b.tiles).all() for a, b in pairwise(visited))


def test_choice_one_after_the_other_is_the_first_that_reaches_the_threshold() -> None:
    rng = np.random.default_rng(3)
    items, single = rng.integers(1, 300, (12, 3)), Method(single=True)
    tiles, seen = policy.initial_tiles(items), []
    for size in (4, 3, 2, 1):  # a plain loop
        for i in np.flatnonzero(tiles == size):
            seen.append(policy.scheme_of(items, tiles, H200, LIGHT, single))
            tiles = tiles.copy()
            tiles[i] = size - 1
    seen.append(policy.scheme_of(items, tiles, H200, LIGHT, single))
    for threshold in (0, *sorted({s.tlp for s in seen})[::5], 10**9):
        expected = next((s for s in seen if s.tlp >= threshold), seen[-1])
        assert names(policy.choose_tiles(items, H200, threshold, LIGHT, single)) == names(expected)


def test_initial_tiles_need_not_divide() -> None:
    fits = Method(initial=policy.FITS)
    items = [(63, 65, 9), (784, 96, 9), (17, 40, 9), (33, 40, 9), (5, 300, 9), (0, 64, 64)]
    chosen = [NAMES[i] for i in policy.initial_tiles(items, fits)]
    assert chosen == ["large", "large", "medium", "medium", "small-medium", "small"]


def test_initial_tiles_may_cover_a_quarter_more() -> None:
    near = Method(initial=policy.NEAR)
    items = [(500, 500, 9), (300, 300, 9), (200, 200, 9), (70, 70, 9), (64, 64, 9), (16, 16, 9), (0, 8, 8), (1, 1, 1)]
    chosen = policy.initial_tiles(items, near)
    assert [NAMES[i] for i in chosen] == [
        *("large", "large", "medium", "small-medium", "large", "small", "small", "small"),
    ]
    rng = np.random.default_rng(5)
    items = rng.integers(1, 400, (200, 3))
    sides = np.array([(t.m, t.n) for t in TILES])
    covered = [(policy.blocks_of_items(items, np.full(200, i)) * sides[i]).prod(axis=1) for i in range(len(TILES))]
    for i, tile in enumerate(policy.initial_tiles(items, near)):
        allowed = [t for t in range(len(TILES)) if covered[t][i] <= 1.25 * covered[0][i]]
        assert tile == allowed[-1]


def test_tiles_of_earlier_work_all_have_128_threads() -> None:
    """Table 2: the workloads of threads differ by a factor of 16."""
    rows = [(t.m, t.n, t.k, t.compute_workload, t.load_workload) for t in policy.UNIFORM_TILES]
    assert rows == [(16, 16, 16, 2, 6), (32, 32, 16, 8, 16), (64, 64, 16, 32, 48)]
    uniform = Method(policy.UNIFORM_TILES)
    assert policy.initial_tiles([(64, 128, 9), (32, 64, 9), (64, 16, 9)], uniform).tolist() == [2, 1, 0]
    seen = [s.tiles.tolist() for s in policy.schemes([(64, 64, 9), (32, 32, 9)], H200, method=uniform)]
    assert seen == [[2, 1], [1, 0], [0, 0]]


def test_occupancy_is_that_of_active_warps() -> None:
    """Equation 12."""
    assert policy.occupancy(H200, [0, 0, 0, 0, 10**6], LIGHT) == 1
    assert policy.occupancy(H200, [10**6, 0, 0, 0, 0], [Resources(128, 0)] * 5) == 0.25
    assert policy.occupancy(H200, [0] * 5, LIGHT) == 0


def test_single_tiles_are_schemes_of_one_tile() -> None:
    schemes = list(policy.single_schemes([(64, 64, 9), (20, 20, 9)], H200, LIGHT))
    assert [names(s) for s in schemes] == [[name] * 2 for name in NAMES]
    assert [int(s.counts.sum()) for s in schemes] == [16 + 4, 8 + 2, 4 + 1, 2 + 1, 1 + 1]


def test_steps_keep_dividing() -> None:
    rng = np.random.default_rng(1)
    items = rng.integers(1, 20, (100, 3)) * 16
    for scheme in policy.schemes(items, H200):
        sides = np.array([(t.m, t.n) for t in TILES])[scheme.tiles]
        assert (items[:, :2] % sides == 0).all()
        assert scheme.counts.sum() == policy.blocks_of_items(items, scheme.tiles).prod(axis=1).sum()


def test_registers_of_a_kernel_change_the_choice() -> None:
    items = [(256, 256, 64)] * 40
    heavy = [*LIGHT[:4], Resources(255, 64 << 10)]
    threshold = 64_000
    assert set(names(policy.choose_tiles(items, H200, threshold, LIGHT))) == {"large"}
    assert set(names(policy.choose_tiles(items, H200, threshold, heavy))) == {"medium-large"}


def test_threshold_is_tuned_by_times() -> None:
    # one group is faster with small tiles, the other with large ones
    small, large = [(1000, 9.0), (2000, 5.0), (3000, 3.0)], [(8000, 2.0), (9000, 4.0), (9500, 5.0)]
    assert policy.tune_threshold([small, large]) == 3000
    assert policy.tune_threshold([large]) == 0
    assert policy.tune_threshold([[(10, 3.0), (20, 2.0), (20, 1.0)]]) == 21  # the last scheme, which no TLP reaches
    with pytest.raises(InputError, match="measured is empty"):
        policy.tune_threshold([])


def test_idle_blocks_of_the_grid_of_the_largest_item() -> None:
    items = [(64, 64, 64), (128, 256, 64), (16, 16, 64)]
    assert policy.idle_blocks(items, policy.initial_tiles(items)) == 2 * 4 * 3 - (1 + 8 + 1)
    assert policy.idle_blocks([(16, 16, 16)], [0]) == 0
    assert policy.idle_blocks([], []) == 0


def test_wrong_items_are_named() -> None:
    with pytest.raises(InputError, match=r"item 1 is \(4, -1, 4\)"):
        policy.choose_tiles([(4, 4, 4), (4, -1, 4)], H200)
    with pytest.raises(InputError, match=r"items has shape \(2, 2\)"):
        policy.initial_tiles([(4, 4), (4, 4)])
    with pytest.raises(InputError, match=r"chosen has shape \(1,\); it must have one index for each of 2 items"):
        policy.scheme_of([(4, 4, 4)] * 2, [0], H200)
    with pytest.raises(InputError, match="chosen has 0 to 5; indices must be 0 to 4"):
        policy.scheme_of([(4, 4, 4)] * 2, [0, 5], H200)
    with pytest.raises(InputError, match="criterion is 'x'; it must be one of warps, blocks"):
        Method(criterion="x")
    with pytest.raises(InputError, match="initial is 'x'; it must be one of divides, near, fits"):
        Method(initial="x")


def test_estimated_resources_fit_every_device() -> None:
    for name in ("t4", "a100", "rtx4090", "h200", "b200", "rtx5090"):
        for size in (2, 4, 8):
            used = [policy.estimated_resources(t, size) for t in TILES]
            assert all(r.registers <= 255 and r.shared <= device(name).shared_block for r in used)
            assert policy.tlp(device(name), [1] * 5, used) > 0
