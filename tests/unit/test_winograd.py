"""The identities of Winograd's minimal filtering, and the ranking of its weight gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config.config import Config
from ptxgen.errors import ConfigError
from ptxgen.families import registry
from ptxgen.families.common import perf_model, space
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.winograd.axes import TILES
from ptxgen.families.winograd.interpolation import Interpolation
from ptxgen.families.winograd.perf_model import cell
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.problem.device import device
from ptxgen.problem.registry import parse
from ptxgen.tuning.choice.models import model_for
from ptxgen.tuning.model.model_files import Facts, known
from ptxgen.tuning.model.training import Training
from ptxgen.tuning.selection import select
from ptxgen.tuning.store.measurement import Environment, Measurement
from tests.lowered import winograd_of

H200 = device("h200")

B_T = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], np.float64)
G_F23 = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float64)
A_T_F23 = np.array([[1, 1, 1, 0], [0, 1, -1, -1]], np.float64)
G_F32 = np.array([[1, 0], [0.5, 0.5], [0.5, -0.5], [0, 1]], np.float64)
A_T_F32 = np.array([[1, 1, 1, 0], [0, 1, -1, 0], [0, 1, 1, -1]], np.float64)


@pytest.mark.parametrize(("g", "a_t"), [(G_F23, A_T_F23), (G_F32, A_T_F32)], ids=["F(2x2, 3x3)", "F(3x3, 2x2)"])
def test_minimal_filtering_is_correlation(g, a_t):
    """With a patch of 4x4 with a filter of 3x3, or with the gradients of a tile of 2x2: both share the transform of the
    patch."""
    rng = np.random.default_rng(0)
    patch, taps = rng.standard_normal((4, 4)), g.shape[1]
    filter_ = rng.standard_normal((taps, taps))
    result = a_t @ ((g @ filter_ @ g.T) * (B_T @ patch @ B_T.T)) @ a_t.T
    size = 5 - taps
    direct = [[np.sum(patch[i : i + taps, j : j + taps] * filter_) for j in range(size)] for i in range(size)]
    assert result == pytest.approx(np.array(direct), abs=1e-12)


def interpolated(a_t_rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bᵀ, G and Aᵀ of six points from the constants of the templates, by the rule of Cook and Toom."""
    x = Interpolation()
    points = [0.0, x.near, -x.near, x.far, -x.far]
    b_t, g, a_t = np.zeros((6, 6)), np.zeros((6, 7 - a_t_rows)), np.zeros((a_t_rows, 6))
    for i, point in enumerate(points):
        others = np.delete(points, i)
        b_t[i, :5] = np.polynomial.polynomial.polyfromroots(others)
        g[i] = point ** np.arange(7 - a_t_rows) / np.prod(point - others)
        a_t[:, i] = point ** np.arange(a_t_rows)
    b_t[5] = np.polynomial.polynomial.polyfromroots(points)
    g[5, -1] = a_t[-1, 5] = 1
    return b_t, g, a_t


@pytest.mark.parametrize("tile", [4, 3], ids=["F(4x4, 3x3)", "F(3x3, 4x4)"])
def test_minimal_filtering_of_six_points_is_correlation(tile):
    rng = np.random.default_rng(0)
    b_t, g, a_t = interpolated(tile)
    patch, taps = rng.standard_normal((6, 6)), 7 - tile
    filter_ = rng.standard_normal((taps, taps))
    result = a_t @ ((g @ filter_ @ g.T) * (b_t @ patch @ b_t.T)) @ a_t.T
    direct = [[np.sum(patch[i : i + taps, j : j + taps] * filter_) for j in range(tile)] for i in range(tile)]
    assert result == pytest.approx(np.array(direct), abs=1e-11)


@pytest.mark.parametrize("direction", ["forward", "input_grad", "weight_grad"])
def test_exact_nonfinite_is_a_need_that_it_lacks(direction):
    p = Conv(8, 64, 56, 56, 64, 3, 3, padding=1, direction=direction)
    exact = replace(p, exact_nonfinite=True)
    assert parse(exact.key()) == exact != p
    for q, has in ((p, True), (exact, False)):
        names = [f.name for f in space.families(lower(q), H200)]
        assert ("winograd" in names) == ("winograd_4x4" in names) == has
        assert "simt" in names
    with pytest.raises(ConfigError, match="family winograd lacks results that are exact beside infinities and NaN"):
        plan_for(exact, Config(family="winograd"), H200)
    assert select(exact, H200)[0].config.family not in TILES


def number(bits: str) -> float:
    return float(np.uint32(int(bits[2:], 16)).view(np.float32))


