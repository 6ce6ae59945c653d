"""``compute=f32_bf16x6``: the layout of bf16 planes, the products, and unsupported uses."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.source import Step, TensorMap
from ptxgen.errors import ConfigError
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.wgmma.bf16x3 import PAIRS, PLANES, planes
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.tuning import selection
from tests.cases import SOURCES
from tests.lowered import first_violation, geometry, perf_model
from tests.unit.test_wgmma import read, swizzled

H200 = device("h200")
COMPUTE = "f32_bf16x6"


def loaded_stage(x, matrices: np.ndarray, rank: int) -> np.ndarray:
    """A stage after TMA loaded ``matrices`` (planes × MN × K of the tile), as bytes; unwritten ones stay 0xEE."""
    memory = np.full(1 << 18, 0xEE, np.uint8)
    for box in x.boxes:
        source = matrices[int(box.trailing.strip(", "))][rank * x.slice_extent :]
        inner, rows = x.box
        for r in range(min(rows, len(source))):
            row = source[r, box.inner : box.inner + inner].tobytes()
            at = np.arange(len(row)) + x.base + box.offset + rank * x.slice_bytes + r * x.span
            memory[swizzled(at, x.span)] = np.frombuffer(row, np.uint8)
    return memory


def test_products_read_their_planes():
    """With random configurations: each pair of planes over all of the stage's K, for each 64 rows, smallest pairs first."""
    rng = np.random.default_rng(0)
    for p, c in SOURCES["bf16x3"].cases(51, 60, H200, 600):
        made = plan_for(p, c, H200)
        steps = c.u * 2 // 32
        assert len(made.mainloop.products) == len(PAIRS) * steps * made.mainloop.mi
        assert [s.scale_d for s in made.mainloop.products] == ["0"] * made.mainloop.mi + ["1"] * (
            len(made.mainloop.products) - made.mainloop.mi
        )
        memory, values = {}, {}
        for x, extent in ((made.x, made.scheduler.x_tile), (made.y, made.scheduler.y_tile)):
            values[x.role] = rng.integers(0, 1 << 16, (PLANES, extent, c.u), np.uint16)
            memory[x.role] = np.full(1 << 18, 0xEE, np.uint8)
            for rank in range(c.cluster_x if x.role == "y" else c.cluster_y):
                loaded = loaded_stage(x, values[x.role], rank)
                memory[x.role] = np.where(memory[x.role] == 0xEE, loaded, memory[x.role])
        for n, s in enumerate(made.mainloop.products):
            (i, j), k = PAIRS[n // made.mainloop.mi // steps], n // made.mainloop.mi % steps
            part = np.s_[:, 16 * k : 16 * k + 16]
            got = read(memory["y"], made.y, made.y.base + 16 * s.y, made.scheduler.y_tile, np.dtype(np.uint16))
            np.testing.assert_array_equal(got, values["y"][j][part], err_msg=f"{p.key()} | {c}")
            for wg in range(c.math_warpgroups):
                got = read(memory["x"], made.x, 16 * s.x + wg * made.mainloop.x_wg_bytes, 64, np.dtype(np.uint16))
                want = values["x"][i][part][wg * made.mainloop.wg_rows + 64 * s.mi :][:64]
                valid = c.tma_rows or 64
                np.testing.assert_array_equal(got[:valid], want[:valid], err_msg=f"{p.key()} | {c}")


def test_planes_do_not_overlap_in_the_workspace():
    for p, c in SOURCES["bf16x3"].cases(52, 80, H200, 600):
        made = plan_for(p, c, H200).launch(lower(p))
        if not made.steps or not p.k:
            assert not any(s.entry.endswith("_split_bf16x3") for s in made.steps)
            continue
        assert made.steps[0].entry.endswith("_split_bf16x3")
        assert made.workspace < geometry(p, c).workspace + 128
        partial = c.kg * p.results * 4 if c.kg > 1 and c.splitk == 2 else 0
        used = [(0, partial)]
        (main,) = (s for s in made.steps if s.maps)
        for m, rows in zip(main.maps, (p.n, p.m) if c.transposed_mma else (p.m, p.n), strict=True):
            items = m.extents[2:-1]  # of a batch those that have an operand of their own
            assert m.extents == (p.k, rows, *items, PLANES)
            assert len(items) == (p.batch > 1)
            assert (m.operand, m.dtype) == ("W", "bf16")
            assert m.offset % 128 == m.pitches[0] % 128 == 0
            plane = rows * m.pitches[0]
            assert m.pitches == (m.pitches[0], *(PLANES * plane for _ in items), plane)
            assert 2 * p.k <= m.pitches[0]
            used.append((m.offset, m.offset + PLANES * plane * (*items, 1)[0]))
        used.sort()
        assert all(one[1] <= two[0] for one, two in pairwise(used))
        assert used[-1][1] <= made.workspace
        assert not made.zeroed


def test_tensor_map_begins_at_its_offset():
    m = TensorMap("W", "bf16", (8, 8), (16,), (8, 8), 16, offset=256)
    seen = []
    step = Step("e", (1, 1, 1), arguments=(("u64", "W"), ("map", m)))
    step.pack_maps(lambda tensor_map, address: seen.append(address) or bytes(128), {"W": 1024})
    assert seen == [1280]


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        ("ml=64 nl=32 u=128", "wgmma_depth"),
        ("ml=64 nl=32 u=32 kg=2 splitk=last_cta", "wgmma_bf16x3"),
        ("ml=64 nl=32 u=32 kg=2 splitk=distributed", "wgmma_bf16x3"),
        ("ml=64 nl=32 u=32 math_warpgroups=2 pingpong=1 persistent=1", "wgmma_pingpong"),
        ("ml=128 nl=208 u=32 math_warpgroups=2 stages=2", "wgmma_register_file"),
    ],
)
def test_unsupported_types_and_options(config, rule):
    p, c = Gemm(128, 256, 512, "NN", "f32", COMPUTE), parse_config("family=wgmma " + config)
    assert first_violation(p, c, H200).name == rule
    plain = first_violation(Gemm(128, 256, 512, "NT", "f32", "tf32"), c, H200)
    assert plain is None or plain.name != rule


