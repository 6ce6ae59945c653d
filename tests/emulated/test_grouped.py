"""Grouped products, executed with checks for bounds and races: random groups, items anywhere in memory, planted
faults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import RaceFault
from ptxgen.families.plan_factory import plan_for
from ptxgen.operations.grouped.checks import group_deviation, random_group
from ptxgen.operations.grouped.launch import GroupLaunch
from ptxgen.operations.grouped.problem import GroupedGemm, write_leading_dimensions
from ptxgen.problem.device import device
from ptxgen.problem.reference import compare, operands, reference
from ptxgen.runtime.check import CASES
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from ptxgen.runtime.workspace import Workspaces
from tests.cases import SOURCES
from tests.emulated.gemm_runs import right

SIMT = parse_config("ms=4 ns=4 ml=32 nl=32 u=8 stages=3 vec_a=1 vec_b=1 vec_c=1")
ITEMS = ((33, 17, 20), (0, 5, 5), (5, 0, 3), (7, 9, 0), (64, 64, 64), (1, 1, 1), (13, 37, 101), (70, 70, 9))
FEW_SMS = replace(device("emulated"), sms=2)  #: blocks compute several tiles


@pytest.mark.parametrize("family", ["simt", "mma", "wgmma", "wgmma_scaled"])
def test_random_groups(family):
    """Each of the kinds of input once."""
    on = replace(device("emulated" if family == "simt" else "h200"), sms=3)
    for n, (p, c) in enumerate(SOURCES[f"grouped_{family}"].cases(1, len(CASES), on, limit=40, threads=128)):
        right(p, c, n, on, (CASES[n],))


JAGGED = ("", "m", "k")
EPILOGUES = ("bias_column,relu", "scale_rows,bias_row,residual,gelu", "scale,residual,relu_grad")


@pytest.mark.each_value
@pytest.mark.parametrize("jagged", JAGGED)
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_epilogue(jagged, epilogue):
    """Every item has operands of its own."""
    items = ITEMS
    if jagged:
        items = tuple((m, 24, 20) if jagged == "m" else (24, 20, m) for m, _, _ in ITEMS)
    n = (JAGGED.index(jagged) + EPILOGUES.index(epilogue)) % 2
    right(GroupedGemm(items, ("NN", "TT")[n], jagged=jagged, epilogue=epilogue), SIMT, n, FEW_SMS, (CASES[3 * n],))


@pytest.mark.parametrize("jagged", ["", "m", "k"])
def test_many_items(jagged):
    """The search takes three rounds; the kernel that makes the table takes two."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(0, 3, 1100 if not jagged else 300).tolist()
    items = {"": ((s, 1, 2) for s in sizes), "m": ((s, 2, 2) for s in sizes), "k": ((2, 2, s) for s in sizes)}[jagged]
    p = GroupedGemm(tuple(items), "TN" if jagged == "k" else "NN", jagged=jagged)
    runner = Runner.of(EmulatedDriver(FEW_SMS), p, SIMT)
    arrays = random_group(p, 1, "integers")
    out = runner.compute(arrays, 1.0, 0.0)["C"]
    assert group_deviation(p, arrays, out, "integers").ratio == 0


@pytest.mark.parametrize(("layout", "jagged"), [("NN", ""), ("TT", ""), ("NT", "m")])
def test_prefetched_lines_are_inside_the_operands(layout, jagged):
    """Rows of whole lines: a load in place of each prefetch is checked for bounds."""
    items = ((64, 96, 32), (32, 32, 64), (0, 32, 32)) if not jagged else ((96, 32, 64), (0, 32, 64), (32, 32, 64))
    p = GroupedGemm(items, layout, jagged=jagged)
    driver, c = EmulatedDriver(FEW_SMS), SIMT.replace(l2_prefetch=1)
    plan = plan_for(p, c, FEW_SMS)
    source = render(plan)
    text = source.text.replace("prefetch.global.L2 [%line_addr];", "ld.global.u32 %tmp0, [%line_addr];")
    assert text != source.text
    runner = Runner(driver, plan, driver.load(replace(source, text=text)), p)
    arrays = random_group(p, 1, "integers")
    assert group_deviation(p, arrays, runner.compute(arrays, 1.0, 0.0)["C"], "integers").ratio == 0


def test_repeated_launches_leave_the_tile_counter_at_zero():
    p = GroupedGemm(ITEMS)
    driver = EmulatedDriver(FEW_SMS)
    runner = Runner.of(driver, p, SIMT)
    arrays = random_group(p, 1, "integers")
    for _ in range(3):
        out = runner.compute(arrays, 1.0, 0.0)["C"]
        assert group_deviation(p, arrays, out, "integers").ratio == 0
        (table,) = runner.tables
        words = np.zeros(1, np.uint32)
        driver.download(table.address, words)
        assert words[0] == 0


