"""Clusters of wgmma kernels whose blocks share operands, executed with checks for races, bounds and uninitialised reads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.families.common.rules import first_violation
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import LAYOUTS, Gemm
from ptxgen.problem.device import device
from ptxgen.problem.reference import operands, reference
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner

H200 = device("h200")

#: clusters whose blocks share X, or both operands; each in a layout
SHARED = (
    "cluster_x=2 cluster_y=2",
    "cluster_x=4 cluster_y=2 raster_group=4",
    "cluster_y=2",
    "cluster_y=4 raster_group=8",
    "cluster_x=2 cluster_y=4 l2_evict_first=ab",
    "cluster_x=2 cluster_y=2 kg=3 splitk=last_cta",
    "cluster_x=2 cluster_y=2 persistent=1",
    "cluster_x=2 cluster_y=2 persistent=1 math_warpgroups=2",
    "cluster_x=2 cluster_y=2 persistent=1 math_warpgroups=2 pingpong=1 raster_group=4",
)
MULTICAST_CASES = [(LAYOUTS[(1, 0, 2, 3)[j % 4]], axes) for j, axes in enumerate(SHARED)]


@pytest.mark.parametrize(("layout", "axes"), MULTICAST_CASES)
def test_clusters_multicast_operands(layout, axes):
    """Clusters with some tiles outside the matrix, X from shared memory and from registers; a device so small that
    blocks compute several tiles."""
    long, short = (128 if "math_warpgroups=2" in axes and "pingpong" not in axes else 64), (64 if "=4" in axes else 32)
    on = replace(H200, sms=8) if "persistent" in axes else H200
    problems = Gemm(200, 152, 136, layout, "f16"), Gemm(148, 144, 68, layout, "f32", "tf32")
    configs = []
    for n, p in enumerate(problems):
        for sides in (f"ml={long} nl={short}", f"transposed_mma=1 ml={short} nl={long}"):
            c = parse_config(f"family=wgmma {sides} u={64 // p.element.bytes} stages=3 {axes} epilogue_smem={1 - n}")
            if first_violation(lower(p), c, on) is None:
                configs.append((n, p, c))
    assert len(configs) > 1
    for n, p, c in configs[SHARED.index(axes) % len(configs) :][:1]:  # the problems and sides in turn
        a, b, before = operands(p, n, "integers").values()
        driver = EmulatedDriver(on, completion=("late", "early")[n])
        out = Runner.of(driver, p, c).compute({"A": a, "B": b, "C": before}, 1.0, 1.0)["C"]
        assert np.array_equal(out, reference(p, {"A": a, "B": b, "C": before}, 1.0, 1.0).exact), f"{p.key()} | {c}"
