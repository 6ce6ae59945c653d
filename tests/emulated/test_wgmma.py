"""wgmma kernels, executed with checks for races, bounds and uninitialised reads; every element is compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gemm_runs import execute, inputs, verify

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.launches import copy_kernel
from ptxgen.families.common.rules import first_violation
from ptxgen.families.common.space import refinements
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import LAYOUTS, Gemm
from ptxgen.operations.gemm.strided_arrays import C, elements, padded
from ptxgen.problem.device import device
from ptxgen.problem.dtypes import FAST_ACCUM
from ptxgen.problem.reference import compare, epilogue_arrays, operands, reference
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases import SOURCES
from tests.cases.wgmma import config, problem

H200 = device("h200")
SCALES = ((1.0, 0.0), (2.0, 1.0), (1.0, -1.0))


@pytest.mark.first(2)
@pytest.mark.parametrize("n", range(12))
def test_random_problems_and_configurations(n):
    rng = np.random.default_rng(7000 + n)
    p, c = problem(rng, 90, H200), None
    while c is None or p.epilogue:
        p = problem(rng, 90, H200)
        c = config(p, H200, rng)
    inputs, (alpha, beta) = ("integers", "normal", "scaled")[n % 3], SCALES[n // 3 % 3]
    verify(p, c, inputs, alpha, beta, data=n, on="h200", seed=n, completion=("late", "early")[n % 2])


#: dtype, compute, layouts that the side of the 64 rows makes possible
ROUTES = [
    *(("f32", "tf32", layout) for layout in LAYOUTS),
    *(("e4m3", "", layout) for layout in LAYOUTS),
    *(("e5m2", "", layout) for layout in LAYOUTS),
    *(("s8", "", layout) for layout in LAYOUTS),
    *(("f16", "f16", layout) for layout in LAYOUTS),
]
OPTIONS = (
    "",
    "cluster_k=2",
    "kg=2 splitk=workspace",
    "kg=2 splitk=last_cta",
    "kg=2 splitk=distributed",
    "persistent=1 math_warpgroups=2",
    "pingpong=1 persistent=1 math_warpgroups=2",
    "persistent=1 math_warpgroups=3",
)
LONG = {"pingpong": 64, "math_warpgroups=2": 128, "math_warpgroups=3": 192}  #: rows of a tile along its 64-row side

#: each type and layout with a schedule, each schedule with some of both
SOME = [(*route, axes) for i, route in enumerate(ROUTES) for j, axes in enumerate(OPTIONS) if (i + i // 4 + j) % 8 == 0]


@pytest.mark.parametrize(("dtype", "compute", "layout", "axes"), SOME)
def test_types_layouts_and_schedules(dtype, compute, layout, axes):
    if "pingpong" in axes and dtype in ("e4m3", "e5m2"):
        compute = FAST_ACCUM  # two-level sums exclude it
    p = Gemm(80, 80, 272, layout, dtype, compute)
    u = 128 // p.element.bytes
    long = next((n for name, n in LONG.items() if name in axes), 64)
    tried = [f"ml={long} nl=32", f"transposed_mma=1 ml=32 nl={long}"]
    if layout == "TN" and p.element.bytes != 2:
        tried = [
            f"{tried[0]} operand_path_a=direct operand_path_b=pack",
            f"{tried[1]} operand_path_a=pack operand_path_b=direct",
            f"{tried[0]} operand_path_a=pack operand_path_b=pack",
        ]
    configs = [parse_config(f"family=wgmma {sides} u={u} stages=3 {axes}") for sides in tried]
    legal = [c for c in configs if first_violation(lower(p), c, H200) is None]
    if len(legal) == 2:  # one side, in turn
        legal = legal[(LAYOUTS.index(layout) + OPTIONS.index(axes)) % 2 :][:1]
    assert legal or ("operand_path_" in tried[0] and ("splitk=last_cta" in axes or "splitk=distributed" in axes))
    for n, c in enumerate(legal):
        inputs = ("integers", "normal")[n % 2]
        verify(p, c, inputs, 1.0, 1.0, data=n, on="h200")


#: problem, configuration: rounds of the stages that end within a tile's columns of K, warpgroups that load no B
RESIDENT_B = (
    (Gemm(1925, 24, 144, "NT", "f16"), "ml=64 nl=24 u=64 stages=3"),
    (Gemm(2565, 24, 144, "NT", "bf16"), "ml=64 nl=24 u=64 stages=6 math_warpgroups=2 pingpong=1"),
    (Gemm(2565, 20, 144, "NT", "f16"), "ml=64 nl=24 u=64 stages=3 math_warpgroups=2 pingpong=1"),
    (Gemm(2565, 24, 144, "NT", "f16"), "ml=64 nl=32 u=64 stages=3 cluster_x=4"),
    (Gemm(1000, 56, 104, "NN", "f16"), "ml=32 nl=64 u=64 stages=4 transposed_mma=1 cluster_y=2"),
    (Gemm(1000, 48, 60, "NT", "f32", "tf32"), "ml=32 nl=64 u=32 stages=4 transposed_mma=1"),
    (
        Conv(2, 3, 33, 35, 24, 7, 7, stride=2, padding=3, layout="NHWC", dtype="f16"),
        "ml=64 nl=24 u=32 stages=7 math_warpgroups=2 pingpong=1 operand_path_a=pack operand_path_b=pack",
    ),
    (
        Conv(2, 64, 16, 15, 40, 3, 3, padding=1, layout="NHWC", dtype="f16"),
        "ml=40 nl=64 u=64 stages=9 transposed_mma=1",
    ),
)


@pytest.mark.parametrize("n", range(len(RESIDENT_B)), ids=lambda n: f"{RESIDENT_B[n][0].key()}-{RESIDENT_B[n][1]}")
def test_resident_b_is_loaded_once(n):
    """Blocks of a small device compute several tiles."""
    (p, text), completion = RESIDENT_B[n], ("early", "late")[n % 2]
    small = replace(H200, sms=8)
    c = parse_config(f"family=wgmma epilogue_smem={int(p.dtype != 'f32')} persistent=1 resident_b=1 {text}")
    a, b, before = operands(p, 0, "integers").values()
    out = Runner.of(EmulatedDriver(small, completion=completion), p, c).compute(
        {"A": a, "B": b, "C": before}, 1.0, 1.0
    )["C"]
    assert np.array_equal(out, reference(p, {"A": a, "B": b, "C": before}, 1.0, 1.0).exact)


@pytest.mark.first(1)
@pytest.mark.parametrize("seed", range(2))
def test_random_kernels_with_resident_b(seed):
    for n, (p, c) in enumerate(SOURCES["wgmma_resident_b"].cases(seed, 3, replace(H200, sms=8), limit=900)):
        a, b, before = operands(p, n, "integers").values()
        more = epilogue_arrays(p, n, "integers")
        driver = EmulatedDriver(replace(H200, sms=8), completion=("late", "early")[n % 2])
        out = Runner.of(driver, p, c).compute({"A": a, "B": b, "C": before, **more}, 1.0, 1.0)["C"]
        deviation = compare(out, reference(p, {"A": a, "B": b, "C": before, **more}, 1.0, 1.0))
        assert deviation.ok, f"{deviation}: {p.key()} | {c}"


@pytest.mark.parametrize(
    ("p", "text", "rule"),
    [
        (Gemm(512, 24, 144, "NT", "f16"), "ml=64 nl=24 u=64 stages=3", "wgmma_resident_b"),  # not persistent
        (Gemm(512, 24, 144, "NT", "f16", batch=2), "ml=64 nl=24 u=64 stages=3 persistent=1", "wgmma_resident_b"),
        (Gemm(512, 24, 144, "NT", "f16"), "ml=64 nl=24 u=64 stages=4 persistent=1", "wgmma_resident_b_stages"),
        (Gemm(512, 40, 144, "NT", "f16"), "ml=64 nl=24 u=64 stages=3 persistent=1", "wgmma_resident_b_stages"),
    ],
)
def test_b_is_not_resident_where_tiles_need_another(p, text, rule):
    violation = first_violation(lower(p), parse_config(f"family=wgmma resident_b=1 {text}"), H200)
    assert violation is not None
    assert violation.name == rule


@pytest.mark.parametrize("u", [16, 32, 64, 128])
def test_tuning_tries_resident_b(u):
    p = lower(Conv(32, 144, 56, 56, 24, 1, 1, layout="NHWC", dtype="f16"))
    c = parse_config(f"family=wgmma ml=128 nl=24 u={u} stages=4 epilogue_smem=1 math_warpgroups=2 persistent=1")
    near = refinements(p, H200, c)
    stages = near.stages[near.resident_b == 1]
    assert len(stages)
    assert (stages % -(-144 // u) == 0).all()


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (
            Gemm(256, 256, 64, "NT", "bf16"),
            "ml=256 nl=192 math_warpgroups=2 stages=2 u=64 epilogue_smem=1 epilogue_subtiles=4",
        ),
        (Gemm(128, 256, 64, "NT", "f16", "f16"), "ml=128 nl=256 math_warpgroups=2 stages=2 u=64"),
        (
            Gemm(256, 128, 64, "NN", "f32", "tf32"),
            "transposed_mma=1 ml=256 nl=128 math_warpgroups=2 stages=2 u=32 persistent=1",
        ),
    ],
)
def test_producer_warps_release_registers(p, text):
    c = parse_config("family=wgmma " + text)
    verify(p, c, "integers", on="h200")


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (Gemm(128, 64, 128, "TT", "f32", "tf32"), "ml=128 nl=64 math_warpgroups=2 u=32 stages=3 vec_c=2"),
        (Gemm(64, 128, 256, "NN", "e4m3"), "transposed_mma=1 ml=64 nl=128 math_warpgroups=1 u=128 stages=2 vec_c=2"),
        (Gemm(64, 64, 256, "TT", "s8"), "ml=64 nl=64 u=64 stages=2 vec_c=2"),
        (
            Gemm(64, 64, 256, "TN", "f32", "tf32"),
            "ml=64 nl=64 u=32 stages=2 vec_c=2 operand_path_a=direct operand_path_b=pack",
        ),
        (Gemm(64, 64, 256, "TN", "s8"), "ml=64 nl=64 u=64 stages=2 vec_c=2 operand_path_a=direct operand_path_b=pack"),
    ],
)
def test_fragment_loads_have_no_bank_conflicts(p, text):
    stats = []
    execute(p, parse_config("family=wgmma " + text), inputs(p, "integers", 1, 1.0), beta=1.0, on="h200", stats=stats)
    assert sum(s.shared.wavefronts for s in stats) > 100
    assert not any(s.bank_conflicts for s in stats)


@pytest.mark.each_value
@pytest.mark.parametrize("aligned", [1, 2, 4, 8])
@pytest.mark.parametrize("dtype", ["e4m3", "f16", "f32"])
def test_rows_that_tma_cannot_map_are_packed(dtype, aligned, monkeypatch):
    """Every alignment of a chunk with two layouts, rows with gaps, starts between guards, a thread's only chunk or one
    of several; a single row."""
    for n, layout in list(enumerate(LAYOUTS))[aligned.bit_length() % 2 :: 2]:
        monkeypatch.setattr(copy_kernel, "LARGE", 0 if n > 1 else 1 << 18)
        p = Gemm(35, 43 + n, 66 + n, layout, dtype, "tf32" if dtype == "f32" else "")
        if aligned < p.element.bytes:
            return
        p = replace(p, lda=p.columns_a + n, aligned_a=aligned, aligned_b=aligned)
        c = parse_config(
            f"family=wgmma ml=64 nl=64 u={64 // p.element.bytes} stages=2 operand_path_a=pack operand_path_b=pack"
        )
        verify(p, c, "integers", data=n, on="h200", shift=n % 2 == 0)
    row = Gemm(1, 33, 65, "NT", dtype, p.compute, aligned_a=aligned, aligned_b=aligned)
    verify(row, c, "normal", 2.0, 1.0, on="h200", shift=True)


def test_only_one_operand_is_packed():
    p = Gemm(35, 40, 64, "TN", "f16")
    c = parse_config("family=wgmma ml=64 nl=64 u=32 stages=2 operand_path_a=pack operand_path_b=direct")
    verify(p, c, "integers", on="h200")
    p = Gemm(40, 35, 64, "TN", "f32", "tf32")  # A is transposed, B copied
    verify(p, replace(c, operand_path_a=1, operand_path_b=1), "integers", on="h200")


@pytest.mark.each_value
@pytest.mark.parametrize("shared", [-1, 0])
@pytest.mark.parametrize("more", [0, 1])
def test_each_batch_item_is_packed(more, shared):
    """``shared`` 0: all items have one B; ``more``: extents that TMA cannot map."""
    p = Gemm(36 + more, 40 + more, 72, "TN", "f32", "tf32", batch=3, stride_b=shared)
    driver, (a, b, old) = EmulatedDriver(H200), operands(p, 1, "integers").values()
    for text in (
        ("operand_path_a=pack operand_path_b=pack",)
        if more
        else (
            "operand_path_a=direct operand_path_b=pack",
            "operand_path_a=pack operand_path_b=direct transposed_mma=1 kg=2 splitk=workspace",
        )
    ):
        runner = Runner.of(driver, p, parse_config(f"family=wgmma ml=64 nl=64 u=32 stages=2 {text}"))
        out = runner.compute(padded(p, {"A": a, "B": b, "C": np.full_like(old, np.nan)}))["C"]
        assert np.array_equal(elements(p, C, out), reference(p, {"A": a, "B": b}).exact)


@pytest.mark.parametrize(
    ("p", "options"),
    [
        (Gemm(72, 168, 72, "TN", "bf16"), "nl=72"),
        (Gemm(168, 152, 72, "TT", "f16"), "ml=40 nl=64 transposed_mma=1"),
        (Gemm(168, 152, 72, "NN", "bf16"), "nl=160 cluster_x=2 epilogue_smem=1"),
        (Gemm(64, 152, 136, "NN", "bf16"), "nl=80 cluster_k=2"),
    ],
    ids=lambda x: x.key() if isinstance(x, Gemm) else "",
)
def test_boxes_may_be_longer_than_the_tile(p, options):
    values = {"ml": "64", "u": "32", "stages": "2", "y_boxes": "padded"}
    values |= dict(word.split("=") for word in options.split())
    c = parse_config("family=wgmma " + " ".join(f"{n}={v}" for n, v in values.items()))
    y = plan_for(p, c, H200).y
    assert y.span == 128
    assert len(y.boxes) * y.box[0] > int(plan_for(p, c, H200).geometry.y.tile)
    verify(p, c, "integers", 2.0, 1.0)


@pytest.mark.parametrize(
    ("p", "options", "shares"),
    [
        (Gemm(300, 100, 304, "NT", "f16"), "stream_waves=1", (8, 20, 5)),
        (Gemm(300, 104, 304, "NT", "f16", epilogue="relu"), "stream_waves=2", (4, 60, 15)),
        (Gemm(104, 104, 600, "TN", "bf16"), "stream_waves=1 epilogue_smem=1", (4, 0, 4)),  # no tail
        (Gemm(60, 100, 608, "NT", "s8"), "stream_waves=1 u=64", (0, 20, 5)),  # no whole tile
        (Gemm(200, 260, 504, "NT", "f32", compute="tf32"), "stream_waves=2 math_warpgroups=2 ml=128", (4, 96, 24)),
        (Gemm(600, 136, 504, "NN", "bf16"), "stream_waves=1 math_warpgroups=2 ml=128 cluster_x=2", (16, 16, 8)),
        (Gemm(96, 260, 272, "NT", "e4m3"), "stream_waves=1 u=32 transposed_mma=1 raster_group=4", (8, 18, 5)),
    ],
    ids=lambda x: x.key() if isinstance(x, Gemm) else "",
)
def test_blocks_share_the_iterations_of_the_last_tiles(p, options, shares):
    """On 4 multiprocessors: (tiles computed whole, iterations of the others, those of a share), results."""
    on = replace(H200, sms=4)
    values = {"ml": "64", "nl": "64", "u": "32", "stages": "3", "persistent": "1"}
    values |= dict(word.split("=") for word in options.split())
    c = parse_config("family=wgmma " + " ".join(f"{n}={v}" for n, v in values.items()))
    assert plan_for(p, c, on).scheduler.shares(lower(p)) == shares
    distribution, completion = (("integers", "late"), ("normal", "early"))[p.k // 8 % 2]
    verify(p, c, distribution, 2.0, 1.0, data=1, on=on, completion=completion)
