"""The tile policy on the emulated device: one launch of one kernel, whose blocks have different tiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxgen.operations.grouped.checks import group_deviation, random_group
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.grouped.tile_kernel import SPLIT_K, WHOLE_K
from ptxgen.operations.grouped.tlp_policy import TILES, scheme_of
from ptxgen.operations.grouped.tlp_schedule import VARIANTS, Setting, TlpBaseline, TlpSchedule
from ptxgen.problem.device import device
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Buffers

FEW_SMS = replace(device("h200"), sms=2)
#: extents of every tile, primes, an item without elements, one without K
ITEMS = ((64, 64, 20), (33, 17, 40), (16, 32, 5), (0, 4, 4), (32, 64, 9), (32, 32, 16), (7, 9, 0), (16, 48, 33))
SOME = ITEMS[:4]


def check(schedule, driver):
    """Integers have exact products, and nothing else of C is written. The grid of each launch."""
    p = schedule.problem
    policy, arrays = TlpBaseline(driver, p, schedule=schedule), random_group(p, 0, "integers")
    arrays["C"][...] = p.output.poison
    with Buffers(driver, arrays) as buffers:
        steps = policy.steps(buffers.addresses)
        policy.run(steps)
        out = np.empty_like(arrays["C"])
        driver.download(buffers.addresses["C"], out)
    assert group_deviation(p, arrays, out, "integers").ratio == 0
    return [step.grid for _, step, _ in steps]


@pytest.mark.parametrize("bodies", [SPLIT_K, WHOLE_K])
def test_items_with_different_tiles_are_one_launch(bodies):
    """Every tile of Table 3 occurs."""
    driver = EmulatedDriver(FEW_SMS)
    schedule = TlpSchedule.choose(GroupedGemm(ITEMS), driver.device, setting=Setting(0, bodies))
    facts = schedule.facts()
    assert [t["tile"] for t in facts["tiles"]] == ["large", "medium-large", "medium", "small-medium", "small"]
    assert sum(t["items"] for t in facts["tiles"]) == len(ITEMS) - 1
    [(_, source)] = schedule.sources()
    assert len(source.entries) == 1
    assert ".maxntid 256" in source.text
    assert check(schedule, driver) == [(sum(t["blocks"] for t in facts["tiles"]), 1, 1)]


@pytest.mark.parametrize(
    ("layout", "fields", "name"),
    [
        ("TT", {}, "h200"),
        ("NT", {"ld": "48:80:68"}, "h200"),  # 16-byte accesses by cp.async
        ("NN", {"ld": "48:80:68"}, "t4"),  # without it
        ("TN", {"dtype": "f64"}, "h200"),
        ("NT", {"dtype": "bf16"}, "h200"),
        ("NN", {"dtype": "f16", "out": "f32"}, "t4"),
    ],
)
def test_layouts_types_and_devices(layout, fields, name):
    items = tuple((min(m, 48), n, min(k, 48)) for m, n, k in SOME[:3])
    d = replace(device(name), sms=2)
    assert check(TlpSchedule.choose(GroupedGemm(items, layout, **fields), d, 0), EmulatedDriver(d))


def test_grid_of_the_largest_item_has_idle_blocks():
    driver = EmulatedDriver(FEW_SMS)
    schedule = TlpSchedule.choose(GroupedGemm(SOME), driver.device, 10**9, VARIANTS["tlp_grid"])
    assert check(schedule, driver) == [(4, 4, 4)]
    assert schedule.idle_blocks == 64 - (16 + 6 + 2)


@pytest.mark.parametrize("variant", ["tlp_uniform", "vbatched"])
def test_variants(variant):
    driver = EmulatedDriver(FEW_SMS)
    schedule = TlpSchedule.choose(GroupedGemm(SOME), driver.device, 0, VARIANTS[variant])
    assert check(schedule, driver)
    assert f"--schedule {variant}\n" in schedule.sources()[0][1].text
    if variant == "vbatched":
        assert [t["tile"] for t in schedule.facts()["tiles"]] == ["large"]
    else:
        assert ".maxntid 128" in schedule.sources()[0][1].text


def test_any_tiles_may_be_given():
    driver, p = EmulatedDriver(FEW_SMS), GroupedGemm(SOME)
    used = scheme_of(p.extents, [0, 4, 1, 2], driver.device)
    schedule = TlpSchedule(p, driver.device, used)
    check(schedule, driver)
    assert [(t["tile"], t["items"]) for t in schedule.facts()["tiles"]] == [
        ("large", 1),
        ("small-medium", 1),
        ("small", 1),
    ]
    assert [s.facts()["tiles"][0]["tile"] for s in TlpSchedule.single(p, driver.device)] == [t.name for t in TILES]


@pytest.mark.first(2)
@pytest.mark.parametrize("seed", range(4))
def test_random_lists_and_tiles(seed):
    """Any item may have any tile. Rows have random gaps, and memory around each item is poisoned."""
    rng = np.random.default_rng(seed)
    items = tuple((int(m), int(n), int(k)) for m, n, k in rng.integers(0, 70, (5, 3)))
    layout = ("NN", "NT", "TN", "TT")[seed]
    gap = (0, 4)[seed % 2]
    sides = ((m, k, n, k) for m, n, k in items)
    lds = [(k if layout[0] == "N" else m, n if layout[1] == "N" else k, n) for m, k, n, _ in sides]
    ld = ",".join(":".join(str(max(-(-x // 4) * 4 + gap, 4) if gap else max(x, 1)) for x in row) for row in lds)
    d = replace(device("t4" if seed == 2 else "h200"), sms=2)
    p = GroupedGemm(items, layout, ld=ld)
    scheme = scheme_of(p.extents, rng.integers(0, len(TILES), len(items)), d)
    check(TlpSchedule(p, d, scheme, bodies=(SPLIT_K, WHOLE_K)[seed // 2]), EmulatedDriver(d))


def test_checks_and_times():
    driver = EmulatedDriver(FEW_SMS)
    policy = TlpBaseline(driver, GroupedGemm(((20, 17, 9), (64, 64, 5))), threshold=0)
    results = list(policy.check())
    assert all(result.ok for result in results)
    arrays = random_group(policy.problem, 0, "integers")
    with Buffers(driver, arrays) as buffers:
        assert policy.best([buffers.addresses], Timing()).best > 0


def test_list_without_elements_has_no_launch():
    driver = EmulatedDriver(FEW_SMS)
    policy = TlpBaseline(driver, GroupedGemm(((0, 4, 4), (4, 0, 4))))
    assert policy.steps(dict.fromkeys("ABC", 0)) == []