def place(rng, arena, p, operand, shared):
    """Places each item's operand in ``arena``; returns addresses in elements. ``shared``: operands may overlap."""
    starts, at = [], 0
    for rows, ld in zip(p.rows[:, operand], p.lds[:, operand], strict=True):
        at += int(rng.integers(0, 9))
        size = int(rows * ld)
        starts.append(int(rng.integers(0, max(len(arena) - size, 1))) if shared else at)
        at += size
    assert at <= len(arena)
    return np.array(starts)


@pytest.mark.parametrize("seed", range(6))
def test_items_anywhere_in_memory(seed):
    """Unaligned starts, rows with gaps, inputs that overlap, alpha and beta of each item: memory around and between
    outputs keeps its NaN."""
    rng = np.random.default_rng(seed)
    items = [tuple(int(x) for x in rng.choice([0, 1, 2, 3, 7, 13, 31, 32, 33, 47], 3)) for _ in range(12)]
    layout = ("NN", "NT", "TN", "TT")[seed % 4]
    packed = GroupedGemm(tuple(items), layout, aligned_a=4, aligned_b=4, aligned_c=4)
    p = replace(packed, ld=write_leading_dimensions(packed.lds + rng.integers(0, 4, packed.lds.shape)))
    driver = EmulatedDriver(FEW_SMS, seed=seed)
    arenas = [rng.standard_normal(30000).astype(np.float32) for _ in range(2)]
    out = np.full(30000, np.nan, np.float32)
    starts = [place(rng, arena, p, x, x < 2) for x, arena in enumerate((*arenas, out))]
    alpha, beta = rng.standard_normal(12), np.where(rng.random(12) < 0.5, 0, rng.standard_normal(12))
    views = [
        [
            np.lib.stride_tricks.as_strided(
                arena[starts[x][i] :], (p.rows[i, x], p.columns[i, x]), (4 * p.lds[i, x], 4)
            )
            for i in range(12)
        ]
        for x, arena in enumerate((*arenas, out))
    ]
    for i, c in enumerate(views[2]):
        if beta[i]:
            c[...] = rng.standard_normal(c.shape)
    at = [driver.allocate(x.nbytes) for x in (*arenas, out)]
    for address, x in zip(at, (*arenas, out), strict=True):
        driver.upload(address, x)
    plan = plan_for(p, SIMT, FEW_SMS)
    launch = GroupLaunch(driver, plan, driver.load(render(plan)), Workspaces(driver))
    addresses = np.stack([a + 4 * s for a, s in zip(at, starts, strict=True)], axis=1)
    launch(p, addresses, alpha, beta)
    got = np.empty_like(out)
    driver.download(at[2], got)
    for i in range(12):
        item = p.item(i)
        ref = reference(item, {"A": views[0][i], "B": views[1][i], "C": views[2][i]}, alpha[i], beta[i])
        window = got[starts[2][i] :]
        result = np.lib.stride_tricks.as_strided(window, views[2][i].shape, views[2][i].strides)
        assert compare(result.copy(), ref).ok, f"item {i}, {p.items[i]}"
        result[...] = np.nan
        views[2][i][...] = np.nan
    assert np.isnan(got).all()


def launch_text(text: str) -> None:
    """Runs the kernel of a group with another text."""
    p = GroupedGemm(ITEMS)
    driver = EmulatedDriver(FEW_SMS)
    plan = plan_for(p, SIMT, driver.device)
    runner = Runner(driver, plan, driver.load(replace(render(plan), text=text)), p)
    runner.compute(random_group(p))


#: what a faulty kernel has instead
FAULTS = {
    "no barrier before the number of the next tile is read": (
        "bar.sync 0;\n    ld.shared.u32 %tile",
        "ld.shared.u32 %tile",
    ),
    "a tile counter without an atomic": (
        "@%fetches atom.global.inc.u32 %next_tile, [%table], %tmp0;",
        "@%fetches ld.global.u32 %next_tile, [%table];\n    add.u32 %tmp0, %next_tile, 1;\n"
        "    @%fetches st.global.u32 [%table], %tmp0;",
    ),
}


