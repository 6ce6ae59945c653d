"""Products with quantized weights on the emulated device, with checks for races, bounds and uninitialised reads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.operations.gemm.strided_arrays import C, elements
from ptxgen.operations.quantized.problem import QuantizedGemm
from ptxgen.operations.quantized.reference import packed, quantized_arrays, unpacked
from ptxgen.problem.device import device
from ptxgen.problem.reference import compare, operands, reference
from ptxgen.problem.weight_formats import WEIGHT_FORMATS
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases.quantized import SOURCE, WGMMA
from tests.gpu.test_families import wrong

ON = ("emulated", "a100", "rtx4090", "b200")
INPUTS = ("integers", "normal", "scaled", "extreme")
SCALES = ((1.0, 0.0), (2.0, 1.0), (1.0, -1.0))


@pytest.mark.first(2)
@pytest.mark.parametrize("n", range(8))
def test_random_problems_and_configurations(n: int) -> None:
    """Formats, groups, zero points, extents, longer rows, alignment, epilogues, every axis; warp order differs."""
    on = device(ON[n % len(ON)])
    [(p, c)] = SOURCE.cases(900 + n, 1, on, 90, 128)
    runner = Runner.of(EmulatedDriver(on, seed=n), p, c)
    assert wrong(runner, p, INPUTS[n % 4], n, *SCALES[n % 3 if n % 2 else 0]) == ""


@pytest.mark.first(2)
@pytest.mark.parametrize("n", range(6))
def test_random_problems_by_wgmma(n: int) -> None:
    """Likewise, of weights that threads dequantize to fragments of wgmma."""
    [(p, c)] = WGMMA.cases(300 + n, 1, device("emulated"), 90)
    runner = Runner.of(EmulatedDriver(seed=n), p, c)
    assert wrong(runner, p, INPUTS[n % 4], n, *SCALES[n % 3 if n % 2 else 0]) == ""


def computed(p: QuantizedGemm, config: str, arrays: dict[str, np.ndarray]) -> np.ndarray:
    c = np.full(p.stored[2], np.nan, p.output.numpy)
    text = config if config.startswith("family=") else f"family=quantized_mma {config}"
    runner = Runner.of(EmulatedDriver(), p, parse_config(text))
    return elements(p, C, runner.compute({**arrays, "C": c})["C"])


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("weights", "zeros"),
    [(name, zeros) for name, f in WEIGHT_FORMATS.items() for zeros in (False, True) if not (zeros and f.signed)],
)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_every_byte_at_every_place_is_dequantized(dtype: str, weights: str, zeros: bool) -> None:
    """Row n of the weights has the byte n everywhere; row k of A selects column k. Zero points are any bytes, of which
    the low 6 bits count beside 4-bit weights."""
    k = 64
    p = QuantizedGemm(k, 256, k, dtype=dtype, out="f32", weights=weights, group=32, zeros=zeros)
    stored = np.repeat(np.arange(256, dtype=np.uint8)[:, None], p.columns_b, axis=1).view(p.types[1].numpy)
    arrays = {"A": np.eye(k, dtype=p.element.numpy), "B": stored, "scales": np.ones((256, 2), p.scale_type.numpy)}
    expected = unpacked(p, stored).T.astype(np.float64)
    if zeros:
        arrays["zeros"] = (np.arange(512) * 37 % 256).reshape(256, 2).astype(np.uint8)
        points = arrays["zeros"] & (63 if p.format.bits == 4 else 255)
        expected = expected - np.repeat(points.T.astype(np.float64), 32, axis=0)
    for rows in ("ms=8 ns=4 ml=32", "ms=4 ns=4 ml=16"):  # pairs of 4 bits are adjacent, and four apart
        config = f"{rows} nl=64 u=32 kl=1 vec_a=8 vec_b={p.format.bits} vec_c=4"
        assert (computed(p, config, arrays) == expected).all()
    assert (computed(p, "family=wgmma ml=64 nl=64 u=64 stages=2 transposed_mma=1", arrays) == expected).all()


@pytest.mark.parametrize("group", [0, 32])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_adversarial_scales(dtype: str, group: int) -> None:
    """Scales that are 0, infinite, NaN, denormal, negative, and the largest number: those of other rows are right."""
    p = QuantizedGemm(5, 33, 96, dtype=dtype, out="f32", weights="u4", group=group, zeros=True)
    arrays = operands(p, 1) | quantized_arrays(p, 1)
    scales = arrays["scales"]
    least, largest = p.scale_type.smallest, p.scale_type.largest
    special = [0.0, np.inf, -np.inf, np.nan, least, -least, 3 * least, largest, -1.0]
    for i, value in enumerate(special):
        scales[3 * i, i % p.groups] = value
    config = "ms=2 ns=2 ml=8 nl=32 u=32 kl=1 vec_a=8 vec_b=4 vec_c=1"
    for text in (config, "family=wgmma ml=8 nl=64 u=64 stages=2 transposed_mma=1"):
        got = computed(p, text, arrays)
        deviation = compare(got, reference(p, arrays))
        assert deviation.ok, deviation
        assert np.isfinite(got[:, 1]).all()
        assert not np.isfinite(got[:, 3]).any()


def test_fast_kernels_round_weights_times_scales() -> None:
    """Results are those of weights rounded to f16. A scale that is infinite, and one of the last group, where K ends
    within a stage, make no other row wrong."""
    p = QuantizedGemm(5, 70, 160, out="f32", weights="u4", group=32, zeros=True, precision="fast")
    arrays = operands(p, 1) | quantized_arrays(p, 1)
    arrays["scales"][3, 0] = arrays["scales"][64, 4] = np.inf
    got = computed(p, "family=wgmma ml=8 nl=64 u=64 stages=2 transposed_mma=1", arrays)
    integers = unpacked(p, arrays["B"]) - np.repeat(arrays["zeros"].reshape(70, 5), 32, axis=1).astype(np.int64)
    with np.errstate(invalid="ignore"):
        weights = (integers * np.repeat(arrays["scales"].reshape(70, 5), 32, axis=1)).astype(np.float16)
        expected = arrays["A"].astype(np.float64) @ weights.astype(np.float64).T
    finite = np.isfinite(expected)
    assert np.array_equal(np.isfinite(got), finite)
    assert finite.all(axis=0).sum() == 68
    assert (
        np.abs(got - expected)[finite].max() < 2e-5 < 1e-4 < np.abs(reference(p, arrays).exact - expected)[finite].max()
    )


@pytest.mark.parametrize("stages", [0, 3])
def test_groups_of_several_steps_have_their_scales_in_every_iteration(stages: int) -> None:
    p = QuantizedGemm(5, 16, 256, dtype="f16", out="f32", weights="u4", group=64, zeros=True)
    arrays = operands(p, 1, "integers") | quantized_arrays(p, 1, "integers")
    config = f"ms=2 ns=2 ml=8 nl=16 u=128 kl=1 vec_a=8 vec_b=4 vec_c=1 stages={stages}"
    assert (computed(p, config, arrays) == reference(p, arrays).exact).all()


@pytest.mark.each_value
@pytest.mark.parametrize("m", [0, 1, 9])
@pytest.mark.parametrize("k", [0, 2, 46])
def test_edges_of_extents(m: int, k: int) -> None:
    """No rows, no terms, and a K below that of a step."""
    p = QuantizedGemm(m, 7, k, weights="s4")
    arrays = operands(p, 3) | quantized_arrays(p, 3)
    got = computed(p, "ms=4 ns=2 ml=16 nl=16 u=32 kl=1 vec_b=1 stages=0", arrays)
    assert compare(got, reference(p, arrays)).ok


@pytest.mark.parametrize("m", [0, 9])
@pytest.mark.parametrize("group", [0, 32])
def test_edges_of_extents_by_wgmma(m: int, group: int) -> None:
    """No rows of activations, one row of weights, and a K that ends within a stage."""
    p = QuantizedGemm(m, 1, 96, weights="s4", group=group)
    arrays = operands(p, 3) | quantized_arrays(p, 3)
    got = computed(p, "family=wgmma ml=16 nl=64 u=64 stages=2 transposed_mma=1 epilogue_smem=1", arrays)
    assert compare(got, reference(p, arrays)).ok


@pytest.mark.parametrize("weights", WEIGHT_FORMATS)
def test_packing_is_the_inverse_of_unpacking(weights: str) -> None:
    p = QuantizedGemm(1, 3, 8, weights=weights)
    values = np.random.default_rng(0).integers(p.format.least, p.format.largest + 1, (3, 8))
    assert (unpacked(p, packed(p, values)) == values).all()
    if p.format.bits == 4:
        assert packed(replace(p, n=1, ldb=0), np.array([[1, 2, 3, 4, 5, 6, 7, 0]])).tolist() == [
            [0x21, 0x43, 0x65, 0x07]
        ]
