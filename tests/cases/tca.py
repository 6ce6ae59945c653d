"""Random legal products of prepared sparse matrices on tensor cores, by sums of diagonals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptxgen.codegen.config.config import Columns, Config
from ptxgen.families.common.rules import legal
from ptxgen.families.registry import FAMILIES
from ptxgen.lowering.lower import lower
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.device import Device
from tests.cases import spmm
from tests.cases.source import RandomCases


def problem(rng: np.random.Generator, limit: int, d: Device) -> Spmm | None:
    """16-bit types; rows of all classes of lengths: K is up to 5 times the limit of other extents."""
    p = spmm.problem(rng, limit, d)
    if p.dtype not in ("f16", "bf16"):
        return None
    return replace(p, k=p.k * int(rng.choice([1, 5])), calls=1000, exact_nonfinite=bool(rng.integers(2)))


def config(p: Spmm, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration."""
    family = FAMILIES["tca"]
    columns = Columns.product({a.name: a.values for a in family.axes}).replace(family=family.code)
    rows = np.flatnonzero(legal(lower(p), columns, d))
    return columns.row(int(rng.choice(rows))) if len(rows) else None


SOURCE = RandomCases("tca", problem, config, limit=70)
