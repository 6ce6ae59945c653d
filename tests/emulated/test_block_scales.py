"""fp8 products with scales of blocks of K: each recipe and orientation of wgmma, scales that are not ordinary numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from gemm_runs import right

from ptxgen import gemm, gemm_jagged
from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import InputError, ShapeError
from ptxgen.families.registry import FAMILIES
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.problem.block_scales import SCALINGS
from ptxgen.problem.device import device
from ptxgen.problem.reference import compare, epilogue_arrays, operands, reference
from ptxgen.problem.registry import parse
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases import SOURCES

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
}


@pytest.mark.parametrize("name", EXPERTS)
def test_rows_of_experts_have_scales(name: str) -> None:
    first, second, text = EXPERTS[name]
    items = (33, 136, 144), (0, 136, 144), (70, 136, 144), (1, 136, 144)
    p = GroupedGemm(items, "NT", "e4m3", jagged="m", block_a=first, block_b=second)
    assert parse(p.key()) == p
    right(p, f"family=wgmma {text}")


def test_calls_on_experts_take_scales() -> None:
    rng, dtype = np.random.default_rng(1), ml_dtypes.float8_e4m3fn
    x, w = rng.standard_normal((30, 144)).astype(dtype), rng.standard_normal((2, 24, 144)).astype(dtype)
    scale_a, scale_b = (rng.uniform(0.5, 2, shape).astype(np.float32) for shape in ((30, 2), (2, 2, 1)))
    result = gemm_jagged(x, w.swapaxes(1, 2), np.array([12, 30], np.int32), scale_a=scale_a, scale_b=scale_b)
    left = x.astype(np.float64) * np.repeat(scale_a, 128, 1)[:, :144]
    right_ = w.swapaxes(1, 2).astype(np.float64) * np.repeat(scale_b, 128, 1)[:, :144]
    wide = np.concatenate([left[:12] @ right_[0], left[12:] @ right_[1]])
    assert np.abs(result.astype(np.float64) - wide).max() < 0.01 * np.abs(wide).max()
    with pytest.raises(ShapeError, match="scale_a is 1x2; it must have 30 rows"):
        gemm_jagged(x, w.swapaxes(1, 2), np.array([12, 30], np.int32), scale_a=scale_a[:1], scale_b=scale_b)
    for axis in ("", "k"):
        with pytest.raises(InputError, match=f"jagged={axis or 'none'}"):
            GroupedGemm(((8, 8, 8),), "NT", "e4m3", jagged=axis, block_a="1x128", block_b="1x128")


def test_the_weight_gradient_of_an_expert_is_a_dense_product_with_scales() -> None:
    """Tokens are along K: the columns of an expert, with blocks from its first token on."""
    rng, dtype = np.random.default_rng(2), ml_dtypes.float8_e4m3fn
    x, dy = (rng.standard_normal((n, 170)).astype(dtype) for n in (20, 24))  # stored with tokens contiguous
    tokens = slice(30, 163)
    scale_x, scale_dy = (rng.uniform(0.5, 2, (n, 2)).astype(np.float32) for n in (20, 24))
    result = gemm(x[:, tokens], dy[:, tokens].T, scale_a=scale_x, scale_b=scale_dy.T)
    left, right_ = (
        y[:, tokens].astype(np.float64) * np.repeat(s, 128, 1)[:, :133] for y, s in ((x, scale_x), (dy, scale_dy))
    )
    wide = left @ right_.T
    assert np.abs(result.astype(np.float64) - wide).max() < 0.01 * np.abs(wide).max()


@pytest.mark.parametrize("out", ["f32", "bf16"])
def test_scales_that_are_not_ordinary_numbers(out: str) -> None:
    """Zeros, infinities, denormal numbers, products of scales that overflow or underflow, scales of one sign."""
    p = Gemm(65, 72, 300, "NT", "e4m3", out=out, block_a="1x128", block_b="1x128", lda=304, ldb=304)
    arrays = operands(p, 3, "positive") | epilogue_arrays(p, 3)
    for name, values in (
        ("scale_a", [0.0, np.inf, 1e-44, 1e30, 1e-30, -1.0, np.nan, 2.0**-126]),
        ("scale_b", [1.0, 0.0, 1e-40, 1e30, -1e-20, 1e38, 2.0**-149]),
    ):
        x = arrays[name].reshape(-1)
        x[: 4 * len(values) : 4] = values
    stored = {n: np.pad(x, ((0, 0), (0, 4))) if n in "AB" else x for n, x in arrays.items()}
    driver = EmulatedDriver(device("h200"))
    runner = Runner.of(driver, p, parse_config("family=wgmma ml=64 nl=24 u=128 stages=2"))
    with np.errstate(all="ignore"):
        deviation = compare(runner.compute(stored)["C"], reference(p, arrays))
        assert deviation.ok, deviation
        changed = stored | {"scale_a": stored["scale_a"] * np.float32(1.5)}
        assert not compare(runner.compute(changed)["C"], reference(p, arrays)).ok


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


def test_no_family_computes_scales_of_blocks_by_accident() -> None:
    p = Gemm(20, 136, 200, "NT", "e4m3", block_a="1x128", block_b="128x128")
    assert [f.name for f in FAMILIES.values() if f.computes(lower(p))] == ["wgmma"]


def test_every_word_names_other_blocks() -> None:
    assert len(set(SCALINGS.values())) == len(SCALINGS)