def test_interpolation_points_are_exact():
    """Constants of images and of results have no rounding error; those of the other operand are divided."""
    x = Interpolation()
    assert number(x.at_zero) == (x.near * x.far) ** 2
    b_t, g, _ = interpolated(4)
    for pair in x.pairs:
        assert number(pair.plus) == -number(pair.minus) == pair.value
        assert number(pair.square) == -number(pair.minus_square) == pair.value**2
        assert number(pair.cube) == pair.value**3
        assert number(pair.minus_other_square) == b_t[pair.first, 2]
        assert [number(pair.even), number(pair.odd)] == pytest.approx(g[pair.first, :2], rel=2**-24)
        assert number(pair.minus_odd) == -number(pair.odd)
    assert number(x.inverse_at_zero) == pytest.approx(g[0, 0], rel=2**-24)


@pytest.mark.parametrize(
    ("size", "family"), [(2, "winograd"), (5, "winograd"), (7, "winograd_4x4"), (28, "winograd_4x4")], ids=str
)
def test_tiles_of_4x4_compute_images_that_they_fill(size, family):
    """5x5 results are 9 tiles of 16 products, or 4 of 36; 7x7 are 16 of 16, or 4 of 36."""
    p = lower(Conv(32, 256, size, size, 256, 3, 3, padding=1))
    c = space.candidates(p, H200)
    us = perf_model.predict(p, c, H200)
    best = {name: us[c.family == registry.FAMILIES[name].code].min() for name in TILES}
    assert min(best, key=best.get) == family, best


def test_trees_that_saw_no_weight_gradient_do_not_rank_them():
    p = Conv(8, 64, 28, 28, 64, 3, 3, padding=1)
    gradient = lower(Conv(8, 64, 28, 28, 64, 3, 3, padding=1, direction="weight_grad"))
    facts = Facts({}, "clock", 300, 3, 0, families={"simt": 200, "winograd": 200})
    assert known(facts, lower(p)) == ["simt", "winograd"]
    assert known(facts, gradient) == ["simt"]
    counted = Facts({}, "clock", 300, 3, 0, families={"simt": 200, "winograd": 200, "winograd weight_grad": 200})
    assert known(counted, gradient) == ["simt", "winograd"]
    assert model_for(H200).learnt(gradient, "winograd")  # the shipped one was trained on them


def test_training_counts_weight_gradients():
    rows = []
    for direction in ("forward", "weight_grad"):
        p = Conv(8, 64, 28, 28, 64, 3, 3, padding=1, direction=direction)
        config = Config(family="winograd", ml=64, nl=64, vec_a=4, vec_b=4, vec_c=4)
        rows += [Measurement(p, config, "ok", Environment("h200"), (9.0,))]
    assert Training.gather(rows, H200).families == {"winograd": 2, "winograd weight_grad": 1}


@pytest.mark.parametrize(
    ("shape", "family"),
    [
        ((13, 768, 32, 32, 1536, 3, 3), "winograd_4x4"),
        ((32, 128, 28, 28, 128, 3, 3), "winograd_4x4"),
        ((32, 512, 7, 7, 512, 3, 3), "winograd"),
        ((32, 16, 56, 56, 16, 3, 3), "simt"),
        ((32, 16, 56, 56, 256, 3, 3), "simt"),
    ],
    ids=str,
)
def test_weight_gradients_of_many_channels_are_winograds(shape, family):
    """With few channels the transforms take longer than the products that they save."""
    chosen = select(Conv(*shape, padding=1, direction="weight_grad"), H200, use_model=True)[0]
    assert chosen.config.family == family


@pytest.mark.parametrize("direction", ["forward", "input_grad", "weight_grad"])
def test_adjacent_images_are_winograds(direction):
    p = Conv(32, 128, 28, 28, 128, 3, 3, padding=1, layout="CHWN", direction=direction)
    assert select(p, H200, use_model=True)[0].config.family in TILES


def test_slices_cost_the_products_that_their_sum_reads():
    """More slices take longer to add; one takes nothing."""
    f = registry.FAMILIES["winograd"]
    p = winograd_of(Conv(32, 128, 28, 28, 128, 3, 3, padding=1, direction="weight_grad"), 2)
    c = f.candidates.cells(p, H200, f.candidates.tiles(f.candidates.neutral(p)))[0]
    extra = cell(p, c, f.geometry(p, c), H200).extra
    few, many = c.kg == 1, c.kg > 8
    assert (extra[few] == 0).all()
    assert extra[many].min() > extra[(c.kg > 1) & (c.kg <= 4)].max() > 0