def test_warps_outside_an_item_do_not_multiply(monkeypatch):
    """Two of the eight warps of a 64x64 tile have elements of an item of 20x20."""
    config, lanes = SIMT.replace(ml=64, nl=64, lanes_m=8), []
    for extent in (20, 64):
        driver = EmulatedDriver(FEW_SMS)
        launch = driver.machine.launch

        def counted(*args, launch=launch, **options):
            stats = launch(*args, **options)
            lanes.append(stats.lane_instructions["fp32"])
            return stats

        monkeypatch.setattr(driver.machine, "launch", counted)
        p = GroupedGemm(((extent, extent, 64),))
        arrays = random_group(p, 1, "integers")
        out = Runner.of(driver, p, config).compute(arrays, 1.0, 0.0)["C"]
        arrays["C"][...] = np.nan
        assert group_deviation(p, arrays, out, "integers").ratio == 0
    assert lanes[0] < 0.3 * lanes[1]


@pytest.mark.each_value
@pytest.mark.parametrize("family", ["simt", "mma"])
@pytest.mark.parametrize(("m", "n", "share"), [(32, 64, 1), (16, 64, 0.5), (32, 32, 0.5), (8, 24, 0.25)])
def test_warps_multiply_the_half_of_their_tile_that_has_elements(family, m, n, share, monkeypatch):
    """A warp has 32 rows and 64 columns; an item has as many, or at most half of them."""
    config = {
        "simt": "ms=8 ns=8 ml=32 nl=64 u=8 stages=2 lanes_m=4 vec_a=1 vec_b=1 vec_c=1",
        "mma": "family=mma ms=32 ns=64 ml=64 nl=64 u=32 stages=2 vec_a=8 vec_b=8 vec_c=8",
    }[family]
    c, dtype = parse_config(config + " epilogue_smem=1"), {"simt": "f32", "mma": "bf16"}[family]
    counts = []
    for extents in ((32, 64), (m, n)):
        driver = EmulatedDriver(replace(device("h200"), sms=2))
        launch = driver.machine.launch

        def counted(*args, launch=launch, **options):
            stats = launch(*args, **options)
            counts.append(stats.lane_instructions["fp32" if family == "simt" else "mma"])
            return stats

        monkeypatch.setattr(driver.machine, "launch", counted)
        p = GroupedGemm(((*extents, 128),), dtype=dtype)
        arrays = random_group(p, 1, "integers")
        got = Runner.of(driver, p, c).compute(arrays, 1.0, 0.0)["C"]
        arrays["C"][...] = p.output.poison
        assert group_deviation(p, arrays, got, "integers").ratio == 0
    assert counts[1] / counts[0] == pytest.approx(share, abs=0.1)


@pytest.mark.parametrize("fault", FAULTS)
def test_race_in_the_tile_counter_is_reported(fault):
    text = render(plan_for(GroupedGemm(ITEMS), SIMT, FEW_SMS)).text
    right, wrong = FAULTS[fault]
    assert text.count(right) == 1
    launch_text(text)
    with pytest.raises(RaceFault):
        launch_text(text.replace(right, wrong))


@pytest.mark.parametrize("axis", ["m", "k"])
def test_offsets_outside_the_array_are_clamped(axis):
    """Offsets that decrease or pass the end: no access is outside the arrays. Items then overlap."""
    sizes = (9, 0, 21, 5, 33)
    p = GroupedGemm(
        tuple((s, 24, 20) if axis == "m" else (24, 20, s) for s in sizes), "TN" if axis == "k" else "NN", jagged=axis
    )
    runner = Runner.of(EmulatedDriver(FEW_SMS, races=False), p, SIMT)
    arrays = random_group(p, 2, "integers")
    arrays["offsets"] = np.array([9, -5, 30, 1000, 68], np.int32)
    out = runner.compute(arrays, 1.0, 0.0)["C"]
    assert out.shape == arrays["C"].shape


def test_one_kernel_serves_other_sizes():
    """The kernel and the launch of a jagged group serve offsets that are on the device only."""
    p = GroupedGemm(((10, 24, 20),) * 4, jagged="m")
    driver = EmulatedDriver(FEW_SMS)
    runner = Runner.of(driver, p, SIMT)
    for sizes in ((40, 0, 0, 0), (1, 2, 3, 34), (0, 0, 0, 40), (10, 10, 10, 10)):
        other = replace(p, items=tuple((s, 24, 20) for s in sizes))
        arrays = random_group(other, 3, "integers")
        out = runner.compute(arrays, 1.0, 0.0)["C"]
        arrays["C"][...] = np.nan
        assert group_deviation(other, arrays, out, "integers").ratio == 0


def test_operands_of_items():
    """The reference is that of the items."""
    p = GroupedGemm(ITEMS, "NT")
    a, b, _ = operands(p.item(6), 6).values()
    assert reference(p.item(6), {"A": a, "B": b}).exact.shape == ITEMS[6][:2]
