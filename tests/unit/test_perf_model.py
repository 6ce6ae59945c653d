"""The performance model: equal results for integers and columns, and the effects that hardware shows."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest

from ptxgen.codegen.config.config import AXIS, PACK, Columns, Config, parse_config
from ptxgen.codegen.source import Step
from ptxgen.families import registry
from ptxgen.families.common.features import default_names
from ptxgen.families.common.perf_model import Counts, blocks_of_rows, from_stats
from ptxgen.families.wgmma import cost
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.problem.registry import parse
from ptxgen.tuning.model.model import Model
from tests.lowered import features, geometry, least_us, microseconds, perf_costs, predict, rules, space, work

H200, EMULATED = device("h200"), device("emulated")


def plain(c: Columns) -> Columns:
    return Columns({name: c.column(name) for name in ("family", *AXIS)}, len(c))


#: measured on an H200 (microseconds, medians): problem, configuration
MEASURED = [
    (8.75, Gemm(512, 512, 512, "TN"), Config(ml=64, nl=32, u=32, stages=5, kl=4, lanes_m=8, lane_interleave=1)),
    (44.7, Gemm(1024, 1024, 1024, "TN"), Config(ml=32, nl=64, u=32, stages=4, kl=2)),
    (315.4, Gemm(2048, 2048, 2048, "TN"), Config(ml=128, nl=128, ns=16, raster_group=8)),
    (2493.0, Gemm(4096, 4096, 4096, "TN"), Config(ml=128, nl=128, ns=16, raster_group=8)),
    (324.8, Gemm(2048, 2048, 2048, "NN"), Config(ml=128, nl=256, ms=16, u=16, stages=2, cp_async_a=0)),
    (337.8, Gemm(2048, 2048, 2048, "NT"), Config(ml=128, nl=128, ms=16, stages=2, cp_async_a=0, cp_async_b=0)),
    (
        10.75,
        Gemm(16, 2560, 2560, "NN"),
        Config(ml=16, nl=128, ms=4, ns=4, stages=4, lanes_m=2, kg=26, splitk=1, kmajor_smem_a=1, fragment_prefetch=0),
    ),
    (14.0, Gemm(32, 2560, 2560, "NN"), Config(ml=32, nl=128, ns=4, stages=4, kg=19, vec_a=1)),
    (38.4, Gemm(128, 2560, 2560, "NN"), Config(ml=32, nl=256, lanes_m=1, kg=13, vec_a=1)),
    (
        42.3,
        Gemm(128, 2560, 2560, "NT"),
        Config(ml=64, nl=128, stages=2, kg=13, vec_a=1, cp_async_b=0, fragment_prefetch=0),
    ),
    (15.8, Gemm(64, 64, 60000, "TN"), Config(ml=32, nl=64, u=32, stages=4, kl=4, kg=132, splitk=1)),
    (147.1, Gemm(256, 256, 60000, "TN"), Config(ml=64, nl=128, ns=16, u=16, stages=2, kl=2, kg=33, splitk=1)),
    (29.0, Gemm(4096, 4096, 32, "TN"), Config(ml=64, nl=128, raster_group=8, store_policy=1)),
    (
        56.1,
        Gemm(777, 1000, 1333, "NT"),
        Config(ml=64, nl=128, stages=4, kg=5, vec_a=1, vec_b=1, fragment_prefetch=0),
    ),
]


def wide(p: Gemm, c: Config) -> Config:
    """Four elements per access wherever the table above has one and 16 bytes are possible."""
    a = 1 if p.layout[0] == "N" and c.cp_async_a and not c.kmajor_smem_a else 4
    b = 1 if p.layout[1] == "T" and c.cp_async_b and not c.kmajor_smem_b else 4
    return replace(c, vec_a=a if c.vec_a == 1 else c.vec_a, vec_b=b if c.vec_b == 1 else c.vec_b, vec_c=4)


@pytest.mark.parametrize(("us", "p", "c"), MEASURED, ids=lambda v: v.key() if isinstance(v, Gemm) else "")
def test_simt_model_is_near_measured_times(us, p, c):
    assert predict(p, wide(p, c), H200) == pytest.approx(us, rel=0.2)


def change(p: Gemm, c: Config, **changes: int) -> float:
    return predict(p, replace(c, **changes), H200) / predict(p, c, H200)


def test_model_reflects_known_effects():
    p, c = Gemm(16, 2560, 2560, "NN"), wide(*MEASURED[6][1:])
    assert change(p, c, kg=4) > 1.8  # measured 2.4
    assert 1.02 < change(p, c, kg=66) < 1.5  # measured 1.3
    assert change(p, c, vec_c=1) > 1.3  # measured 1.54: scalar reductions
    p, c = Gemm(4096, 4096, 32, "TN"), wide(*MEASURED[12][1:])
    assert change(p, c, vec_c=1) > 1.2  # measured 1.64: scalar stores
    p, c = Gemm(2048, 2048, 2048, "TN"), wide(*MEASURED[2][1:])
    assert change(p, c, vec_c=1) < 1.05  # measured 1.02
    p, c = (
        Gemm(2048, 2048, 2048, "NN"),
        Config(ml=128, nl=128, ms=16, cp_async_a=0, vec_a=4, vec_b=4, vec_c=4, u=16),
    )
    assert change(p, c, u=32) > 1.05  # measured 1.11: the loop outgrows the instruction cache


@pytest.mark.parametrize(
    "p",
    [
        Gemm(64, 48, 1000, "NT"),
        Gemm(2048, 2048, 2048, "TN"),
        Gemm(130, 66, 514, "TT", "f64"),
        Gemm(256, 256, 512, "NN", "f16"),
        Gemm(256, 250, 512, "NT", "f16", "f16"),
        Gemm(96, 96, 4096, deterministic=True),
        Gemm(64, 48, 64, "NT"),
        Gemm(16, 2560, 2560, "NT", "bf16"),
        Gemm(777, 1001, 1331, "TN", "f16"),
        Gemm(256, 256, 4096, "NT", "f32", "tf32"),
        Gemm(96, 96, 20000, "NT", "s8"),
        Gemm(512, 512, 48, "NT", "e4m3"),
        Gemm(512, 512, 512, "NT", "f16", epilogue="relu"),
        Gemm(3, 512, 4096, "NN", "f16"),
        Gemm(4096, 1, 900, "TN", "s8"),
    ],
    ids=lambda p: p.key(),
)
def test_integers_and_columns_agree(p):
    c = space.candidates(p, H200)
    rows = np.random.default_rng(0).integers(0, len(c), 300)
    lazy = c.take(rows)
    us = predict(p, lazy, H200)
    assert us.dtype == np.float32
    assert (us == predict(p, c, H200)[rows]).all()
    assert us == pytest.approx(predict(p, plain(lazy), H200), rel=1e-6)
    assert [predict(p, lazy.row(i), H200) for i in range(5)] == pytest.approx(us[:5].tolist())
    x = features(p, lazy, H200)
    assert x.shape == (300, len(default_names()))
    assert x.dtype == np.float32
    assert x.flags.c_contiguous
    assert np.isfinite(x).all()
    assert x == pytest.approx(features(p, plain(lazy), H200), rel=1e-5, abs=1e-5)
    assert (x == features(p, lazy, H200, us)).all()


def test_columns_may_mix_families():
    p = Gemm(256, 256, 4096, "NT", "f16")
    c = space.candidates(p, H200)
    rows = np.concatenate([np.flatnonzero(c.family == code)[:40:4] for code in (2, 0, 1)])
    np.random.default_rng(0).shuffle(rows)
    mixed = plain(c.take(rows))
    assert len(set(mixed.family.tolist())) == 3
    us = predict(p, mixed, H200)
    assert us == pytest.approx(predict(p, c, H200)[rows], rel=1e-6)
    assert features(p, mixed, H200) == pytest.approx(features(p, c.take(rows), H200), rel=1e-5, abs=1e-5)


def test_no_rows_give_no_times():
    p = Gemm(64, 64, 64)
    none = space.candidates(p, H200).take(np.zeros(0, np.int64))
    assert len(predict(p, none, H200)) == len(predict(p, plain(none), H200)) == 0
    assert features(p, none, H200).shape == features(p, plain(none), H200).shape == (0, len(default_names()))


#: measured on an H200 (microseconds, medians) by kernels of the same making: M, N, K, layout, f16, configuration
TENSOR = [
    (3.31, (512, 512, 512, "TN"), {"ml": 64, "nl": 64, "u": 128}),
    (
        5.65,
        (1024, 1024, 1024, "TN"),
        {"ml": 128, "nl": 64, "math_warpgroups": 2, "stages": 8, "epilogue_subtiles": 2, "epilogue_buffers": 2},
    ),
    (
        24.9,
        (2048, 2048, 2048, "TN"),
        {
            "ml": 256,
            "nl": 128,
            "math_warpgroups": 2,
            "epilogue_subtiles": 4,
            "epilogue_buffers": 4,
            "epilogue_aliases_ab": 1,
            "transposed_mma": 1,
            "l2_evict_first": 0,
        },
    ),
    (5.59, (16, 2560, 2560, "NN"), {"ml": 64, "nl": 32, "u": 128, "stages": 9, "tma_rows": 16, "l2_evict_first": 2}),
    (
        5.66,
        (16, 2560, 2560, "NT"),
        {"ml": 16, "nl": 64, "stages": 12, "cluster_k": 2, "transposed_mma": 1, "l2_evict_first": 2},
    ),
    (6.13, (64, 2560, 2560, "NT"), {"ml": 64, "nl": 32, "u": 128, "stages": 9, "l2_evict_first": 2}),
    (6.94, (128, 2560, 2560, "NT"), {"ml": 64, "nl": 40, "u": 128, "stages": 8}),
    (
        7.76,
        (64, 64, 60000, "TN"),
        {"ml": 64, "nl": 64, "u": 128, "stages": 6, "cluster_k": 8, "kg": 15, "splitk": 3, "transposed_mma": 1},
    ),
    (
        5.80,
        (32, 32, 60000, "TN"),
        {
            "ml": 32,
            "nl": 64,
            "u": 128,
            "stages": 12,
            "cluster_k": 8,
            "kg": 15,
            "splitk": 3,
            "transposed_mma": 1,
            "tma_rows": 32,
        },
    ),
    (
        19.6,
        (256, 256, 60000, "TN"),
        {"ml": 64, "nl": 64, "u": 128, "stages": 6, "kg": 8, "splitk": 4, "l2_evict_first": 3},
    ),
    (
        10.9,
        (4096, 4096, 32, "TN"),
        {
            "ml": 128,
            "nl": 128,
            "math_warpgroups": 2,
            "u": 32,
            "stages": 2,
            "persistent": 1,
            "epilogue_subtiles": 2,
            "epilogue_buffers": 2,
        },
    ),
    (
        10.0,
        (1, 4096, 4096, "NT"),
        {"ml": 8, "nl": 64, "u": 256, "stages": 5, "cluster_k": 2, "transposed_mma": 1, "l2_evict_first": 2},
    ),
    (
        23.2,
        (8, 11008, 4096, "NT"),
        {"ml": 8, "nl": 64, "u": 128, "stages": 3, "cluster_k": 2, "transposed_mma": 1, "l2_evict_first": 2},
    ),
    (
        30.4,
        (64, 4096, 14336, "NT"),
        {"ml": 64, "nl": 64, "u": 128, "stages": 6, "cluster_k": 2, "transposed_mma": 1, "l2_evict_first": 2},
    ),
    (8.40, (776, 1000, 1336, "NT"), {"ml": 128, "nl": 64, "stages": 7, "cluster_x": 4, "transposed_mma": 1}),
    (10.8, (776, 1000, 1336, "NT"), {"ml": 112, "nl": 64, "stages": 8, "transposed_mma": 1}),
    (4.22, (256, 256, 2048, "NT"), {"ml": 64, "nl": 16, "u": 128, "stages": 8, "cluster_k": 2}),
    (8.16, (512, 512, 4096, "NT"), {"ml": 64, "nl": 64, "u": 128, "stages": 6, "kg": 2, "splitk": 4}),
    (
        180.3,
        (4096, 4096, 4096, "NT"),
        {"ml": 128, "nl": 256, "math_warpgroups": 2, "stages": 3, "cluster_x": 2, "persistent": 1, "raster_group": 8},
    ),
    (
        1416,
        (8192, 8192, 8192, "NT"),
        {"ml": 128, "nl": 256, "math_warpgroups": 2, "stages": 3, "cluster_x": 2, "persistent": 1, "raster_group": 8},
    ),
]


#: the same by mma.sync: problem, configuration, good ones and bad
SYNC = [
    (
        2408.5,
        "gemm 4096,4096,4096 NT f64",
        "ms=32 ns=64 ml=128 nl=128 u=32 vec_a=2 vec_b=2 vec_c=2 mma_order=column_serpentine fragment_prefetch=0 raster_group=8",
    ),
    (
        16.1,
        "gemm 16,2560,2560 NN f64",
        "ms=16 ns=16 ml=16 nl=64 u=16 kg=4 stages=5 vec_a=2 vec_b=2 vec_c=2 fragment_prefetch=0",
    ),
    (12.5, "gemm 32,32,60000 TN f64", "ms=16 ns=16 ml=32 nl=32 u=64 kg=99 stages=5 vec_a=2 vec_b=2 vec_c=2"),
    (8.7, "gemm 512,512,512 TN f64", "ms=16 ns=32 ml=64 nl=32 u=64 kl=2 vec_a=2 vec_b=2 vec_c=2"),
    (14.0, "gemm 776,1000,1336 NT f16", "ms=32 ns=64 ml=64 nl=128 u=64 stages=5 vec_a=8 vec_b=8 vec_c=4"),
    (
        296.0,
        "gemm 4096,4096,4096 NT f16",
        "ms=64 ns=64 ml=128 nl=256 u=32 stages=4 vec_a=8 vec_b=8 vec_c=4 raster_group=8",
    ),
    (5.4, "gemm 512,512,512 TN f32 compute=tf32", "ms=32 ns=32 ml=32 nl=64 u=64 kl=4 stages=5 vec_a=4 vec_b=4 vec_c=4"),
    (
        100.5,
        "gemm 2048,2048,2048 TN f32 compute=tf32",
        "ms=32 ns=64 ml=64 nl=128 u=16 stages=5 vec_a=4 vec_b=4 vec_c=4 epilogue_smem=1",
    ),
    (
        34.0,
        "gemm 777,1000,1333 NT f16",
        "ms=32 ns=32 ml=64 nl=64 u=32 stages=5 cp_async_a=0 cp_async_b=0 vec_c=4 epilogue_smem=1 fragment_prefetch=0 deferred_sts=1",
    ),
]


@pytest.mark.parametrize(("us", "key", "text"), SYNC, ids=lambda v: v if "gemm" in str(v) else "")
def test_mma_model_is_near_measured_times(us, key, text):
    p, config = lower(parse(key)), parse_config(f"family=mma {text}")
    assert rules.first_violation(p, config, H200) is None
    assert predict(p, config, H200) == pytest.approx(us, rel=0.3)


@pytest.mark.parametrize(("us", "shape", "axes"), TENSOR, ids=lambda v: str(v) if isinstance(v, tuple) else "")
def test_wgmma_model_is_near_measured_times(us, shape, axes):
    p = Gemm(*shape, "f16")
    config = Config(**{"family": "wgmma", "u": 64, "stages": 4, "epilogue_smem": 1, **axes})
    assert rules.first_violation(p, config, H200) is None
    assert predict(p, config, H200) == pytest.approx(us, rel=0.15)


def best(p: Gemm, d=H200) -> dict[int, float]:
    """The least time of each family."""
    c = space.candidates(p, d)
    us = predict(p, c, d)
    return {int(code): float(us[c.family == code].min()) for code in np.unique(c.family)}


def test_model_ranks_families_by_problem():
    big = best(Gemm(4096, 4096, 4096, "NT", "f16"))
    assert 1.3 < big[1] / big[2] < 2.0  # mma.sync reaches little more than half of wgmma's rate
    assert big[0] > 10 * big[2]
    double = best(Gemm(2048, 2048, 2048, "TN", "f64"))
    assert 1.5 < double[0] / double[1] < 2.5
    halves, tf32 = (
        best(Gemm(4096, 4096, 4096, "NT", "f16")),
        best(Gemm(4096, 4096, 4096, "NT", "f32", "tf32")),
    )
    assert 1.7 < tf32[2] / halves[2] < 2.3
    assert best(Gemm(4096, 4096, 4096, "NT", "e4m3"))[2] < 0.7 * halves[2]
    # a product with few rows is limited by memory bandwidth in every family
    thin = best(Gemm(8, 11008, 4096, "NT", "f16"))
    assert thin[1] == pytest.approx(thin[2], rel=0.15)


def test_packing_unaligned_operands_pays_for_large_problems():
    def copies(p: Gemm) -> float:
        c = space.candidates(p, H200)
        us = predict(p, c, H200)
        copied = (np.asarray(c.operand_path_a) == PACK) | (np.asarray(c.operand_path_b) == PACK)
        return float(us[copied].min() / us[(c.family == 1) & ~copied].min())

    assert copies(Gemm(1001, 777, 1333, "NT", "f16")) < 0.9
    assert copies(Gemm(33, 31, 33, "NT", "f16")) > 1.1


def test_every_target_and_type_has_a_rate():
    for name, d in {n: device(n) for n in ("a100", "rtx3090", "rtx4090", "h100", "h200", "b200", "rtx5090")}.items():
        for p in (
            Gemm(8, 8, 8, "NN", "f16"),
            Gemm(8, 8, 8, "NN", "f64"),
            Gemm(8, 8, 8, "NN", "f32", "tf32"),
        ):
            assert perf_costs.mma_rate(p, d) >= 2, name
            if p.dtype == "f16":
                assert perf_costs.mma_rate(p, d) >= perf_costs.fma_rate(p, d)
    assert cost.rate(Gemm(8, 8, 8, "NN", "f16")) == 2048


def test_values_of_features():
    p = Gemm(640, 256, 4096, "NT")
    c = Config(ml=64, nl=128, u=16, kg=4, splitk=1, cp_async_a=0, cp_async_b=0, vec_a=4, vec_b=4, vec_c=4)
    assert rules.first_violation(p, c, H200) is None
    g = geometry(p, c)
    x = dict(zip(default_names(), features(p, Columns.of([c]), H200)[0].tolist(), strict=True))
    assert len(set(default_names())) == len(default_names())
    assert x["m"] == pytest.approx(np.log2(640))
    assert (x["ml"], x["nl"], x["u"], x["kg"]) == (6, 7, 4, 2)
    assert (x["tiles"], x["blocks"]) == pytest.approx((np.log2(20), np.log2(80)))
    assert x["threads"] == np.log2(g.threads)
    assert x["padding"] == 1
    assert x["iterations"] == 6
    assert x["tile_intensity"] == pytest.approx(np.log2(64 * 128 / 192))
    assert x["thread_work"] == pytest.approx(np.log2(8 * 8 * 1024))
    assert (x["kmajor_a"], x["kmajor_b"], x["element"]) == (1, 1, 4)
    assert x["blocks_sm"] == 1
    assert x["waves"] == pytest.approx(np.log2(80 / (2 ** x["resident_blocks"] * 132)), abs=1e-5)
    assert x["reduction_bytes"] == pytest.approx(np.log2(3 * 640 * 256 * 4), abs=1e-3)
    assert x["predicted_us"] == pytest.approx(np.log2(predict(p, c, H200)), abs=1e-5)
    assert x["over_roofline"] == pytest.approx(x["predicted_us"] - x["roofline"], abs=1e-5)


def test_values_of_tensor_core_features():
    p = Gemm(640, 256, 4096, "NT", "bf16", lda=4160)
    c = Config(
        family="wgmma", ml=128, nl=64, u=64, math_warpgroups=2, stages=4, cluster_x=2, kg=3, splitk=3, epilogue_smem=1
    )
    assert rules.first_violation(p, c, H200) is None
    x = dict(zip(default_names(), features(p, Columns.of([c]), H200)[0].tolist(), strict=True))
    assert (x["family"], x["transposed_mma"], x["math_warpgroups"], x["cluster_x"], x["persistent"]) == (2, 0, 1, 1, 0)
    assert (x["kg"], x["tiles_m"], x["tiles_n"]) == pytest.approx((np.log2(3), np.log2(5), 2))
    assert x["peak_rate"] == 11
    assert (x["row_alignment_a"], x["row_alignment_b"], x["row_alignment_c"]) == (7, 7, 7)
    assert x["significand_bits"] == 8
    assert x["iterations"] == pytest.approx(np.log2(22))
    assert x["thread_work"] == pytest.approx(np.log2(128 * 64 * 64 / 256 * 22))
    odd = dict(
        zip(
            default_names(),
            features(Gemm(640, 256, 4104, "NT", "bf16"), Columns.of([c]), H200)[0].tolist(),
            strict=True,
        )
    )
    assert odd["row_alignment_a"] == odd["row_alignment_b"] == 4
    q = Gemm(640, 255, 4096, "NT", "f16")
    copied = Config(
        family="mma", ms=32, ns=32, ml=64, nl=64, u=32, vec_a=8, vec_b=8, operand_path_a=0, operand_path_b=1
    )
    x = dict(zip(default_names(), features(q, Columns.of([copied]), H200)[0].tolist(), strict=True))
    assert (x["family"], x["operand_path"], x["row_alignment_c"]) == (1, 2, 1)
    assert x["peak_rate"] == pytest.approx(np.log2(perf_costs.mma_rate(q, H200)))


def test_nothing_beats_the_roofline_and_more_work_takes_longer():
    for p, q in (
        (Gemm(512, 512, 512), Gemm(512, 512, 1024)),
        (Gemm(64, 512, 512), Gemm(512, 512, 512)),
        (Gemm(512, 512, 512, "NT", "f16"), Gemm(512, 512, 1024, "NT", "f16")),
        (Gemm(512, 512, 512, "NN", "f64"), Gemm(1024, 512, 512, "NN", "f64")),
    ):
        c = plain(space.candidates(p, H200)).replace(kg=1, splitk=0, l2_evict_first=0)
        c = c.take(np.arange(0, len(c), 5))
        c = c.take(rules.legal(p, c, H200) & rules.legal(q, c, H200))
        assert (predict(p, c, H200) > least_us(p, H200)).all()
        assert (predict(q, c, H200) >= predict(p, c, H200)).all()
        assert least_us(q, H200) > least_us(p, H200)


BUSY = Counts(
    warp_instructions=4e6,
    fma_lanes=1e8,
    shared_wavefronts=5e5,
    global_sectors=1e5,
    atomics=0,
    barriers=2000,
    blocks=264,
    threads=256,
    registers=64,
    shared=16384,
)


@pytest.mark.parametrize(
    "unit", ["warp_instructions", "fma_lanes", "shared_wavefronts", "global_sectors", "atomics", "barriers"]
)
def test_each_unit_can_be_the_bottleneck(unit):
    light = replace(BUSY, warp_instructions=1e3, fma_lanes=1e3, shared_wavefronts=1e3, global_sectors=1e3, barriers=0)
    one, two = (from_stats(replace(light, **{unit: n}), H200) for n in (4e7, 8e7))
    base = from_stats(light, H200)
    assert one > 1.5 * base
    assert two - base == pytest.approx(2 * (one - base), rel=0.1)


def test_the_busiest_multiprocessor_decides():
    assert from_stats(replace(BUSY, blocks=133), H200) > 1.3 * from_stats(replace(BUSY, blocks=132), H200)
    assert from_stats(replace(BUSY, blocks=1), H200) > 10 * from_stats(BUSY, H200)


def test_few_warps_hide_less():
    few = replace(BUSY, blocks=132, threads=32)
    assert from_stats(few, H200) > 1.2 * from_stats(replace(few, threads=512), H200)
    # what does not fit comes in a second wave
    big = replace(BUSY, threads=1024, registers=32)
    assert from_stats(big, H200) < from_stats(replace(big, registers=33), H200)


def test_rates_differ_by_type():
    heavy = replace(BUSY, fma_lanes=1e10)
    assert from_stats(replace(heavy, fma_type="f64"), H200) == pytest.approx(2 * from_stats(heavy, H200), rel=0.02)
    assert from_stats(replace(heavy, fma_type="f16"), H200) == pytest.approx(from_stats(heavy, H200) / 2, rel=0.02)


def test_empty_launch_costs_launch_overhead():
    assert from_stats(replace(BUSY, blocks=0), H200) == perf_costs.LAUNCH_US


def test_counts_of_an_emulated_launch():
    access = SimpleNamespace(wavefronts=70.0, sectors=11.0)
    stats = SimpleNamespace(
        lane_instructions=Counter(fp32=640, integer=9),
        warp_instructions=Counter(fp32=20, integer=5),
        atomics=3,
        shared=access,
        global_load=access,
        global_store=access,
        barriers=16,
    )
    s = Counts.of(stats, Step("gemm", (2, 3, 1), (64, 2, 1), 4096))
    assert (s.blocks, s.threads, s.shared) == (6, 128, 4096)
    assert (s.warp_instructions, s.fma_lanes, s.fma_type) == (25, 640, "f32")
    assert (s.shared_wavefronts, s.global_sectors, s.atomics, s.barriers) == (70, 22, 3, 4)
    stats.lane_instructions = Counter(fp32=10, fp16=50)
    assert Counts.of(stats, Step("gemm", (1, 1, 1))).fma_lanes == 100
    assert from_stats(s, EMULATED) > perf_costs.LAUNCH_US


def test_counted_and_predicted_times_agree():
    p, c = Gemm(512, 512, 512, "TN"), Config(ml=64, nl=64, vec_a=4, vec_b=4, vec_c=4)
    g = geometry(p, c)
    fma = p.flops / 2
    reads = fma / 32 * 4 / 64
    s = Counts(
        warp_instructions=fma / 32 + 1.5 * reads,
        fma_lanes=fma,
        shared_wavefronts=2.5 * reads,
        global_sectors=g.blocks * 64 * 1024 * 4 / 32,
        atomics=0,
        barriers=g.blocks * 64,
        blocks=int(g.blocks),
        threads=int(g.threads),
        registers=int(g.registers),
        shared=int(g.shared),
    )
    for d in (H200, EMULATED):
        assert from_stats(s, d) == pytest.approx(predict(p, c, d), rel=0.5)


def test_blocks_of_rows_are_those_of_their_configurations():
    """With representatives of classes, whose cost is kept, and of others."""
    p = Gemm(512, 512, 512, "NT", "f16")
    for f in space.families(p, H200):
        b = space.base(f, p, H200)
        others = np.flatnonzero(~b.is_representative(np.arange(len(b.columns))))[::97]
        assert len(others) > 8
        for rows in (np.sort(b.representatives[::97]), others):
            c, g, w = blocks_of_rows(b, rows)
            expected = b.columns.take(rows)
            assert [c.row(i) for i in range(len(c))] == [expected.row(i) for i in range(len(rows))]
            assert np.array_equal(g.registers, geometry(b.problem, expected).registers)
            costs = work(b.problem, expected, H200)
            assert all(np.array_equal(getattr(w, x.name), getattr(costs, x.name)) for x in fields(w))
            issuer, whole = registry.FAMILIES[f.name].issuer_tile, geometry(b.problem, expected)
            for x, y in zip(issuer(b.problem, c, g), issuer(b.problem, expected, whole), strict=True):
                assert np.array_equal(x, y)


STRIDED_GRADIENT = "conv N=9,C=256,H=104,W=104,K=512,R=2,S=2,stride=2 NCHW f32 compute=tf32 direction=input_grad"


def test_phases_with_launches_of_their_own_are_all_counted():
    """With a strided input gradient, mma kernels compute a phase in a launch, a wgmma kernel computes all phases."""
    p = lower(parse(STRIDED_GRADIENT))
    texts = (
        "family=mma ms=64 ns=64 ml=64 nl=128 u=16 vec_b=4 stages=3",
        "family=wgmma ml=128 nl=128 u=32 stages=6 operand_path_a=pack operand_path_b=pack",
    )
    c = Columns.of([parse_config(text) for text in texts])
    one = lower(parse(STRIDED_GRADIENT.replace("stride=2", "stride=1")))
    for problem, launches in ((p, (4, 1)), (one, (1, 1))):
        largest = [microseconds(problem, c.take(np.array([row])), H200)[0] for row in range(2)]
        assert np.allclose(predict(problem, c, H200) / largest, launches)


def test_the_search_counts_all_launches_of_a_strided_gradient():
    (best, us), *_ = Model.analytic(H200).search(parse(STRIDED_GRADIENT), k=1).best
    assert best.family == "wgmma"
    p = lower(parse(STRIDED_GRADIENT))
    assert us == pytest.approx(predict(p, best, H200), rel=1e-3)


def test_interleaved_phases_are_predicted_faster_where_pixels_are_contiguous():
    """An H100 took 660 µs without interleaving. Three of four phases have no taps, and then no tiles."""
    p = Conv(60, 384, 56, 56, 768, 1, 1, stride=2, layout="NCHW", dtype="bf16", direction="input_grad")
    text = "family=wgmma ml=128 nl=128 u=64 stages=4 math_warpgroups=2 persistent=1 transposed_mma=1"
    scattered = parse_config(f"{text} operand_path_b=pack")
    interleaved = scattered.replace(interleave_phases=1, epilogue_smem=1)
    h100 = device("h100")
    before, after = (predict(lower(p), c, h100) for c in (scattered, interleaved))
    assert 550 < before < 770
    assert 90 < after < 200
    blocks = [int(geometry(lower(p), c).blocks) for c in (scattered, interleaved)]
    assert blocks[0] == 4 * blocks[1]
