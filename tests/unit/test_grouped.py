"""Grouped products: text form, arrays that hold all items, descriptor tables, errors that name the item, the calls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ptxgen
from ptxgen.api import choice, drivers
from ptxgen.api.jagged_calls import item_sizes
from ptxgen.codegen.config.config import FAMILIES, Columns, parse_config
from ptxgen.codegen.grouped.descriptor_table import DescriptorTable, GroupTable
from ptxgen.codegen.render import render
from ptxgen.errors import DtypeError, InputError, LaunchError, OverlapError, ShapeError
from ptxgen.families.common import perf_model, space
from ptxgen.families.common.rules import first_violation
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.wgmma.axes import B_ONCE
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.gemm.strided_arrays import A, B, C
from ptxgen.operations.grouped.checks import random_group, sampled_deviation
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.grouped.reference import epilogue_view, item_view
from ptxgen.operations.grouped.suites import MODELS, random_items, routed_rows
from ptxgen.problem.device import device
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.reference import reference
from ptxgen.problem.registry import from_dict, parse
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.open_driver import open_driver
from ptxgen.tuning.choice.models import model_for
from ptxgen.tuning.model.model import Model
from ptxgen.tuning.model.model_files import FEW, Facts, known
from ptxgen.tuning.selection import select

ITEMS = ((33, 17, 20), (0, 5, 5), (5, 0, 3), (7, 9, 0), (13, 37, 101))
H200 = device("h200")


@pytest.mark.parametrize(
    "p",
    [
        GroupedGemm(ITEMS),
        GroupedGemm(((4, 4, 4),) * 8 + ((1, 2, 3),), "TN", "bf16", epilogue="bias_column,relu", out="f32"),
        GroupedGemm(ITEMS, ld="101:64:64"),
        GroupedGemm(((3, 8, 5), (0, 8, 5)), jagged="m", aligned_a=4),
        GroupedGemm(()),
    ],
)
def test_text_form(p):
    assert parse(p.key()) == p
    assert from_dict(p.as_dict()) == p
    assert hash(parse(p.key())) == hash(p)


def test_shape_counts_equal_items():
    assert GroupedGemm(((4, 4, 4),) * 8 + ((1, 2, 3),)).shape() == "8x4,4,4+1,2,3"
    assert GroupedGemm.read_shape("2x1,2,3+4,5,6") == {"items": ((1, 2, 3), (1, 2, 3), (4, 5, 6))}


def test_packed_leading_dimensions_are_not_written():
    p = GroupedGemm(ITEMS)
    assert replace(p, ld=",".join(":".join(map(str, row)) for row in p.lds.tolist())) == p


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"items": ((1, 2, 3), (1, -2, 3))}, ShapeError, "n of item 1 is -2"),
        ({"items": ((1, 2, 3), (1, 2))}, ShapeError, r"item 1 is \(1, 2\)"),
        ({"items": 5}, ShapeError, "items is 5"),
        ({"ld": "40:40:40,20:5:5"}, InputError, "ld is .*each of 5 items"),
        ({"ld": "40:40:16"}, ShapeError, "ldc of item 0 is 16; it must be at least 17"),
        ({"jagged": "n"}, InputError, "jagged is 'n'"),
        ({"jagged": "m"}, ShapeError, "n of item 1 is 5; with jagged=m it must be 17"),
        ({"layout": "NX"}, ShapeError, "layout is 'NX'"),
        ({"aligned_a": 3}, ShapeError, "aligned_a is 3"),
    ],
)
def test_errors_name_the_item(change, error, message):
    with pytest.raises(error, match=message):
        replace(GroupedGemm(ITEMS), **change)


def test_bad_shape():
    with pytest.raises(ShapeError, match="shape has '1,2'"):
        parse("grouped 1,2+3,4,5 NN f32")


@pytest.mark.parametrize("layout", ["NN", "TT"])
def test_jagged_items_are_ranges_of_one_array(layout):
    sizes = (3, 0, 5)
    rows = GroupedGemm(tuple((s, 8, 4) for s in sizes), layout, jagged="m")
    assert rows.starts[:, 0].tolist() == ([0, 12, 12] if layout == "NN" else [0, 3, 3])
    assert rows.lds[0, 0] == (4 if layout == "NN" else 8)
    assert rows.starts[:, 1].tolist() == [0, 32, 64]
    assert rows.sizes == (32, 96, 64)
    assert rows.offsets.tolist() == [3, 3, 8]
    columns = GroupedGemm(tuple((6, 8, s) for s in sizes), layout, jagged="k")
    assert columns.sizes == (48, 64, 144)
    for p in (rows, columns):  # what the kernel that makes the table computes
        jagged = np.concatenate([[0], p.offsets[:-1]])
        for x, name in enumerate("abc"):
            by, along = p.steps(name)
            assert np.array_equal(p.starts[:, x] * 4, by * np.arange(3) + along * jagged)


def test_alignment_class_is_that_of_all_items():
    assert GroupedGemm(((4, 8, 4), (8, 4, 8))).vectors == (4, 4, 4)
    assert GroupedGemm(((4, 8, 4), (8, 4, 6))).vectors == (2, 4, 4)
    assert GroupedGemm(((4, 8, 4), (8, 4, 0), (0, 3, 3))).vectors == (4, 4, 4)
    assert GroupedGemm(((4, 8, 4), (7, 9, 0))).vectors == (4, 4, 1)
    assert GroupedGemm(((4, 8, 4),) * 2, "NN", jagged="k").vectors == (1, 4, 4)


@pytest.mark.parametrize(("u", "kg"), [(8, 2), (16, 5), (8, 64)])
def test_slices_of_an_item_have_about_equal_lengths(u, kg):
    k = np.arange(0, 400, 3)
    extents = np.stack([np.ones_like(k), np.ones_like(k), k], axis=1)
    length, slices = DescriptorTable(16, 16, "f32", u=u, kg=kg).k_slices(extents)
    longest = -(-399 // (kg * u)) * u
    assert (slices == np.maximum(-(-k // longest), 1)).all()
    assert (length * slices >= k).all()
    assert (length % u == 0).all()
    assert (length * (slices - 1) < np.maximum(k, 1)).all()  # no slice is empty
    assert (length - k / slices <= u).all()


def test_descriptor_table():
    """Items with the longest K come first; the first tiles are prefix sums."""
    p = GroupedGemm(ITEMS)
    layout = DescriptorTable(16, 16, "f32")
    words = GroupTable(layout, p).words()
    assert words[0] == 0
    assert words[1] == 3 * 2 + 1 * 1 + 1 * 3
    assert words[4:9].tolist() == [0, 3, 9, 9, 9]
    first = words[layout.descriptors_at(5) // 4 :]
    assert first[8:14].tolist() == [13, 37, 101, 101, 37, 37]
    assert first[layout.at("item") // 4] == 4
    assert words.nbytes == layout.bytes(5)


def first_tiles(count, sms, resident):
    """The K of the tiles that begin on each multiprocessor, for ``count`` items of one tile."""
    k = np.random.default_rng(0).permutation(np.arange(1, count + 1))
    extents = np.stack([np.ones_like(k), np.ones_like(k), k], axis=1)
    order = DescriptorTable(16, 16, "f32", sms=sms, resident=resident).order(extents, np.ones_like(k))
    assert sorted(order) == list(range(count))
    begun = k[order][: sms * resident]
    assert (np.diff(k[order][sms * resident :]) < 0).all()  # the others follow, the longest first
    return [begun[s::sms] for s in range(sms)]


@pytest.mark.parametrize(("count", "sms", "resident", "most"), [(20, 10, 2, 21), (60, 10, 4, 162), (15, 10, 3, 15)])
def test_multiprocessors_begin_with_about_equal_work(count, sms, resident, most):
    """``most``: the largest sum of K of a multiprocessor; of 15 tiles for ten, the longest one is alone."""
    assert max(sum(x) for x in first_tiles(count, sms, resident)) == most


@pytest.mark.parametrize(("items", "sms", "resident"), [(8, 132, 6), (64, 132, 3), (256, 132, 4), (256, 5, 1)])
def test_shares_have_about_equal_work(items, sms, resident):
    """The parts of a tile have at least two iterations; shares cover all iterations."""
    layout = DescriptorTable(64, 64, "f32", u=8, sms=sms, resident=resident, stream=True)
    extents = np.array(random_items(items, 512, 512), np.int64)
    shares, each = layout.shares(extents), layout.tile_iterations(extents)
    tiles = -(-extents[:, 0] // 64) * -(-extents[:, 1] // 64)
    assert shares[0] == 0
    assert shares[-1] == (tiles * each).sum()
    assert len(shares) - 1 <= sms * resident
    order = layout.order(extents, tiles)
    bounds = np.concatenate([[0], np.cumsum(np.repeat(each[order], tiles[order]))])
    parts = np.diff(np.union1d(bounds, shares))
    assert (parts[np.diff(np.searchsorted(bounds, np.union1d(bounds, shares), side="right")) == 0] >= 2).all()
    work = np.diff(shares) + 2 * (np.diff(np.searchsorted(bounds, shares)) + 1)  # two iterations for each tile
    assert work.max() < 1.1 * work.mean() + 6


def test_tiles_and_iterations_of_columns():
    p = lower(GroupedGemm(ITEMS))
    ml, nl, u = np.array([16, 32]), np.array([16, 64]), np.array([8, 32])
    assert p.extents.tiles(ml, nl).tolist() == [p.extents.tiles(16, 16), p.extents.tiles(32, 64)] == [10, 4]
    mean, longest = p.extents.tile_iterations(ml, nl, u)
    assert longest.tolist() == [13, 4]
    assert mean[0] == (6 * 3 + 1 * 0 + 3 * 13) / 10


#: fastest of 780 configurations, microseconds on an H200, f32: (bound of M and N, of K, items)
FASTEST = {(512, 512, 256): 270.0, (512, 128, 256): 100.0, (128, 512, 256): 37.1, (128, 128, 256): 15.5}


def test_few_tiles_are_copied_asynchronously():
    """Few tiles do not hide the latency of loads into registers: 12.4 and 9.3 µs were measured for such a group."""
    p = lower(GroupedGemm(random_items(16, 128, 512)))
    c = space.candidates(p, H200)
    whole, us = c.column("kg") == 1, perf_model.predict(p, c, H200)
    registers = (c.column("cp_async_a") == 0) & (c.column("cp_async_b") == 0)
    assert us[whole & registers].min() > 1.05 * us[whole].min()


@pytest.mark.parametrize("bounds", FASTEST, ids=str)
def test_model_prefers_the_fastest_measured_copies(bounds):
    """Rows of any alignment: single elements through registers, C through shared memory. Whole 16 bytes are faster. The
    times are those of kernels that multiplied whole tiles."""
    mn, k, count = bounds
    items = random_items(count, mn, k)
    p = lower(GroupedGemm(items))
    c = space.candidates(p, H200)
    us = perf_model.predict(p, c, H200)
    chosen = c.row(int(us.argmin()))
    registers = (c.column("cp_async_a") == 0) & (c.column("cp_async_b") == 0)
    assert us[registers].min() < 1.02 * us.min()
    assert chosen.epilogue_smem == 1 or chosen.kl > 1
    assert abs(np.log2(us.min() / FASTEST[bounds])) < 0.3
    aligned = lower(GroupedGemm(tuple((-(-m // 4) * 4, -(-n // 4) * 4, -(-d // 4) * 4) for m, n, d in items)))
    faster = perf_model.predict(aligned, space.candidates(aligned, H200), H200).min()
    assert 1.08 < us.min() / faster < 1.4


@pytest.mark.parametrize(
    ("p", "families"),
    [
        (GroupedGemm(((300, 512, 256), (0, 512, 256), (77, 512, 256)), "NN", "bf16", jagged="m"), "simt mma wgmma"),
        (GroupedGemm(((300, 512, 256), (64, 40, 56)), "NT", "bf16"), "simt mma"),
        (GroupedGemm(((300, 512, 256), (300, 512, 0)), "TN", "f64", jagged="k"), "simt mma"),
        (GroupedGemm(((304, 512, 256), (304, 512, 0)), "TN", "bf16", jagged="k"), "simt mma wgmma"),
    ],
    ids=lambda p: p.problem_class if isinstance(p, GroupedGemm) else "",
)
def test_every_family_with_the_tile_loop_has_candidates(p, families):
    """The candidates are those rows of the whole tables of the families that no rule rejects."""
    p = lower(p)
    c = space.candidates(p, H200)
    assert {FAMILIES[code] for code in np.unique(c.family)} == set(families.split())
    rows = [c.row(int(i)) for i in np.random.default_rng(0).integers(0, len(c), 60)]
    assert all(first_violation(p, row, H200) is None for row in rows)
    for part, _, rows_of, _ in c.groups():
        assert len(np.unique(rows_of)) == len(part.base.columns)


#: microseconds on an H100: a model of the suite moe, tokens, axes besides EXPERT_AXES. Gate and up, uniform routing
EXPERT_AXES = "family=wgmma u=64 epilogue_smem=1 persistent=1 transposed_mma=1 math_warpgroups=2"
EXPERTS = (
    (395.2, "Qwen1.5-MoE-A2.7B", 2048, "ml=80 nl=256 stages=4 raster_group=8 l2_evict_first=b"),
    (292.5, "Qwen1.5-MoE-A2.7B", 2048, "ml=80 nl=256 stages=4 raster_group=8"),
    (268.3, "Qwen1.5-MoE-A2.7B", 2048, "ml=160 nl=128 stages=4 raster_group=8 l2_evict_first=b"),
    (165.1, "DeepSeek-V3", 64, "ml=80 nl=128 stages=6 raster_group=8 l2_evict_first=b"),
    (246.9, "DeepSeek-V3", 64, "ml=40 nl=256 stages=4 l2_evict_first=b"),
)


def expert_us(model, tokens, axes):
    layer = next(x for x in MODELS if x.model == model)
    items = tuple((m, 2 * layer.intermediate, layer.hidden) for m in routed_rows(layer, tokens, 0.0))
    p = lower(GroupedGemm(items, dtype="bf16", jagged="m"))
    c = Columns.of([parse_config(f"{EXPERT_AXES} {axes}")])
    return float(perf_model.predict(p, c, device("h100"))[0])


@pytest.mark.parametrize(("us", "model", "tokens", "axes"), EXPERTS)
def test_model_counts_matrices_that_several_tiles_read(us, model, tokens, axes):
    assert expert_us(model, tokens, axes) == pytest.approx(us, rel=0.06)


def test_near_tiles_of_an_expert_share_its_matrix():
    """L2 keeps B for the tiles that follow, but does not if it evicts B first."""
    _, *group, far_axes = EXPERTS[1]
    near_axes = far_axes.replace("raster_group=8", "raster_group=2")
    evicted = (f"{near_axes} l2_evict_first={word}" for word in ("b", "b_once"))
    far, next_, first, once = (expert_us(*group, axes) for axes in (far_axes, near_axes, *evicted))
    assert once == next_ < far < first


def test_candidates_evict_matrices_that_one_tile_reads():
    """Tiles that hold the mean rows of an expert; others read B again."""
    p = GroupedGemm(tuple((m, 1408, 512) for m in (49, 64, 87) * 50), dtype="bf16", jagged="m")
    c = space.candidates(lower(p), device("h100"), representatives=True)
    rows = np.flatnonzero(c.family == FAMILIES.index("wgmma"))
    ml, evicted = (c.column(name)[rows] for name in ("ml", "l2_evict_first"))
    assert set(evicted[ml < 64].tolist()) == {0}
    assert set(evicted[(ml >= 72)].tolist()) == {B_ONCE}
    few = (c.column("transposed_mma")[rows] == 1) & (c.column("cluster_k")[rows] == 1) & (ml > 16)
    assert set(c.column("raster_group")[rows][few].tolist()) <= {1, 2}
    text = render(plan_for(p, c.row(int(rows[ml == 80][0])), device("h100"))).text
    assert "setp.le.u32 %p, %M, 80;" in text


def test_trees_that_saw_no_group_do_not_rank_calibrated_families():
    facts = Facts({}, "clock", 300, 3, 0, families={"simt": 200, "mma": 200})
    gemm, group = lower(Gemm(64, 64, 64)), lower(GroupedGemm(ITEMS))
    assert known(facts, gemm) == ["simt", "mma"]
    assert known(facts, group) == ["mma"]
    assert known(replace(facts, grouped=FEW), group) == ["simt", "mma"]
    shipped = model_for(H200)
    assert shipped.facts.grouped >= FEW
    without_groups = Model(H200, replace(shipped.facts, grouped=0), shipped.booster, shipped._names)
    chosen = without_groups.rank(GroupedGemm(ITEMS), H200, 1)[0]
    assert chosen[1] == pytest.approx(perf_model.predict(group, chosen[0], H200))


@pytest.mark.parametrize(
    ("p", "family"),
    [
        (GroupedGemm(tuple((m, 5760, 2880) for m in (0, 3, 40, 1, 7)), "NN", "bf16", jagged="m"), "wgmma"),
        (GroupedGemm(tuple((m, 2880, 2880) for m in (900, 40, 1300, 0)), "NT", "bf16", jagged="m"), "wgmma"),
        (GroupedGemm(tuple((2880, 2880, k) for k in (900, 40, 1300, 0)), "TN", "bf16", jagged="k"), "wgmma"),
        (GroupedGemm(random_items(64, 256, 512), "NN", "f64"), "mma"),
        (GroupedGemm(random_items(64, 256, 512), "NN", "bf16"), "mma"),
        (GroupedGemm(random_items(64, 256, 512), "NN", "f32"), "simt"),
    ],
    ids=["few rows", "many rows", "ranges of K", "f64", "bf16", "f32"],
)
def test_tensor_cores_compute_groups_of_their_types(p, family):
    """Times of different families come from the same kind of model."""
    assert model_for(H200).rank(p, H200, 1)[0][0].family == family


def test_time_grows_with_the_work():
    [chosen] = select(GroupedGemm(((64, 64, 64),) * 100), H200)
    times = [
        perf_model.predict(lower(GroupedGemm(items)), chosen.config, H200)
        for items in (((64, 64, 64),) * 100, ((64, 64, 64),) * 1000, ((64, 64, 64),) * 100 + ((64, 64, 20000),))
    ]
    assert times[0] < times[1]
    assert times[0] < times[2]


def test_typical_group_has_the_alignment_class():
    rng = np.random.default_rng(0)
    for unit in (1, 8, 64):
        p = GroupedGemm(tuple(tuple(int(x) * unit for x in row) for row in rng.integers(1, 40, (50, 3))))
        q = p.typical()
        assert q.vectors == p.vectors
        assert len(set(q.items)) <= 16
        assert q.typical().vectors == q.vectors
        [chosen] = select(q, H200)
        assert first_violation(lower(p), chosen.config, H200) is None


# ---- the calls


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    driver = open_driver("emulated")
    assert isinstance(driver, EmulatedDriver)
    monkeypatch.setattr(drivers, "driver", lambda: driver)
    monkeypatch.setattr(choice, "database", lambda: None)


def lists(rng, count=5, order="C"):
    shapes = [tuple(int(x) for x in rng.integers(0, 24, 3)) for _ in range(count)]
    a = [np.asarray(rng.standard_normal((m, k)), np.float32, order=order) for m, n, k in shapes]
    b = [np.asarray(rng.standard_normal((k, n)), np.float32, order=order) for m, n, k in shapes]
    return a, b, [np.asarray(rng.standard_normal((m, n)), np.float32, order=order) for m, n, k in shapes]


@pytest.mark.parametrize("order", ["C", "F"])
def test_gemm_grouped(order):
    rng = np.random.default_rng(1)
    a, b, outs = lists(rng, order=order)
    bias = [np.float32(rng.standard_normal(x.shape[1])) for x in outs]
    before = [x.copy(order="K") for x in outs]
    alpha, beta = rng.standard_normal(5), [0.0, 1.0, -0.5, 2.0, 0.0]
    got = ptxgen.gemm_grouped(a, b, outs, alpha=alpha, beta=beta, bias=bias, residual=before, activation="relu")
    for i, x in enumerate(got):
        assert x is outs[i]
        expected = alpha[i] * a[i] @ b[i] + beta[i] * before[i] + bias[i] + before[i]
        np.testing.assert_allclose(x, np.maximum(expected, 0), atol=1e-4)
    masked = ptxgen.gemm_grouped(a, b, [x.copy(order="K") for x in outs], activation="relu_grad", aux=before)
    for i, x in enumerate(masked):
        np.testing.assert_allclose(x, np.where(before[i] <= 0, 0, a[i] @ b[i]), atol=1e-4)


def test_layouts_of_items_may_differ():
    rng = np.random.default_rng(2)
    a, b, _ = lists(rng)
    a[1], b[2] = np.asfortranarray(a[1]), np.asfortranarray(b[2])
    for x, y, z in zip(ptxgen.gemm_grouped(a, b), a, b, strict=True):
        np.testing.assert_allclose(x, y @ z, atol=1e-4)


@pytest.mark.parametrize("schedule", ["tlp", "tlp_grid", "tile_16x16"])
def test_calls_by_a_schedule(schedule):
    """Items have tiles of their own; alpha and beta are numbers of each item, outputs may be column-major."""
    rng = np.random.default_rng(4)
    a, b, outs = lists(rng, order="C")
    (
        a.append(np.ones((64, 20), np.float32)),
        b.append(np.ones((20, 64), np.float32)),
        outs.append(np.ones((64, 64), "f4")),
    )
    outs[2] = np.asfortranarray(outs[2])
    alpha, beta = rng.standard_normal(6), [0.0, 1.0, -0.5, 2.0, 0.0, 1.0]
    before = [x.copy() for x in outs]
    for i, x in enumerate(ptxgen.gemm_grouped(a, b, outs, alpha=alpha, beta=beta, schedule=schedule)):
        np.testing.assert_allclose(x, alpha[i] * a[i] @ b[i] + beta[i] * before[i], atol=1e-4)


def test_empty_list():
    assert ptxgen.gemm_grouped([], []) == []


ONES = [np.ones((4, 4), np.float32) for _ in range(2)]
BIG = np.zeros((8, 8), np.float32)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((ONES, ONES[:1]), {}, InputError, "a has 2 items and b has 1"),
        ((ONES, BIG), {}, InputError, "b is ndarray; it must be a list"),
        ((ONES, [ONES[0], BIG]), {}, ShapeError, "item 1: a is 4x4 and b is 8x8"),
        ((ONES, [ONES[0], ONES[1].astype(np.float64)]), {}, DtypeError, "item 1: a is f32 and b is f64"),
        (
            (ONES, ONES, [BIG[:4, :4], BIG[3:7, 3:7]]),
            {},
            OverlapError,
            "out of item 0 shares memory with out of item 1",
        ),
        (([ONES[0], BIG[:4, :4]], ONES, [BIG[3:7, 3:7], BIG[4:, :4]]), {}, OverlapError, "item 0 .* with a of item 1"),
        (
            (ONES, ONES),
            {"sums": [BIG[:4, :4], BIG[3:7, 3:7]], "activation": "relu"},
            OverlapError,
            "sums of item 0 shares memory with sums of item 1",
        ),
        (
            (ONES, ONES, [BIG[:4, :4], BIG[4:, :4]]),
            {"sums": [BIG[4:, 4:], BIG[1:5, :4]], "activation": "relu"},
            OverlapError,
            "out of item 0 shares memory with sums of item 1",
        ),
        (
            (ONES, ONES),
            {"sums": [BIG[4:, 4:], BIG[:4, :4]], "residual": [BIG[:4, :4]] * 2, "activation": "relu"},
            OverlapError,
            "sums of item 1 shares memory with residual of item 0",
        ),
        ((ONES, ONES), {"sums": ONES}, InputError, "item 0: sums is an array; activation must then be given"),
        ((ONES, ONES), {"sums": ONES[:1], "activation": "relu"}, InputError, "a has 2 items and sums has 1"),
        ((ONES, ONES), {"alpha": [1.0]}, InputError, "a has 2 items and alpha has 1"),
        ((ONES, ONES), {"beta": [0.0, 1.0]}, InputError, "beta of item 1 is 1 and outs is None"),
        ((ONES, ONES), {"bias": [None]}, InputError, "a has 2 items and bias has 1"),
        ((ONES, ONES), {"alpha": [1.0, "x"]}, InputError, "alpha of item 1 is 'x'"),
        ((ONES, ONES), {"alpha": 1e60}, InputError, "alpha of item 0 is 1e"),
        ((ONES, ONES), {"schedule": "x"}, InputError, "schedule is 'x'; it must be one of tlp, "),
        ((ONES, ONES), {"schedule": "tlp", "activation": "relu"}, LaunchError, "without an epilogue"),
    ],
)
def test_errors_of_calls(arguments, options, error, message):
    with pytest.raises(error, match=message):
        ptxgen.gemm_grouped(*arguments, **options)


def test_interleaved_outputs_do_not_overlap():
    outs = [BIG[:4, :4], BIG[:4, 4:]]
    ptxgen.gemm_grouped(ONES, ONES, outs)
    assert (BIG[:4] == 4).all()


@pytest.mark.parametrize("activation", ["x*x", "swiglu"])
def test_gemm_grouped_stores_the_sums(activation):
    """Items whose C has rows or columns in memory, without rows, without K, and with alpha 0."""
    rng, shapes = np.random.default_rng(2), ((5, 8, 6), (7, 4, 3), (0, 6, 2), (3, 10, 0), (9, 2, 5))
    a, b = (
        [rng.standard_normal(s).astype(np.float32) for s in each]
        for each in zip(*(((m, k), (k, n)) for m, n, k in shapes), strict=True)
    )
    columns = [n // 2 if activation == "swiglu" else n for _, n, _ in shapes]
    outs = [
        np.ones((m, n), np.float32, "CF"[i % 2]) for i, ((m, _, _), n) in enumerate(zip(shapes, columns, strict=True))
    ]
    sums = [np.full((m, 2 * n), np.nan, np.float32)[:, ::2] for m, n, _ in shapes]
    alpha, beta = [1, 2, 1, 1, 0], 0 if activation == "swiglu" else [2, 0, 0, 1, 0]
    bias = [rng.standard_normal(n).astype(np.float32) for _, n, _ in shapes]
    got = ptxgen.gemm_grouped(a, b, outs, alpha=alpha, beta=beta, bias=bias, activation=activation, sums=sums)
    betas = np.broadcast_to(beta, len(shapes))
    for x, y, p, q, v, s, c in zip(a, b, alpha, betas, bias, sums, got, strict=True):
        np.testing.assert_allclose(s, p * x @ y + q + v, atol=1e-4)
        gate, up = s[:, ::2], s[:, 1::2]
        wanted = gate / (1 + np.exp(-gate)) * up if activation == "swiglu" else s * s
        np.testing.assert_allclose(c, wanted, atol=1e-4)


SIZES = (7, 0, 12, 1)
ENDS = np.cumsum(SIZES).astype(np.int32)
EXPERT = np.repeat(np.arange(4), SIZES)
SUMS = np.zeros((20, 8), np.float32)


@pytest.fixture
def experts():
    rng = np.random.default_rng(3)
    return tuple(rng.standard_normal(s).astype(np.float32) for s in ((20, 12), (4, 12, 8), (20, 8)))


def test_gemm_jagged(experts):
    x, w, dy = experts
    expected = np.einsum("tk,tkn->tn", x, w[EXPERT])
    np.testing.assert_allclose(ptxgen.gemm_jagged(x, w, ENDS), expected, atol=1e-4)
    views = np.asfortranarray(x), np.ascontiguousarray(w.swapaxes(1, 2)).swapaxes(1, 2)
    np.testing.assert_allclose(ptxgen.gemm_jagged(*views, ENDS), expected, atol=1e-4)
    bias, residual = dy[:4].copy(), dy
    got = ptxgen.gemm_jagged(x, w, ENDS, bias=bias, residual=residual, activation="relu")
    np.testing.assert_allclose(got, np.maximum(expected + bias[EXPERT] + residual, 0), atol=1e-4)
    got = ptxgen.gemm_jagged(x, w, ENDS, residual=residual, activation="relu_grad", aux=dy[::-1].copy())
    np.testing.assert_allclose(got, np.where(dy[::-1] <= 0, 0, expected + residual), atol=1e-4)
    got = ptxgen.gemm_jagged(x, w, ENDS, scale_a=x[:, 0].copy(), scale_b=bias)
    np.testing.assert_allclose(got, expected * x[:, :1] * bias[EXPERT], atol=1e-3)


def test_gemm_jagged_stores_the_sums(experts):
    x, w, residual = experts
    wanted = np.einsum("tk,tkn->tn", x, w[EXPERT])
    sums, bias = np.full((20, 16), np.nan, np.float32)[:, ::2], residual[:4].copy()
    options = {"alpha": 0.5, "beta": 2, "bias": bias, "residual": residual, "aux": residual[::-1].copy()}
    results = [
        ptxgen.gemm_jagged(x, w, ENDS, out=residual + 1, activation="x*aux", **stored, **options)
        for stored in ({}, {"sums": sums})
    ]
    assert np.array_equal(*results)
    before = wanted / 2 + 2 * (residual + 1) + bias[EXPERT] + residual
    np.testing.assert_allclose(sums, before, atol=1e-4)
    np.testing.assert_allclose(results[0], before * options["aux"], atol=1e-3)
    sums[...] = np.nan
    got = ptxgen.gemm_jagged(x, w, ENDS - np.int32(1), activation="swiglu", sums=sums)
    np.testing.assert_allclose(sums[:19], np.einsum("tk,tkn->tn", x[:19], w[(EXPERT[1:])]), atol=1e-4)
    gate, up = sums[:19, ::2], sums[:19, 1::2]
    np.testing.assert_allclose(got[:19], gate / (1 + np.exp(-gate)) * up, atol=1e-4)
    assert np.isnan(sums[19]).all()
    dx = np.empty_like(x)
    got = ptxgen.gemm_jagged_input_grad(residual, w, ENDS, activation="relu", sums=dx)
    np.testing.assert_allclose(dx, np.einsum("tn,tkn->tk", residual, w[EXPERT]), atol=1e-4)
    assert np.array_equal(got, np.maximum(dx, 0))
    for alpha, value in ((0, 0.5), (1, np.nan)):
        ptxgen.gemm_jagged(x * np.float32(np.nan), w, ENDS, alpha=alpha, activation="x + 0.5", sums=sums)
        assert np.array_equal(sums, np.full_like(sums, value - 0.5), equal_nan=True)


def strided(x):
    """``x`` in an array whose axes all have gaps."""
    wide = np.zeros([3 * n for n in x.shape], x.dtype)[tuple(slice(None, None, 3) for _ in x.shape)]
    wide[...] = x
    return wide


def test_calls_are_chosen_for_experts_of_different_sizes():
    sizes = item_sizes(8192, 128)
    assert (len(sizes), sum(sizes), min(sizes), max(sizes)) == (128, 8192, 32, 96)
    assert (item_sizes(10, 1), sum(item_sizes(3, 7)), item_sizes(0, 2)) == ([10], 3, [0, 0])


def test_host_arrays_have_any_strides(experts):
    x, w, dy = experts
    bias = dy[:4].copy()
    plain = {"bias": bias, "residual": dy, "activation": "relu_grad", "aux": dy, "scale_a": x[:, 0], "scale_b": bias}
    wanted = ptxgen.gemm_jagged(x, w, ENDS, **plain)
    views = {name: strided(y) if isinstance(y, np.ndarray) else y for name, y in plain.items()}
    for out in (strided(wanted), np.asfortranarray(wanted), None):
        got = ptxgen.gemm_jagged(strided(x), strided(w), strided(ENDS), out=out, **views)
        assert np.array_equal(got, wanted)
    [wanted] = ptxgen.gemm_grouped([x], [w[0]], residual=[dy])
    for out in (strided(wanted), np.asfortranarray(wanted), wanted[:, ::-1]):
        [got] = ptxgen.gemm_grouped([strided(x)], [strided(w[0])], [out], residual=[strided(dy)])
        np.testing.assert_allclose(got, x @ w[0] + dy, atol=1e-4)


def test_gradients(experts):
    x, w, dy = experts
    np.testing.assert_allclose(
        ptxgen.gemm_jagged_input_grad(dy, w, ENDS), np.einsum("tn,tkn->tk", dy, w[EXPERT]), atol=1e-4
    )
    got = ptxgen.gemm_jagged_weight_grad(x, dy, ENDS)
    for e in range(4):
        rows = np.flatnonzero(np.equal(EXPERT, e))
        np.testing.assert_allclose(got[e], x[rows].T @ dy[rows], atol=1e-4)


def test_alpha_zero_reads_no_operand(experts):
    x, w, dy = (np.full_like(y, np.nan) for y in experts)
    old, bias = experts[2].copy(), experts[2][:4].copy()
    got = ptxgen.gemm_jagged(x, w, ENDS, alpha=0, beta=-2, out=old.copy(), bias=bias)
    np.testing.assert_allclose(got, -2 * old + bias[EXPERT], atol=1e-5)
    assert np.array_equal(ptxgen.gemm_jagged_input_grad(dy, w, ENDS, alpha=0), np.zeros_like(x))
    assert np.array_equal(ptxgen.gemm_jagged_weight_grad(x, dy, ENDS, alpha=0), np.zeros_like(w))
    before = experts[1].copy()
    assert np.array_equal(ptxgen.gemm_jagged_weight_grad(x, dy, ENDS, alpha=0, beta=3, out=before), 3 * experts[1])
    out = np.full((20, 8), np.nan, np.float32)
    ptxgen.gemm_jagged(x, w, ENDS - np.int32(1), alpha=0, out=out)
    assert np.isnan(out[19]).all()
    assert not out[:19].any()


@pytest.mark.parametrize("name", ["e4m3", "bf16", "s8"])
def test_alpha_zero_of_types_with_tensor_cores(name):
    a = np.full((20, 48), 1 if name == "s8" else np.nan).astype(dtype(name).numpy)
    w, ends = np.stack([a.T, a.T]), np.array([3, 20], np.int32)
    for got in (
        ptxgen.gemm(a, a.T, alpha=0),
        *ptxgen.gemm_grouped([a], [a.T], alpha=0),
        ptxgen.gemm_jagged(a, w, ends, alpha=0),
    ):
        assert np.array_equal(got, np.zeros((20, 20)))
    assert not ptxgen.gemm_jagged_weight_grad(a, a, ends, alpha=0).any()


@pytest.mark.parametrize("order", ["C", "F"])
def test_alpha_zero_of_items_reads_no_operand(order):
    a, b, outs = lists(np.random.default_rng(4), order=order)
    alpha, beta = [0.0, 1.0, 0.0, 2.0, -0.0], [0.0, 1.0, -2.0, 0.0, 1.0]
    expected = [p * x @ y + q * c if p else q * c for p, q, x, y, c in zip(alpha, beta, a, b, outs, strict=True)]
    for p, q, x, y, c in zip(alpha, beta, a, b, outs, strict=True):
        for unread in (*((x, y) if p == 0 else ()), *((c,) if q == 0 else ())):
            unread[...] = np.nan
    for got, wanted in zip(ptxgen.gemm_grouped(a, b, outs, alpha=alpha, beta=beta), expected, strict=True):
        np.testing.assert_allclose(got, np.nan_to_num(wanted), atol=1e-4)


def test_rows_after_the_last_offset_are_not_written(experts):
    x, w, _ = experts
    out = np.full((20, 8), np.nan, np.float32)
    ptxgen.gemm_jagged(x, w, ENDS - np.int32(1), out=out)
    assert np.isnan(out[19]).all()
    assert not np.isnan(out[:19]).any()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"offsets": ENDS[::-1].copy()}, InputError, "offset 19 of item 1 is less than 20"),
        ({"offsets": ENDS + np.int32(5)}, InputError, "offset 24 of item 2 passes the end of the rows, 20"),
        ({"offsets": ENDS.astype(np.int64)}, DtypeError, "offsets"),
        ({"offsets": ENDS[:3]}, ShapeError, "w has shape .* E=3"),
        ({"w": np.ones((4, 11, 8), np.float32)}, ShapeError, "x has 12 columns and w has K=11"),
        ({"w": np.ones((4, 12, 8))}, DtypeError, "x is f32 and w is f64"),
        ({"out": np.ones((20, 9), np.float32)}, ShapeError, "out has shape"),
        ({"bias": np.ones(8, np.float32)}, ShapeError, "bias has shape"),
        ({"scale_a": np.ones(4, np.float32)}, InputError, "one of scale_a and scale_b is None"),
        ({"beta": 1.0}, InputError, "beta is 1 and out is None"),
        ({"sums": SUMS}, InputError, "sums is an array; activation must then be given"),
        (
            {"sums": SUMS[:9], "activation": "relu"},
            ShapeError,
            "sums is f32 of 9x8; it must be f32 of 20x8, in the mem",
        ),
        ({"sums": SUMS[:, :4], "activation": "swiglu"}, ShapeError, "sums is f32 of 20x4; it must be f32 of 20x8"),
        ({"sums": SUMS.astype(np.float16), "activation": "relu"}, ShapeError, "sums is f16 of 20x8; it must be f32"),
        ({"sums": SUMS, "out": SUMS, "activation": "relu"}, OverlapError, "out shares memory with sums"),
        ({"sums": SUMS, "aux": SUMS, "activation": "x*aux"}, OverlapError, "sums shares memory with aux"),
    ],
)
def test_errors_of_jagged_calls(experts, change, error, message):
    arguments = {"x": experts[0], "w": experts[1], "offsets": ENDS} | change
    with pytest.raises(error, match=message):
        ptxgen.gemm_jagged(**arguments)


@pytest.mark.parametrize(
    ("tile", "prefetch", "loops"),
    [
        ("ms=32 ns=8", 0, ["K_LOOP_M"]),
        ("ms=32 ns=8", 1, []),
        ("ms=16 ns=16", 0, ["K_LOOP_N"]),
        ("ms=16 ns=16", 1, []),
        ("ms=32 ns=16", 0, ["K_LOOP_M_N", "K_LOOP_M", "K_LOOP_N"]),
        ("ms=32 ns=16", 1, ["K_LOOP_M", "K_LOOP_N"]),
        ("ms=64 ns=8", 1, ["K_LOOP_M"]),
    ],
)
def test_no_loop_multiplies_a_single_f64_tile_whose_fragments_are_prefetched(tile, prefetch, loops):
    p = GroupedGemm(((80, 16, 192), (196, 24, 64)), dtype="f64")
    c = parse_config(f"family=mma {tile} ml=64 nl=32 u=16 vec_a=2 vec_b=2 vec_c=2 fragment_prefetch={prefetch}")
    plan = plan_for(p, c, H200)
    assert [part.label for part in plan.mainloop.parts] == loops
    parts = [(c.ms // part.a, c.ns // part.b) for part in plan.mainloop.parts]
    assert (plan.geometry.part_m, plan.geometry.part_n) in (parts or [(c.ms, c.ns)])
    text = render(plan).text
    assert ("%few_a" in text, "%few_b" in text) == (
        any("_M" in name for name in loops),
        any(name.endswith("_N") for name in loops),
    )


def test_reference_of_a_group_is_that_of_its_items():
    p = GroupedGemm(ITEMS, "NT", "f64")
    arrays = random_group(p)
    a, b, c = (arrays[name] for name in "ABC")
    computed = reference(p, arrays)
    for i, (m, n, _) in enumerate(p.items):
        if m and n:
            item = reference(p.item(i), {"A": item_view(p, A, a, i), "B": item_view(p, B, b, i)})
            np.testing.assert_array_equal(item_view(p, C, computed.exact, i), item.exact)
            np.testing.assert_array_equal(item_view(p, C, computed.scale, i), item.scale)
    assert computed.exact.shape == c.shape
    assert p.stored == (a.shape, b.shape, c.shape)


@pytest.mark.parametrize("epilogue", ["", "bias_column,residual,relu"])
def test_a_sampled_check_compares_rows_of_every_item(epilogue):
    p = GroupedGemm(((70, 300, 40), (0, 5, 5), (9, 20, 0), (33, 257, 64)), epilogue=epilogue)
    arrays = random_group(p)
    out = arrays["C"].copy()
    for i in range(len(p.items)):
        more = {name: epilogue_view(p, name, arrays[name], i) for name in p.epilogue_operands}
        if p.item(i).results:
            item = reference(
                p.item(i), {"A": item_view(p, A, arrays["A"], i), "B": item_view(p, B, arrays["B"], i), **more}
            )
            item_view(p, C, out, i)[...] = item.exact
    assert sampled_deviation(p, arrays, out, 2000).ok
    for i, row, column in ((0, 0, 0), (0, 69, 299), (3, 32, 256)):
        wrong = out.copy()
        item_view(p, C, wrong, i)[row, column] += 1.0
        deviation = sampled_deviation(p, arrays, wrong, 2000)
        assert not deviation.ok
        assert deviation.where == (i, row, column)
