"""Random batches: problems and configurations of the families, several items of each, all kinds of strides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import Device
from tests.cases import mma, simt, skinny, wgmma
from tests.cases.source import RandomCases

COUNTS = (2, 3, 5, 9, 17)


def batch(p: Gemm, rng: np.random.Generator, whole: bool = False) -> Gemm:
    """``p`` with several items: contiguous, with gaps, with interleaved rows, or one item of A or B that all share.
    ``whole``: strides are multiples of 16 bytes."""
    count = int(rng.choice(COUNTS))
    changes: dict[str, Any] = {"batch": count}
    if p.sums_columns or p.sums_a:
        changes["epilogue"] = "store_sums,relu"
    rows = {"a": p.rows_a, "b": p.rows_b, "c": p.m}
    for name, dtype in (("a", p.element), ("b", p.element), ("c", p.output)):
        unit = 16 // dtype.bytes if whole else 1
        ld, kind_of_stride = getattr(p, f"ld{name}"), rng.random()
        if kind_of_stride < 0.3:
            changes[f"stride_{name}"] = -(-rows[name] * ld // unit) * unit
        elif kind_of_stride < 0.5:
            changes[f"stride_{name}"] = (-(-rows[name] * ld // unit) + int(rng.integers(1, 9))) * unit
        elif kind_of_stride < 0.7 or name == "c":
            pitch = -(-ld // unit) * unit
            changes |= {f"stride_{name}": pitch, f"ld{name}": pitch * count}
        else:
            changes[f"stride_{name}"] = 0
    return replace(p, **changes)


def batched(source: RandomCases, index: int, whole: bool | None = None) -> RandomCases:
    """The source of batches of ``source``'s problems. ``whole``: as ``batch``'s; None: for half of the problems."""

    def problem(rng: np.random.Generator, limit: int, d: Device) -> Gemm:
        p = source.problem(rng, limit, d)
        return batch(p, rng, bool(rng.random() < 0.5) if whole is None else whole)

    return replace(source, name=f"batch_{source.name}", problem=problem, limit=160, seeds=(index,))


SOURCES = (
    batched(simt.SOURCE, 0, whole=False),
    batched(mma.SOURCE, 1),
    batched(wgmma.SOURCE, 2, whole=True),
    batched(skinny.SOURCE, 3),
)
