"""Geometry of integers and of columns agrees, for every family."""

from __future__ import annotations

import inspect
import re
from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import numpy as np
import pytest

from ptxgen.codegen.config.config import Columns, Config
from ptxgen.codegen.geometry import Geometry
from ptxgen.families.common.fma.geometry import warp_rows
from ptxgen.families.common.rules import CAPABILITIES, FIRST
from ptxgen.families.registry import FAMILIES
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import DEVICES
from tests.cases.columns import random_columns
from tests.lowered import geometry

PROBLEMS = [
    Gemm(2560, 16, 2560, "TN"),
    Gemm(61, 67, 59, "NN", lda=64),
    Gemm(1, 1, 1, "TT", "f64"),
    Gemm(0, 7, 0, "NT"),
    Gemm(512, 512, 512, "NT", "f16"),
    Gemm(129, 130, 1031, "NT", "f16", "f16"),
    Gemm(2**31 - 1, 3, 5, "NN"),
    Gemm(64, 64, 64, "NT", "bf16"),
    Gemm(64, 64, 64, "TN", "f32", "tf32"),
    Gemm(64, 64, 64, "NT", "s8"),
]
ROWS = 100


def random_rows(family: str, seed: int, n: int) -> Columns:
    """Rows of one family, legal or not, that satisfy the rules without which there is no geometry."""
    rng = np.random.default_rng(seed)
    c = random_columns(family, rng, 4 * n).replace(kg=rng.integers(1, 70, 4 * n))
    if "prefetch_k" in c.columns:
        c = c.replace(prefetch_k=rng.integers(0, 5, 4 * n))
    d = DEVICES["h200"]
    holds = [np.broadcast_to(r.holds(lower(PROBLEMS[0]), c, None, d), len(c)) for r in FIRST if r is not CAPABILITIES]
    return c.take(np.flatnonzero(np.logical_and.reduce(holds))[:n])


def flat(g: Any, prefix: str = "") -> dict[str, Any]:
    out = {}
    for field in fields(g):
        name, value = field.name, getattr(g, field.name)
        out.update(flat(value, f"{prefix}{name}.") if is_dataclass(value) else {prefix + name: value})
    return out


#: for families of sparse products
SPARSE = [lower(Spmm(70, n, 50, dtype="f16", pattern="bernoulli:density=0.2", calls=1000)) for n in (33, 64)]

_SUM = "A:f32[i,k];B:f32[k,j];g:s32[i];x:f32[i,j];where(i,j){reduce(k){accum+=A[i,k]*B[k,j];}C[g[i],j]+=x[i,j];}"
#: for families of elements of an array in groups
ELEMENTS = [lower(Task(100, n, 0, text=_SUM, groups=f"5,{n}")) for n in (70, 129)]

#: for the family of convolutions with few results per pixel
FEW_RESULTS = [
    Conv(2, 40, 9, 30, 2, 3, 3, padding=1, layout="NHWC", dtype="f16"),
    Conv(1, 17, 30, 9, 1, 3, 2, stride=2, dtype="f64"),
]


def problems_of(family):
    if "few_results" in FAMILIES[family].provides:
        return FEW_RESULTS
    if "element_groups" in FAMILIES[family].provides:
        return ELEMENTS
    return SPARSE if "gathered_rows" in FAMILIES[family].provides else PROBLEMS


@pytest.mark.parametrize("family", FAMILIES)
def test_integers_and_columns_agree(family):
    for n, p in enumerate(problems_of(family)):
        rows = random_rows(family, n, ROWS)
        assert len(rows) > ROWS // 2
        with np.errstate(all="ignore"):
            columns = flat(geometry(p, rows))
            for i in range(len(rows)):
                for name, value in flat(geometry(p, rows.row(i))).items():
                    column = columns[name]
                    expected = column[i] if isinstance(column, np.ndarray) and column.ndim else column
                    assert value == expected, f"{name} of {rows.row(i)} on {p.key()}"


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda f: f.name)
def test_geometry_is_a_frozen_record_with_comments(family):
    """Each family has a record of its own; every field of every record has a comment of one line."""
    g = geometry(problems_of(family.name)[0], Config(family=family.name))
    assert type(g) is not Geometry
    assert isinstance(g, Geometry)
    with pytest.raises(FrozenInstanceError):
        g.threads = 1
    parts = (getattr(g, field.name) for field in fields(g))
    for record in {type(g), *(type(part) for part in parts if is_dataclass(part))}:
        for cls in record.__mro__[:-1]:
            lines = inspect.getsource(cls).splitlines()
            declared = [line for line in lines if re.match(r"    \w+: ", line)]
            operands = [line for line in declared if re.match(r"    [ab]: \w*OperandGeometry$", line)]
            assert declared
            assert [line for line in declared if "  #: " not in line] == operands


def test_geometry_of_one_kernel():
    """By hand: a tile of 64x64 by 8x8, U = 8, three stages, a K-major A."""
    c = Config(vec_a=1, vec_b=4, vec_c=4)
    g = geometry(Gemm(100, 130, 500, "NN"), c)
    assert (g.group, g.threads) == (64, 64)
    assert (g.a.stage_bytes, g.b.stage_bytes, g.stage_bytes) == (
        4 * 8 * 68,
        4 * 8 * 64,
        4 * 8 * 132,
    )  # A's rows are padded: it is transposed
    assert g.shared == 3 * g.stage_bytes
    assert (g.a.loads, g.b.loads, g.b.row_loads) == (512, 128, 16)
    assert (g.tiles_m, g.tiles_n, g.tiles, g.blocks) == (2, 3, 6, 6)
    assert (g.slice_k, g.slices, g.workspace) == (504, 1, 0)
    four = geometry(Gemm(100, 130, 500, "NN"), Config(kg=4, splitk=2, kl=2))
    assert (four.threads, four.uk) == (128, 4)
    assert (four.slice_k, four.slices, four.blocks) == (128, 4, 24)
    assert four.workspace == 4 * 100 * 130 * 4
    assert four.shared == 64 * 68 * 2 * 4  # two tiles of C where the stages were


def test_slices_cover_k_and_none_is_empty():
    for k in [*range(60), 1000, 4097]:
        for kg in (1, 2, 3, 7, 64):
            for u in (8, 16, 32):
                g = geometry(Gemm(16, 16, k), Config(u=u, kg=kg))
                assert g.slices <= kg
                assert g.slice_k * g.slices >= k
                assert g.slice_k * (g.slices - 1) < max(k, 1)
                assert g.slice_k % u == 0


def test_warp_rows_fit_and_are_the_most_square():
    rng = np.random.default_rng(1)
    for _ in range(300):
        ms, ns = (int(x) for x in rng.choice([1, 2, 4, 8, 16], 2))
        ml, nl = (int(x) for x in rng.choice([16, 32, 64, 128, 256], 2))
        c = Config(ms=ms, ns=ns, ml=ml, nl=nl)
        fits = [w for w in (1, 2, 4, 8, 16, 32) if ml % (w * ms) == 0 and nl % (32 // w * ns) == 0]
        lanes_m = int(warp_rows(c))
        if not fits:
            continue
        assert lanes_m in fits
        skew = {w: abs(np.log2(w * ms / (32 / w * ns))) for w in fits}
        assert skew[lanes_m] == min(skew.values())
