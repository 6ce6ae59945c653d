"""fp8 products with scales of blocks of K: each recipe and orientation of wgmma, scales that are not ordinary numbers."""

from __future__ import annotations

import itertools
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gemm_runs import right

from ptxgen import gemm, gemm_grouped, gemm_jagged, gemm_jagged_weight_grad
from ptxgen.api import choice, drivers, runners
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.families.common.rules import first_violation
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.registry import FAMILIES, native
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import LAYOUTS, Gemm
from ptxgen.operations.grouped.checks import group_deviation, random_group
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.grouped.reference import item_view
from ptxgen.problem.block_scales import SCALINGS
from ptxgen.problem.device import device
from ptxgen.problem.reference import compare, epilogue_arrays, operands, reference
from ptxgen.problem.registry import parse
from ptxgen.runtime.check import CASES
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases import SOURCES
from tests.tensors import LIBRARY, Tensor

K = 203  #: two blocks, the last one of 75
#: rows and columns of C, blocks of A and of B, configuration
KERNELS = {
    "scales of Y are exchanged": (
        81,
        44,
        "1x128t",
        "1x128",
        "ml=128 nl=40 u=128 stages=2 math_warpgroups=2 persistent=1",
    ),
    "blocks of Y end within a tile": (9, 140, "1x128", "128x128", "ml=64 nl=96 u=256 stages=2"),
    "two sums of a stage": (
        140,
        33,
        "1x128t",
        "128x128",
        "ml=128 nl=40 u=256 stages=2 math_warpgroups=2 persistent=1 promotion_buffers=2",
    ),
    "a block has several sums": (65, 33, "1x128", "128x128t", "ml=64 nl=32 u=64 stages=3 kg=2 splitk=workspace"),
    "64 rows along N": (
        25,
        131,
        "1x128",
        "128x128",
        "ml=24 nl=128 u=128 stages=2 transposed_mma=1 math_warpgroups=2",
    ),
    "two instructions along X": (131, 17, "128x128", "1x128", "ml=128 nl=16 u=128 stages=2 cluster_k=2"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_results_are_right(name: str) -> None:
    m, n, first, second, text = KERNELS[name]
    paths = "operand_path_a=pack operand_path_b=pack"  # rows of 203 bytes
    right(Gemm(m, n, K, "NT", "e4m3", block_a=first, block_b=second), f"family=wgmma {text} {paths}")


def test_random_configurations_are_right() -> None:
    for n, (p, c) in enumerate(SOURCES["wgmma_scaled"].cases(7, 2, device("h200"), limit=64)):
        right(p, c, n)


BLOCKS = tuple(itertools.product((1, 128), (1, 128)))  #: rows of the blocks of A and of B
#: layout -> configuration that packs no operand: X is read from registers if it is not K-major
DIRECT = {"NT": "", "NN": "transposed_mma=1", "TT": "", "TN": "operand_path_b=pack"}
PACKED = "operand_path_a=pack operand_path_b=pack"


def _blocks(rows: tuple[int, int], layout: str) -> dict[str, str]:
    """The fields of blocks with these rows. The orders of the scales differ between layouts."""
    words = (f"{n}x128{'t' * (LAYOUTS.index(layout) + i & 1)}" for i, n in enumerate(rows))
    return dict(zip(("block_a", "block_b"), words, strict=True))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", BLOCKS)
def test_every_layout_takes_every_pair_of_blocks(layout: str, rows: tuple[int, int]) -> None:
    """Rows that TMA maps, and rows that must be packed; usual and unusual scales."""
    for (m, n, k), paths in (((80, 144, 208), DIRECT[layout]), ((67, 131, 203), PACKED)):
        p = Gemm(m, n, k, layout, "e4m3", out="f32", dtype_b="e5m2", **_blocks(rows, layout))
        tile = "ml=48 nl=64" if "transposed" in paths else "ml=64 nl=48"
        runner = Runner.of(
            EmulatedDriver(device("h200")), p, parse_config(f"family=wgmma {tile} u=64 stages=2 {paths}")
        )
        usual, positive = (operands(p, 3, x) | epilogue_arrays(p, 3) for x in ("normal", "positive"))
        for arrays in (usual, _unusual(p, positive)):
            with np.errstate(all="ignore"):
                deviation = compare(runner.compute(arrays)["C"], reference(p, arrays))
            assert deviation.ok, f"{p.key()} | {paths}: {deviation}"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_a_batch(layout: str) -> None:
    p = Gemm(67, 72, 160, layout, "e4m3", batch=3, block_a="1x128", block_b="128x128")
    right(p, f"family=wgmma ml=64 nl=72 u=128 stages=2 {PACKED}")


BATCHES = {
    "items have scales": ({}, "ml=64 nl=64 u=128 stages=2"),
    "items share B and its scales": ({"stride_b": 0}, "ml=64 nl=64 u=128 stages=2 persistent=1"),
}


@pytest.mark.parametrize("name", BATCHES)
def test_items_of_a_batch_have_scales_of_their_operands(name: str) -> None:
    strides, text = BATCHES[name]
    p = Gemm(70, 72, 160, "NT", "e5m2", out="f16", batch=3, block_a="1x128", block_b="128x128", **strides)
    assert p.scale_shapes == {"scale_a": (3, 70, 2), "scale_b": (1 if strides else 3, 1, 2)}
    right(p, f"family=wgmma {text}")


EXPERTS = {
    "rows along M": ("1x128t", "128x128", "ml=64 nl=32 u=128 stages=3 persistent=1"),
    "rows along N": ("1x128", "1x128t", "ml=24 nl=64 u=128 stages=3 persistent=1 transposed_mma=1"),
    "two buffers, and registers from the producer": (
        "1x128",
        "128x128",
        "ml=128 nl=128 u=256 stages=2 persistent=1 math_warpgroups=2 promotion_buffers=2 epilogue_smem=1",
    ),
}


@pytest.mark.parametrize("name", EXPERTS)
def test_rows_of_experts_have_scales(name: str) -> None:
    first, second, text = EXPERTS[name]
    items = (33, 136, 144), (0, 136, 144), (70, 136, 144), (1, 136, 144)
    p = GroupedGemm(items, "NT", "e4m3", jagged="m", block_a=first, block_b=second)
    assert parse(p.key()) == p
    right(p, f"family=wgmma {text}")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", [1, 128])
def test_every_layout_of_rows_of_experts(layout: str, rows: int) -> None:
    """Rows that TMA maps, and rows that must be packed, as must A if items are ranges of its columns; usual and unusual
    scales."""
    a = "operand_path_a=pack" if layout[0] == "T" else ""
    for (n, k), paths in (((48, 208), f"{DIRECT[layout]} {a}"), ((45, 203), PACKED)):
        items = tuple((m, n, k) for m in (33, 0, 70, 1))
        p = GroupedGemm(items, layout, "e4m3", jagged="m", out="f32", dtype_b="e5m2", **_blocks((1, rows), layout))
        tile = "ml=48 nl=64" if "transposed" in paths else "ml=64 nl=48"
        config = parse_config(f"family=wgmma {tile} u=64 stages=2 persistent=1 {paths}")
        runner = Runner.of(EmulatedDriver(FEW_SMS), p, config)
        for arrays in (random_group(p, 3), _unusual(p, random_group(p, 3, "positive"))):
            arrays["C"][...] = np.nan
            with np.errstate(all="ignore"):
                deviation = group_deviation(p, arrays, runner.compute(arrays)["C"], "normal")
            assert deviation.ok, f"{p.key()} | {paths}: {deviation}"


def test_packed_experts_access_nothing_outside_the_arrays() -> None:
    """Offsets that are wrong, of items that do not overlap; A begins and ends anywhere."""
    items = tuple((m, 45, 203) for m in (33, 0, 70, 1))
    p = GroupedGemm(items, "TN", "e4m3", jagged="m", aligned_a=1, aligned_b=1, block_a="1x128", block_b="128x128")
    arrays = random_group(p)
    config = f"family=wgmma ml=64 nl=48 u=128 stages=2 persistent=1 {PACKED}"
    runner = Runner.of(EmulatedDriver(FEW_SMS), p, parse_config(config))
    for offsets in ([1 << 30, 104, 200, 300], [-5, -7, 3, 1 << 30]):
        runner.compute(arrays | {"offsets": np.array(offsets, np.int32)})


def test_more_experts_than_a_grid_has_blocks_are_packed_by_several_launches() -> None:
    p = GroupedGemm(((1, 45, 33),) * 65536, "TN", "e4m3", jagged="m", block_a="1x128", block_b="1x128")
    config = parse_config(f"family=wgmma ml=64 nl=48 u=64 stages=2 persistent=1 {PACKED}")
    steps = plan_for(p, config, device("h200")).launch(lower(p)).steps
    packed = [step.grid[2] for step in steps if step.entry.endswith("_pack")]
    assert packed == [65535, 1]
    assert max(step.grid[2] for step in steps) == 65535


def test_experts_that_are_packed_have_scales() -> None:
    group = GroupedGemm(((64, 48, 208), (32, 48, 208)), "TN", "e4m3", jagged="m")
    scaled = replace(group, block_a="1x128", block_b="128x128")
    common = "family=wgmma ml=64 nl=48 u=64 stages=2 persistent=1"
    for p, paths, rule in (
        (scaled, PACKED, None),
        (scaled, "operand_path_b=pack", "wgmma_group_paths"),
        (group, PACKED, "wgmma_group_paths"),
        (replace(group, layout="NT"), PACKED, "wgmma_group_paths"),
    ):
        violated = first_violation(lower(p), parse_config(f"{common} {paths}"), device("h200"))
        assert (violated and violated.name) == rule, p.key()


@pytest.mark.parametrize("place", ["host", "device"])
def test_calls_on_experts_take_operands_of_any_strides(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows or columns are contiguous, at any address and distance; scales of either order."""
    rng, driver = np.random.default_rng(4), Gpu(FEW_SMS)
    stored = _placed(driver, place == "device", monkeypatch)
    ends = np.array([12, 12, 40], np.int32)
    x = rng.standard_normal((41, 145)).astype(ml_dtypes.float8_e4m3fn)
    w = rng.standard_normal((3, 145, 21)).astype(ml_dtypes.float8_e5m2)
    scale_a = rng.uniform(0.5, 2, (40, 2)).astype(np.float32)
    scale_b = rng.uniform(0.5, 2, (3, 2, 21)).astype(np.float32)
    wide = np.zeros((40, 21))
    for i, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        left = x[start:end, 1:].astype(np.float64) * _tiled(scale_a[start:end], (end - start, 144))
        wide[start:end] = left @ (w[i, 1:].astype(np.float64) * _tiled(scale_b[i], (144, 21)))
    for order_a, order_b in itertools.product(((0, 1), (1, 0)), ((0, 1, 2), (0, 2, 1))):
        first = stored(x, order_a)[slice(0, 40), slice(1, 145)]
        second = stored(w, order_b)[slice(0, 3), slice(1, 145), slice(0, 21)]
        out = stored(np.full((40, 21), np.nan, np.float32))
        scales = {"scale_a": stored(scale_a, order_a), "scale_b": stored(scale_b, order_b)}
        gemm_jagged(first, second, stored(ends), out=out, **scales)
        got = out.numpy() if place == "device" else out
        assert np.abs(got - wide).max() <= 1e-3 * np.abs(wide).max()


def test_one_expert_of_one_row_has_no_pitch() -> None:
    """200 bytes are no pitch of a tensor map."""
    dtype = ml_dtypes.float8_e4m3fn
    a, b = np.full((130, 1), 2).astype(dtype), np.full((1, 1, 200), 3).astype(dtype)
    scales = {"scale_a": np.full((130, 1), 0.5, np.float32), "scale_b": np.ones((1, 1, 200), np.float32)}
    c = gemm_jagged(a, b, np.array([130], np.int32), **scales)
    assert (c.astype(np.float32) == 3).all()


def test_calls_on_experts_take_scales() -> None:
    rng, dtype = np.random.default_rng(1), ml_dtypes.float8_e4m3fn
    x, w = rng.standard_normal((30, 144)).astype(dtype), rng.standard_normal((2, 24, 144)).astype(dtype)
    scale_a, scale_b = (rng.uniform(0.5, 2, shape).astype(np.float32) for shape in ((30, 2), (2, 2, 1)))
    result = gemm_jagged(x, w.swapaxes(1, 2), np.array([12, 30], np.int32), scale_a=scale_a, scale_b=scale_b)
    left = x.astype(np.float64) * np.repeat(scale_a, 128, 1)[:, :144]
    right_ = w.swapaxes(1, 2).astype(np.float64) * np.repeat(scale_b, 128, 1)[:, :144]
    wide = np.concatenate([left[:12] @ right_[0], left[12:] @ right_[1]])
    assert np.abs(result.astype(np.float64) - wide).max() < 0.01 * np.abs(wide).max()
    with pytest.raises(ShapeError, match="scale_a is 30x1; it must have 2 columns, one for each 128 of K"):
        gemm_jagged(x, w.swapaxes(1, 2), np.array([12, 30], np.int32), scale_a=scale_a[:, :1].copy(), scale_b=scale_b)
    for rows in (1, 5):  # the scales of A have no blocks of 128 rows
        with pytest.raises(ShapeError, match=f"scale_a is {rows}x2; it must have 30 rows, one for each row of x"):
            gemm_jagged(x, w.swapaxes(1, 2), np.array([12, 30], np.int32), scale_a=scale_a[:rows], scale_b=scale_b)


LENGTHS = (5, 0, 129, 1, 256, 0, 78, 0)
#: blocks of A and of B, types, type of the result, further blocks of the arrays of scales, configuration
RANGES = {
    "whole blocks": ("1x128", "1x128t", ("e4m3", "e4m3"), "f32", 0, "ml=64 nl=32 u=128 stages=2"),
    "parts of blocks": (
        "1x128t",
        "1x128",
        ("e4m3", "e5m2"),
        "bf16",
        3,
        "ml=128 nl=40 u=32 stages=3 math_warpgroups=2 epilogue_smem=1",
    ),
    "rows along N, clusters": (
        "1x128t",
        "1x128t",
        ("e5m2", "e4m3"),
        "f32",
        0,
        "ml=32 nl=64 u=64 stages=2 transposed_mma=1 cluster_x=2 cluster_y=2",
    ),
}
FEW_SMS = replace(device("h200"), sms=4)  #: blocks compute several tiles


@pytest.mark.parametrize("name", RANGES)
def test_ranges_of_k_have_scales(name: str) -> None:
    """The first block of an item begins at its first column, which is no multiple of 16 bytes; its last one is shorter."""
    first, second, types, out, more, text = RANGES[name]
    items = tuple((72, 48, k) for k in LENGTHS)
    p = GroupedGemm(
        items,
        "NT",
        types[0],
        jagged="k",
        out=out,
        dtype_b=types[1],
        block_a=first,
        block_b=second,
        scale_blocks=7 + more,
    )
    assert p.scale_shapes["scale_b"][second == "1x128"] == 7 + more
    assert parse(p.key()) == p
    right(p, f"family=wgmma persistent=1 {text}", on=FEW_SMS)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_of_an_item_reaches_its_neighbours(layout: str) -> None:
    """An item of NaN with scales of NaN, infinity, zero and denormal numbers lies between others and items without K.
    The workspace is full of NaN before."""
    items = tuple((65, 40, k) for k in (30, 0, 70, 0, 150))
    p = GroupedGemm(items, layout, "e4m3", jagged="k", out="f32", block_a="1x128", block_b="1x128t")
    arrays = random_group(p, 3, "positive")
    a = arrays["A"].reshape(65, -1) if layout[0] == "N" else arrays["A"].reshape(-1, 65).T
    b = arrays["B"].reshape(40, -1) if layout[1] == "T" else arrays["B"].reshape(-1, 40).T
    columns = slice(30, 100)
    a[:, columns], b[::2, columns] = np.nan, np.nan
    arrays["scale_a"][:, 1] = np.resize(np.array([np.nan, np.inf, 0, 1e-44, -np.inf], np.float32), 65)
    arrays["scale_a"][:, 2] = np.resize(np.array([0, 1e-40, -1, 1e38], np.float32), 65)
    arrays["scale_b"][1] = np.inf
    arrays["C"][...] = np.nan
    runner = Runner.of(EmulatedDriver(FEW_SMS), p, parse_config("family=wgmma ml=64 nl=24 u=64 stages=2 persistent=1"))
    with np.errstate(all="ignore"):
        only = {name: np.full_like(arrays[name], np.nan) for name in "AB"}
        runner.compute(arrays | only | {"offsets": np.array([250, 0, 250, 0, 250], np.int32)})
        out = runner.compute(arrays, 1.0, 0.0)["C"]
        deviation = group_deviation(p, arrays, out, "normal")
    assert deviation.ok, deviation
    assert np.isnan(item_view(p, 2, out, 2)).all()
    assert not item_view(p, 2, out, 3).any()


@pytest.mark.parametrize("layout", ["NT", "TN"])
def test_offsets_that_are_wrong_access_nothing_outside_the_arrays(layout: str) -> None:
    items = tuple((72, 48, k) for k in LENGTHS)
    p = GroupedGemm(items, layout, "e4m3", jagged="k", block_a="1x128", block_b="1x128t")
    arrays, total = random_group(p), sum(LENGTHS)
    runner = Runner.of(EmulatedDriver(FEW_SMS), p, parse_config("family=wgmma ml=64 nl=48 u=128 stages=2 persistent=1"))
    for offsets in ([total, 0] * 4, [-5, 1 << 30, -7, 3, 9, total, total + 9, -1]):
        runner.compute(arrays | {"offsets": np.array(offsets, np.int32)})


LIST = ((72, 48, 5), (0, 48, 20), (33, 131, 200), (1, 1, 1), (130, 7, 0), (65, 40, 256), (9, 0, 9), (17, 129, 129))
LISTS = {
    "scales of rows and of blocks": ("1x128", "128x128", ("e4m3", "e4m3"), "f32", "ml=64 nl=32 u=128 stages=2"),
    "scales of blocks and of rows": (
        "128x128t",
        "1x128",
        ("e4m3", "e5m2"),
        "bf16",
        "ml=128 nl=32 u=64 stages=3 math_warpgroups=2",
    ),
    "rows along N, clusters": (
        "1x128t",
        "1x128t",
        ("e5m2", "e4m3"),
        "f32",
        "ml=32 nl=64 u=32 stages=2 transposed_mma=1 cluster_x=2 cluster_y=2",
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_items_of_a_list_have_scales(name: str) -> None:
    """Each item has its own M, N and K, and strides of scales that follow from them."""
    first, second, types, out, text = LISTS[name]
    p = GroupedGemm(LIST, "NT", types[0], out=out, dtype_b=types[1], block_a=first, block_b=second)
    assert parse(p.key()) == p
    right(p, f"family=wgmma persistent=1 {text}", on=FEW_SMS)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", BLOCKS)
def test_every_layout_of_the_items_of_a_list(layout: str, rows: tuple[int, int]) -> None:
    p = GroupedGemm(LIST, layout, "e4m3", dtype_b="e5m2", **_blocks(rows, layout))
    right(p, "family=wgmma persistent=1 ml=64 nl=48 u=64 stages=2", on=FEW_SMS)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_ranges_of_k(layout: str) -> None:
    """Leading dimensions are longer than rows."""
    items = tuple((67, 45, k) for k in LENGTHS)
    p = GroupedGemm(items, layout, "e4m3", jagged="k", out="f32", dtype_b="e5m2", **_blocks((1, 1), layout))
    a, b, c = (int(n) for n in p.lds[0])
    p = replace(p, ld=f"{a + 3}:{b + 1}:{c}")
    right(p, "family=wgmma persistent=1 ml=64 nl=48 u=64 stages=2", on=FEW_SMS)


def test_items_without_scales_are_packed_if_k_is_contiguous() -> None:
    """Other items of 8-bit elements keep the kernels of mma.sync."""
    config = parse_config("family=wgmma ml=64 nl=32 u=64 stages=2 persistent=1")
    for jagged, layout, rule in (
        ("k", "NT", None),
        ("k", "TN", "wgmma_packed_items"),
        ("k", "NN", "wgmma_packed_items"),
        ("", "NT", "wgmma_packed_items"),
        ("m", "TT", "wgmma_group_paths"),
    ):
        p = GroupedGemm(((64, 48, 32), (64, 48, 32)), layout, "e4m3", jagged=jagged)
        violated = first_violation(lower(p), config, device("h200"))
        assert (violated and violated.name) == rule, p.key()
        assert native(lower(p), device("h200")) == (["wgmma"] if rule is None else []), p.key()


class Gpu(EmulatedDriver):
    name = "cuda"


def _spread(scales: np.ndarray, ends: list[int], tokens: int) -> np.ndarray:
    """Scales of blocks of each expert as scales of tokens."""
    out, block = np.zeros((tokens, scales.shape[1])), 0
    for start, end in zip([0, *ends], ends, strict=False):
        for first in range(start, end, 128):
            out[first : min(first + 128, end)] = scales[block]
            block += 1
    return out


def _placed(driver: EmulatedDriver, on_device: bool, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that places an array on the device, with axes in an order, or leaves it on the host."""
    if on_device:
        for name in ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "bfloat16"):
            monkeypatch.setattr(LIBRARY, name, f"torch.{name}", raising=False)
        monkeypatch.setattr(drivers, "driver", lambda: driver)
        monkeypatch.setattr(choice, "database", lambda: None)
        monkeypatch.setattr(runners, "runners", OrderedDict())
        monkeypatch.setitem(sys.modules, "torch", LIBRARY)
    return lambda x, order=None: Tensor(driver, x, order) if on_device else x


@pytest.mark.parametrize("place", ["host", "device"])
def test_weight_gradients_of_experts_take_scales(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands and scales of either order, and exactly as many scales as the experts have blocks. On the device nothing
    is read back, and no operand is copied by the call."""
    rng, driver, on_device = np.random.default_rng(2), Gpu(FEW_SMS), place == "device"
    stored = _placed(driver, on_device, monkeypatch)
    monkeypatch.setattr(Tensor, "contiguous", None)
    for ends, blocks, order in (([30, 30, 200, 333], 5, (1, 0)), ([128, 256, 384, 400], 4, (0, 1))):
        tokens = ends[-1] + 3
        x = rng.standard_normal((tokens, 20)).astype(ml_dtypes.float8_e4m3fn)
        dy = rng.standard_normal((tokens, 24)).astype(ml_dtypes.float8_e5m2)
        scales = [rng.uniform(0.5, 2, (blocks, n)).astype(np.float32) for n in (20, 24)]
        out, offsets = stored(np.full((4, 20, 24), np.nan, np.float32)), stored(np.array(ends, np.int32))
        given = {"scale_a": stored(scales[0], order), "scale_b": stored(scales[1], order[::-1]), "out": out}
        with monkeypatch.context() as without:
            without.setattr(driver, "download", None)
            gemm_jagged_weight_grad(stored(x, (1, 0)), stored(dy, order), offsets, **given)
        left, right_ = (y.astype(np.float64) * _spread(s, ends, tokens) for y, s in zip((x, dy), scales, strict=True))
        got = out.numpy() if on_device else out
        for i, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            wide = left[start:end].T @ right_[start:end]
            assert np.abs(got[i] - wide).max() <= 1e-3 * np.abs(wide).max(initial=0)


def _tiled(scales: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Scales of blocks as scales of elements."""
    repeats = [1 if n == extent else 128 for n, extent in zip(scales.shape, shape, strict=True)]
    return np.repeat(np.repeat(scales, repeats[0], 0), repeats[1], 1)[: shape[0], : shape[1]]


@pytest.mark.parametrize("place", ["host", "device"])
def test_calls_on_lists_take_scales(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands and scales of either order, which the call does not copy; an item without K; results of either order."""
    rng, driver, on_device = np.random.default_rng(3), Gpu(FEW_SMS), place == "device"
    stored = _placed(driver, on_device, monkeypatch)
    shapes = ((72, 48, 5), (33, 131, 200), (130, 140, 256), (9, 5, 300), (20, 24, 0))
    a = [rng.standard_normal((m, k)).astype(ml_dtypes.float8_e4m3fn) for m, _, k in shapes]
    b = [rng.standard_normal((k, n)).astype(ml_dtypes.float8_e5m2) for _, n, k in shapes]
    scale_a = [rng.uniform(0.5, 2, (m, -(-k // 128))).astype(np.float32) for m, _, k in shapes]
    scale_b = [rng.uniform(0.5, 2, (-(-k // 128), -(-n // 128))).astype(np.float32) for _, n, k in shapes]
    alpha = [1.0, 2.0, 1.0, 0.0, 1.0]
    monkeypatch.setattr(Tensor, "contiguous", None)
    plain, turned = (0, 1), (1, 0)
    for orders, result in (((plain, turned), plain), ((turned, plain), turned), ((plain, plain), turned)):
        outs = [stored(np.full((m, n), np.nan, np.float32, order="CF"[result[0]]), result) for m, n, _ in shapes]
        lists = ([stored(x, orders[0]) for x in xs] for xs in (a, scale_a))
        others = ([stored(x, orders[1]) for x in xs] for xs in (b, scale_b))
        (first, first_scales), (second, second_scales) = lists, others
        gemm_grouped(first, second, outs, alpha=alpha, scale_a=first_scales, scale_b=second_scales)
        for i, (m, n, k) in enumerate(shapes):
            left = a[i].astype(np.float64) * (_tiled(scale_a[i], (m, k)) if k else 1)
            wide = alpha[i] * left @ (b[i].astype(np.float64) * (_tiled(scale_b[i], (k, n)) if k else 1))
            got = outs[i].numpy() if on_device else outs[i]
            assert np.abs(got - wide).max() <= 1e-3 * np.abs(wide).max(initial=0)
    with pytest.raises(ShapeError, match="item 2: scale_a is 1x2; it must be 130x2 or 2x2"):
        gemm_grouped(first, second, scale_a=[stored(x[:1]) for x in scale_a], scale_b=second_scales)


def test_scales_that_do_not_fit_are_named() -> None:
    x, dy = np.ones((30, 20), ml_dtypes.float8_e4m3fn), np.ones((30, 24), ml_dtypes.float8_e4m3fn)
    ends, scale_a, scale_b = np.array([12, 30], np.int32), np.ones((2, 20), np.float32), np.ones((2, 24), np.float32)
    for wrong_a, wrong_b, message in (
        (scale_a[:1], scale_b[:1], "scale_a is 1x20; it must be Bx20 with B of at least 2"),
        (scale_a, scale_b[:, :3], "scale_b is 2x3; it must be Bx24 with B of at least 2"),
        (scale_a, np.ones((3, 24), np.float32), "scale_a has 2 rows and scale_b has 3"),
    ):
        with pytest.raises(ShapeError, match=message):
            gemm_jagged_weight_grad(x, dy, ends, scale_a=wrong_a, scale_b=wrong_b)
    fields = {"jagged": "k", "block_a": "1x128"}
    with pytest.raises(InputError, match="block_b is 128x128 with jagged=k"):
        GroupedGemm(((8, 8, 8),), "NT", "e4m3", block_b="128x128", **fields)
    with pytest.raises(InputError, match="block_a is 128x128 with jagged=m"):
        GroupedGemm(((8, 8, 8),), "NT", "e4m3", jagged="m", block_a="128x128", block_b="128x128")
    with pytest.raises(ShapeError, match="scale_blocks is 1; it must be at least 2"):
        GroupedGemm(((8, 8, 8), (8, 8, 8)), "NT", "e4m3", block_b="1x128", scale_blocks=1, **fields)
    with pytest.raises(InputError, match="scale_blocks is 1"):
        GroupedGemm(((8, 8, 8),), scale_blocks=1)


#: scales that are zero, infinite, denormal or no number, and whose products overflow or underflow
UNUSUAL = {
    "scale_a": [0.0, np.inf, 1e-44, 1e30, 1e-30, -1.0, np.nan, 2.0**-126],
    "scale_b": [1.0, 0.0, 1e-40, 1e30, -1e-20, 1e38, 2.0**-149],
}


def _unusual(p: Gemm | GroupedGemm, arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays with unusual scales of the first block of K."""
    changed = {}
    for name, values in UNUSUAL.items():
        x = arrays[name].copy()
        first = x[..., 0, :] if p.scalings[name[-1].upper()].by_k else x[..., 0]
        first[...] = np.resize(np.array(values, np.float32), first.shape)
        changed[name] = x
    return arrays | changed


@pytest.mark.parametrize("out", ["f32", "bf16"])
def test_scales_that_are_not_ordinary_numbers(out: str) -> None:
    """Zeros, infinities, denormal numbers, products of scales that overflow or underflow, scales of one sign."""
    p = Gemm(65, 72, 300, "NT", "e4m3", out=out, block_a="1x128", block_b="1x128", lda=304, ldb=304)
    arrays = _unusual(p, operands(p, 3, "positive") | epilogue_arrays(p, 3))
    stored = {n: np.pad(x, ((0, 0), (0, 4))) if n in "AB" else x for n, x in arrays.items()}
    driver = EmulatedDriver(device("h200"))
    runner = Runner.of(driver, p, parse_config("family=wgmma ml=64 nl=24 u=128 stages=2"))
    with np.errstate(all="ignore"):
        deviation = compare(runner.compute(stored)["C"], reference(p, arrays))
        assert deviation.ok, deviation
        changed = stored | {"scale_a": stored["scale_a"] * np.float32(1.5)}
        assert not compare(runner.compute(changed)["C"], reference(p, arrays)).ok


@pytest.mark.parametrize("step", [1, 2])
def test_calls_take_operands_of_any_strides(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows or columns are contiguous, or neither, from any address on; results and scales of either order. A product,
    and a list of one."""
    rng, driver = np.random.default_rng(5), Gpu(FEW_SMS)
    stored = _placed(driver, True, monkeypatch)
    a = rng.standard_normal((41, 290)).astype(ml_dtypes.float8_e4m3fn)
    b = rng.standard_normal((290, 70)).astype(ml_dtypes.float8_e5m2)
    along = slice(1, 290, step)
    k = len(range(1, 290, step))
    scale_a = rng.uniform(0.5, 2, (41, -(-k // 128))).astype(np.float32)
    scale_b = rng.uniform(0.5, 2, (-(-k // 128), 1)).astype(np.float32)
    left = a[:, along].astype(np.float64) * _tiled(scale_a, (41, k))
    wide = left @ (b[along].astype(np.float64) * _tiled(scale_b, (k, 70)))
    for order_a, order_b in itertools.product(((0, 1), (1, 0)), repeat=2):
        outs = [stored(np.full((41, 70), np.nan, np.float32), order_b) for _ in range(2)]
        first, second = stored(a, order_a)[slice(0, 41), along], stored(b, order_b)[along, slice(0, 70)]
        scales = stored(scale_a, order_a), stored(scale_b, order_b)
        gemm(first, second, scale_a=scales[0], scale_b=scales[1], out=outs[0])
        gemm_grouped([first], [second], outs[1:], scale_a=[scales[0]], scale_b=[scales[1]])
        for out in outs:
            assert np.abs(out.numpy() - wide).max() <= 1e-3 * np.abs(wide).max()


@pytest.mark.parametrize("place", ["host", "device"])
def test_scales_may_be_of_a_type_of_powers_of_two(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results have the bits of those with the same scales in f32: the least and the greatest power, which make denormal
    numbers and infinities, and NaN; scales of either order; single numbers, rows, blocks."""
    rng, driver, on_device = np.random.default_rng(6), Gpu(FEW_SMS), place == "device"
    stored = _placed(driver, on_device, monkeypatch)
    exponents = np.array([127, 0, 126, 254, 255, 129, 1], np.uint8)

    def powers(*shape: int) -> np.ndarray:
        values = np.resize(exponents, int(np.prod(shape)))
        return np.asarray(rng.permutation(values).reshape(shape).view(ml_dtypes.float8_e8m0fnu))

    def same(call: Callable[..., Any], shape: tuple[int, ...], *scales: np.ndarray) -> None:
        results = []
        for turned, type in ((False, np.float32), (False, None), (True, None)):
            given = [x if type is None else x.astype(type) for x in scales]
            turned &= given[0].ndim > 1  # scales of rows of experts must be contiguous
            orders = [(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2) if turned else None for x in given]
            out = stored(np.full(shape, np.nan, np.float32))
            call(out, *(stored(x, order) for x, order in zip(given, orders, strict=True)))
            results.append((out.numpy() if on_device else out).copy())
        assert np.isfinite(results[0]).any()
        assert np.isnan(results[0]).any()
        for result in results[1:]:
            np.testing.assert_array_equal(result, results[0])

    a = rng.standard_normal((20, 200)).astype(ml_dtypes.float8_e4m3fn)
    b = rng.standard_normal((2, 200, 136)).astype(ml_dtypes.float8_e4m3fn)
    x, w, y, batch = stored(a), stored(b), stored(b[0]), stored(np.stack([a, a]))
    ends = stored(np.array([130, 200], np.int32))
    for shapes in (((20, 2), (2, 2)), ((20, 1), (1, 136))):
        same(lambda c, p, q: gemm(x, y, out=c, scale_a=p, scale_b=q), (20, 136), *(powers(*n) for n in shapes))
    same(lambda c, p, q: gemm(batch, w, out=c, scale_a=p, scale_b=q), (2, 20, 136), powers(2, 20, 2), powers(2, 2, 136))
    same(
        lambda c, p, q: gemm_grouped([x], [y], [c], scale_a=[p], scale_b=[q]), (20, 136), powers(20, 2), powers(2, 136)
    )
    rows = stored(np.array([7, 20], np.int32))
    same(
        lambda c, p, q: gemm_jagged(x, w, rows, out=c, scale_a=p, scale_b=q), (20, 136), powers(20, 2), powers(2, 2, 2)
    )
    same(lambda c, p, q: gemm_jagged(x, w, rows, out=c, scale_a=p, scale_b=q), (20, 136), powers(20), powers(2, 136))
    tokens = stored(a.T.copy())
    same(
        lambda c, p, q: gemm_jagged_weight_grad(tokens, y, ends, out=c, scale_a=p, scale_b=q),
        (2, 20, 136),
        powers(3, 20),
        powers(3, 136),
    )


@pytest.mark.parametrize("scales", ["float16", "int64", "float8_e4m3fn"])
def test_scales_of_other_types_are_refused(scales: str) -> None:
    a, b = np.ones((2, 20, 20), ml_dtypes.float8_e4m3fn)
    one = np.ones((20, 1), np.dtype(getattr(ml_dtypes, scales, scales)))
    message = f"scale_a has dtype {scales}; it must be float32 or float8_e8m0fnu"
    for call in (
        lambda: gemm(a, b, scale_a=one, scale_b=one.T),
        lambda: gemm_grouped([a], [b], scale_a=[one], scale_b=[one.T]),
        lambda: gemm_jagged(a, b[None], np.array([20], np.int32), scale_a=one, scale_b=one.T[None]),
    ):
        with pytest.raises(DtypeError, match=message):
            call()


def test_calls_take_the_recipe_from_the_shapes_of_scales() -> None:
    rng, dtype = np.random.default_rng(0), ml_dtypes.float8_e4m3fn
    a, w = (rng.standard_normal(shape).astype(dtype) for shape in ((20, 200), (136, 200)))

    def spread(scales: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        repeats = [1 if n == extent else 128 for n, extent in zip(scales.shape, shape, strict=True)]
        return np.repeat(np.repeat(scales, repeats[0], 0), repeats[1], 1)[: shape[0], : shape[1]]

    for shape_a, shape_b in (((20, 2), (2, 2)), ((1, 2), (2, 136))):
        scale_a, scale_b = (rng.uniform(0.5, 2, shape).astype(np.float32) for shape in (shape_a, shape_b))
        out = np.zeros((20, 136), np.float32)
        for into in (out, np.zeros((136, 20), np.float32).T):  # the second one is computed as its transpose
            result = gemm(a, w.T, scale_a=scale_a, scale_b=scale_b, out=into)
            wide = (a.astype(np.float64) * spread(scale_a, a.shape)) @ (
                w.T.astype(np.float64) * spread(scale_b, w.T.shape)
            )
            assert np.abs(result - wide).max() < 1e-3 * np.abs(wide).max()


#: device, configuration of mma.sync: parts of a block in a stage, whole blocks, slices of K, groups of warps
MMA = (
    ("rtx4090", "ms=32 ns=16 ml=64 nl=32 u=64 kl=1 stages=3"),
    ("b200", "ms=16 ns=16 ml=32 nl=32 u=256 kl=2 stages=2"),
    ("rtx4090", "ms=32 ns=16 ml=32 nl=32 u=128 kl=2 stages=2 kg=2 splitk=workspace fragment_prefetch=0"),
)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", BLOCKS)
def test_mma_sync_takes_every_layout_and_pair_of_blocks(layout: str, rows: tuple[int, int]) -> None:
    """K ends within a stage, within a block and within a step."""
    for n, (on, text) in enumerate(MMA):
        fields = _blocks(rows, layout) | ({"batch": 2, "stride_b": 0} if n == 1 else {})
        p = Gemm(80, 144, (352, 160, 656)[n], layout, "e4m3", out="f32", dtype_b="e5m2", **fields)
        right(p, f"family=mma {text} vec_a=16 vec_b=16 vec_c=2", n, on, CASES)


@pytest.mark.parametrize("family", ["mma_scaled", "grouped_mma_scaled"])
def test_random_configurations_of_mma_sync_are_right(family: str) -> None:
    for n, (p, c) in enumerate(SOURCES[family].cases(5, 3, device("rtx4090"), limit=64)):
        right(p, c, n, "rtx4090")


#: copies by registers of single elements, deferred or not, and by cp.async of packed operands
ANY_K = (
    "ms=16 ns=16 ml=64 nl=32 u=64 stages=2 cp_async_a=0 cp_async_b=0 fragment_prefetch=0",
    "ms=16 ns=16 ml=64 nl=32 u=64 stages=3 cp_async_a=0 cp_async_b=0 fragment_prefetch=0 deferred_sts=1",
    f"ms=16 ns=16 ml=32 nl=32 u=64 stages=2 vec_a=16 vec_b=16 {PACKED}",
)


@pytest.mark.parametrize("k", [1, 31, 203])
@pytest.mark.parametrize("layout", ["NT", "TN"])
def test_mma_sync_takes_every_k(layout: str, k: int) -> None:
    for n, text in enumerate(ANY_K):
        p = Gemm(35, 37, k, layout, "e4m3", out="f32", block_a="1x128", block_b="128x128t")
        right(p, f"family=mma {text}", n, "rtx4090", CASES)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("jagged", ["", "m", "k"])
def test_mma_sync_takes_every_layout_of_groups(layout: str, jagged: str) -> None:
    """Each item has its own K and place of scales; an item of NaN between others changes none of them."""
    items = {"": LIST, "m": tuple((m, 45, 203) for m in (33, 0, 70, 1)), "k": tuple((37, 45, k) for k in LENGTHS)}
    on = replace(device("rtx4090"), sms=2)
    for n, rows in enumerate({"": BLOCKS[::3], "m": BLOCKS[:2], "k": BLOCKS[:1]}[jagged]):
        p = GroupedGemm(
            items[jagged], layout, "e4m3", jagged=jagged, dtype_b="e5m2", out="f32", **_blocks(rows, layout)
        )
        right(p, f"family=mma {ANY_K[n]}", n, on)
    if jagged:
        arrays = _unusual(p, random_group(p, 3, "positive"))
        runner = Runner.of(EmulatedDriver(on), p, parse_config(f"family=mma {ANY_K[0]}"))
        arrays["C"][...] = np.nan
        with np.errstate(all="ignore"):
            deviation = group_deviation(p, arrays, runner.compute(arrays)["C"], "normal")
            wrong = {"m": [1 << 30, 104, 200, 300], "k": [-5, 1 << 30, -7, 3, 9, 469, 470, -1]}[jagged]
            runner.compute(arrays | {"offsets": np.array(wrong, np.int32)})  # reads nothing outside the arrays
        assert deviation.ok, deviation


def test_devices_without_wgmma_multiply_with_scales_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls on the device of an RTX 4090, with scales of rows and of blocks, of any K, and lists."""
    ada = EmulatedDriver(device("rtx4090"))
    monkeypatch.setattr(drivers, "driver", lambda: ada)
    monkeypatch.setattr(choice, "database", lambda: None)
    monkeypatch.setattr(runners, "runners", OrderedDict())
    rng, dtype = np.random.default_rng(0), ml_dtypes.float8_e4m3fn
    a, w = (rng.standard_normal(shape).astype(dtype) for shape in ((20, 160), (136, 160)))
    scale_a, scale_b = (rng.uniform(0.5, 2, shape).astype(np.float32) for shape in ((20, 2), (2, 2)))
    wide = (a.astype(np.float64) * _tiled(scale_a, a.shape)) @ (w.T.astype(np.float64) * _tiled(scale_b, (160, 136)))
    result = gemm(a, w.T, scale_a=scale_a, scale_b=scale_b, out=np.zeros((20, 136), np.float32))
    assert np.abs(result - wide).max() < 1e-3 * np.abs(wide).max()
    [result] = gemm_grouped([a], [w.T], [np.zeros((20, 136), np.float32)], scale_a=[scale_a], scale_b=[scale_b])
    assert np.abs(result - wide).max() < 1e-3 * np.abs(wide).max()
    part, wide = gemm(a[:, :149], w[:, :149].T, scale_a=scale_a, scale_b=scale_b), wide * 0
    wide += (
        a[:, :149].astype(np.float64)
        * _tiled(scale_a, (20, 149))
        @ (w.T[:149].astype(np.float64) * _tiled(scale_b, (149, 136)))
    )
    assert np.abs(part.astype(np.float64) - wide).max() < 1e-2 * np.abs(wide).max()


def test_no_family_computes_scales_of_blocks_by_accident() -> None:
    p = Gemm(20, 136, 200, "NT", "e4m3", block_a="1x128", block_b="128x128")
    assert [f.name for f in FAMILIES.values() if f.computes(lower(p))] == ["mma", "wgmma"]


def test_every_word_names_other_blocks() -> None:
    assert len(set(SCALINGS.values())) == len(SCALINGS)
