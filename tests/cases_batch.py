"""Random batches: the families' own problems and configurations, several items of each at strides of all kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ptxgen.codegen.config import Config
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device
from tests import cases as simt
from tests import cases_mma as mma
from tests import cases_stream as stream
from tests import cases_wgmma as wgmma
from tests.cases import pairs

FAMILIES = ("simt", "mma", "wgmma", "skinny")
COUNTS = (2, 3, 5, 9, 17)


def batch(p: KernelGemm, rng: np.random.Generator, whole: bool = False) -> KernelGemm:
    """Items of ``p``: one behind the other, with gaps, row by row between each other's rows, or one for all (not of C).
    ``whole``: strides are multiples of 16 bytes."""
    count = int(rng.choice(COUNTS))
    changes: dict[str, int] = {"batch": count}
    rows = {"a": p.rows_a, "b": p.rows_b, "c": p.m}
    for name, kind in (("a", p.element), ("b", p.element), ("c", p.output)):
        unit = 16 // kind.bytes if whole else 1
        ld, way = getattr(p, f"ld{name}"), rng.random()
        if way < 0.3:
            changes[f"stride_{name}"] = -(-rows[name] * ld // unit) * unit
        elif way < 0.5:
            changes[f"stride_{name}"] = (-(-rows[name] * ld // unit) + int(rng.integers(1, 9))) * unit
        elif way < 0.7 or name == "c":
            apart = -(-ld // unit) * unit
            changes |= {f"stride_{name}": apart, f"ld{name}": apart * count}
        else:
            changes[f"stride_{name}"] = 0
    return replace(p, **changes)


def batches(
    seed: int, count: int, d: Device, family: str, limit: int = 160, threads: int = 1024
) -> Iterator[tuple[KernelGemm, Config]]:
    """``count`` random pairs."""
    rng = np.random.default_rng([seed, FAMILIES.index(family)])
    if family == "wgmma":
        return pairs(
            count, lambda: batch(wgmma.problem(rng, limit), rng, whole=True), lambda p: wgmma.config(p, d, rng)
        )
    if family == "simt":
        return pairs(count, lambda: batch(simt.problem(rng, limit), rng), lambda p: simt.config(p, d, rng, threads))
    of = mma if family == "mma" else stream
    return pairs(
        count,
        lambda: batch(of.problem(rng, limit, d), rng, whole=bool(rng.random() < 0.5)),
        lambda p: of.config(p, d, rng, threads),
    )