def test_size_of_planes_is_limited():
    c = parse_config("family=wgmma ml=64 nl=32 u=32 raster_group=8")
    p = Gemm(1 << 17, 1 << 17, 1 << 15, "NN", "f32", COMPUTE)
    assert first_violation(p, c, H200) is None
    with pytest.raises(ConfigError, match="wgmma_bf16x3"):
        plan_for(replace(p, k=1 << 17, lda=0, ldb=0), c, H200)


def test_only_wgmma_devices_compute_bf16x6():
    p = Gemm(256, 256, 256, "NN", "f32", COMPUTE)
    assert planes(p) == 3
    assert planes(replace(p, compute="f32")) == 1
    for name in ("t4", "a100"):
        assert not selection.select(p, device(name))
        assert selection.why_unsupported(p, device(name)).endswith(f"_{device(name).sm}; kernels of this are for sm_90")
    (chosen,) = selection.select(p, H200)
    assert chosen.config.family == "wgmma"


#: measured on an H200 (microseconds, medians), good configurations and bad
MEASURED = [
    (1071, 4096, "NN", "ml=128 nl=128 math_warpgroups=2 u=64 stages=2 vec_c=2"),
    (1126, 4096, "NN", "ml=128 nl=128 math_warpgroups=2 u=64 stages=2 vec_c=2 raster_group=8 cluster_x=2 persistent=1"),
    (1126, 4096, "NN", "ml=128 nl=128 math_warpgroups=2 u=32 stages=4 vec_c=2"),
    (1191, 4096, "NN", "ml=256 nl=64 math_warpgroups=2 u=32 vec_c=2 raster_group=8"),
    (1264, 4096, "NN", "ml=64 nl=192 u=64 stages=2 vec_c=2 raster_group=8"),
    (1323, 4096, "NN", "ml=64 nl=128 u=64 vec_c=2 raster_group=8"),
    (145.9, 2048, "NT", "ml=128 nl=128 math_warpgroups=2 u=64 stages=2 vec_c=2 raster_group=8"),
    (152.7, 2048, "NT", "ml=128 nl=128 math_warpgroups=2 u=32 stages=4 vec_c=2 raster_group=8 cluster_x=2"),
]


@pytest.mark.parametrize(("us", "extent", "layout", "config"), MEASURED)
def test_model_is_near_measured_times(us, extent, layout, config):
    p = Gemm(extent, extent, extent, layout, "f32", COMPUTE)
    assert perf_model.predict(p, parse_config("family=wgmma " + config), H200) == pytest.approx(us, rel=0.1)


def test_model_counts_six_products_and_the_packing_kernel():
    """Relative to one bf16 product: six times as long if math dominates; otherwise the packing kernel shows."""
    c = parse_config("family=wgmma ml=128 nl=128 math_warpgroups=2 u=64 stages=2 raster_group=8")
    big, one = Gemm(8192, 8192, 8192, "NT", "f32", COMPUTE), Gemm(8192, 8192, 8192, "NT", "bf16", out="f32")
    assert 5.5 < perf_model.predict(big, c, H200) / perf_model.predict(one, c, H200) < 7
    thin = Gemm(64, 8192, 8192, "NT", "f32", COMPUTE)
    moved = 10 * 8192 * 8192 / (H200.bandwidth * 1e3)
    assert perf_model.predict(thin, parse_config("family=wgmma ml=64 nl=64 u=64 stages=3"), H200) > moved
