"""Peak rates of devices, against the TFLOPS of the vendor's data sheets, and the rooflines that they give."""

from __future__ import annotations

import pytest

from ptxgen.cli.page import Contents, _roofline
from ptxgen.codegen.config.config import parse_config
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.problem.base import COMPUTE_MODES
from ptxgen.problem.device import DEVICES, device
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.peak_rates import peak_flops, peak_rate
from ptxgen.tuning import explanation
from ptxgen.tuning.roofline import roofline_us
from ptxgen.tuning.store.measurement import Environment, Measurement

#: dense TFLOPS of the data sheets by (dtype, compute)
DATA_SHEETS = {
    "t4": {("f16", "f32"): 65, ("s8", "s32"): 130, ("f32", "f32"): 8.1, ("f32", "tf32"): 8.1},
    "a100": {
        ("f16", "f32"): 312,
        ("bf16", "f32"): 312,
        ("f32", "tf32"): 156,
        ("f64", "f64"): 19.5,
        ("s8", "s32"): 624,
        ("f32", "f32"): 19.5,
    },
    "rtx3090": {
        ("f16", "f32"): 71,
        ("f16", "f16"): 142,
        ("bf16", "f32"): 71,
        ("f32", "tf32"): 35.6,
        ("s8", "s32"): 284,
    },
    "rtx4090": {
        ("f16", "f32"): 165.2,
        ("f16", "f16"): 330.3,
        ("e4m3", "f32"): 330.3,
        ("f32", "tf32"): 82.6,
        ("s8", "s32"): 660.6,
        ("f64", "f64"): 1.3,
    },
    "h100": {
        ("f16", "f32"): 989,
        ("bf16", "f32"): 989,
        ("f32", "tf32"): 495,
        ("f64", "f64"): 67,
        ("e4m3", "f32"): 1979,
        ("s8", "s32"): 1979,
        ("f32", "f32"): 67,
    },
    "b200": {
        ("f16", "f32"): 2250,
        ("bf16", "f32"): 2250,
        ("f32", "tf32"): 1125,
        ("f64", "f64"): 37,
        ("e5m2", "f32"): 4500,
        ("s8", "s32"): 4500,
        ("f32", "f32"): 75,
    },
    "rtx5090": {
        ("f16", "f32"): 209.5,
        ("f16", "f16"): 419,
        ("f32", "tf32"): 104.8,
        ("e4m3", "f32"): 419,
        ("s8", "s32"): 838,
    },
}
CLOCKS = 0.09  #: data sheets quote tensor cores at clocks that are up to 8 % below the highest one


@pytest.mark.parametrize("name", DATA_SHEETS)
def test_peaks_are_those_of_the_data_sheets(name: str) -> None:
    for (element, compute), tera in DATA_SHEETS[name].items():
        assert peak_flops(dtype(element), compute, device(name)) / 1e12 == pytest.approx(tera, rel=CLOCKS), element


def test_every_device_has_a_peak_for_every_arithmetic() -> None:
    for d in DEVICES.values():
        for name, modes in COMPUTE_MODES.items():
            for compute in modes:
                assert peak_rate(dtype(name), compute, d) >= d.fma64, (d.name, name, compute)
    h200 = device("h200")
    assert peak_rate(dtype("f32"), "f32_bf16x6", h200) == pytest.approx(2048 / 6)
    assert peak_rate(dtype("f32"), "f32_bf16x6", device("t4")) == device("t4").fma


@pytest.mark.parametrize(("name", "tera"), [("b200", 2383), ("t4", 65)])
def test_the_floor_is_that_of_the_device_though_no_family_uses_its_fastest_instructions(name: str, tera: float) -> None:
    p = Gemm(4096, 4096, 4096, "NN", "f16")
    floor = explanation.explain(p, device(name), count=1).floor
    assert floor.bound == "arithmetic"
    assert p.flops / floor.us / 1e6 == pytest.approx(tera, rel=0.01)
    assert roofline_us(lower(p), device(name)) == floor.us


def test_the_chart_of_groups_draws_equal_peaks_at_one_height() -> None:
    """f16 lists have no wgmma kernels, jagged bf16 groups have; the device has one peak."""
    pytest.importorskip("matplotlib")
    of, config = Environment("h200"), parse_config("family=mma ms=16 ns=16 ml=32 nl=32 u=16")
    items = ((512, 512, 512),) * 4
    problems = GroupedGemm(items, dtype="f16"), GroupedGemm(items, dtype="bf16", jagged="m")
    winners = [Measurement(p, config, "ok", of, (50.0,)) for p in problems]
    text = str(_roofline(Contents(device("h200"), "hardware", winners=winners)))
    assert "f16, bf16" in text
