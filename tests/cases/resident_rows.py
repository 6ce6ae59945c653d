"""Random legal reductions of the rows of all pairs, and lists of pairs, for small K, by kernels with resident rows."""

from __future__ import annotations

import re

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.families.common.rules import legal
from ptxgen.families.resident_rows.axes import LONGEST
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import LAYOUTS
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.program import MOST_KEPT
from ptxgen.problem.device import Device
from tests.cases.columns import random_columns
from tests.cases.source import RandomCases, extents
from tests.cases.task_reduce import REDUCTIONS, statement

DRAWS = 6000
STEPS = (
    "accum+=(A[i,k]-B[k,j])*(A[i,k]-B[k,j])",
    "accum+=abs(A[i,k]-B[k,j])",
    "accum+=A[i,k]*B[k,j]",
    "accum=max(accum,A[i,k]+B[k,j])",
)
PAIRS = ("", "", "", "i<j", "i==j", "i+40<j")
VALUES = ("accum", "accum", "accum*s", "accum>s", "accum+{dtype}(j)", "accum*r[i]", "r[i]*t[j]-accum")
CONDITIONS = (
    "accum>s",
    "accum<r[i]",
    "accum<r[i] or (accum==r[i] and j<=q[i])",
    "true",
    "false",
    "accum>s and i!=j",
    "accum*t[j]<s*r[i]",
)
BEST_VALUES = ("accum", "accum", "accum*s", "accum*r[i]", "accum+f32(j)", "accum>s?", "i!=j?")
LISTS = ("accum,i,j", "i,j", "i,accum*2,r[i]", "j")


def problem(rng: np.random.Generator, limit: int, d: Device) -> Task:
    """A random reduction of rows, or list of pairs."""
    m, n, _ = extents(rng, limit)
    if rng.random() < 0.25:
        return _nearest(rng, m, n)
    if rng.random() < 0.25:
        return _best(rng, m, n)
    dtype, k = str(rng.choice(["f32", "f32", "f64", "s32"])), int(rng.choice([1, 2, 3, 3, 4, 7, 16, LONGEST]))
    step, pairs = str(rng.choice(STEPS)), str(rng.choice(PAIRS))
    if rng.random() < 0.4:
        capacity = int(rng.choice([0, 33, m * n // 3, m * n]))
        output = f"{rng.choice(CONDITIONS)}?L.add({rng.choice(LISTS)})"
        return Task(m, n, k, LAYOUTS[rng.integers(4)], dtype, text=_text(dtype, pairs, step, output), capacity=capacity)
    value, op = str(rng.choice(VALUES)).format(dtype=dtype), str(rng.choice(REDUCTIONS))
    if op in ("mean", "logsumexp"):
        op, value = ("mean", value if value == "accum" else "accum") if dtype != "s32" else ("max", value)
        op = "logsumexp" if dtype != "s32" and rng.random() < 0.5 else op
    text = _text(dtype, pairs, step, statement("C[i]", op, value))
    return Task(m, n, k, LAYOUTS[rng.integers(4)], dtype, text=text)


def _nearest(rng: np.random.Generator, m: int, n: int) -> Task:
    """Nearest rows, or those within a radius: sums of squares that have lower bounds."""
    k, layout = int(rng.choice([2, 3, 8, 16])), LAYOUTS[rng.integers(4)]
    if rng.random() < 0.5:
        text = _text("f32", "", STEPS[0], "accum<s?L.add(accum,i,j)")
        return Task(m, n, k, layout, "f32", text=text, capacity=m * n)
    output = statement("C[i]", str(rng.choice(["min", "argmin"])), "accum")
    return Task(m, n, k, layout, "f32", text=_text("f32", "", STEPS[0], output))


def _best(rng: np.random.Generator, m: int, n: int) -> Task:
    """The best values of each row."""
    k, layout, step = int(rng.choice([1, 2, 3, 7, 16])), LAYOUTS[rng.integers(4)], str(rng.choice([STEPS[0], *STEPS]))
    value, count = str(rng.choice(BEST_VALUES)), int(rng.choice([1, 2, 10, 16, 31, MOST_KEPT]))
    condition, value = (value, "accum") if value.endswith("?") else ("", value)
    output = f"{condition}best[i].{rng.choice(['top', 'bottom', 'bottom'])}({count},{value},j)"
    return Task(m, n, k, layout, "f32", text=_text("f32", str(rng.choice(PAIRS)), step, output))


def _text(dtype: str, pairs: str, step: str, output: str) -> str:
    known = (("r", dtype, "i"), ("q", "s32", "i"), ("t", dtype, "j"))
    arrays = "".join(f"{name}:{t}[{axis}];" for name, t, axis in known if f"{name}[{axis}]" in output)
    scalar = f"s:{dtype};" if re.search(r"[>*<]s\b", output) else ""
    when = f"when({pairs})" if pairs else ""
    return (
        f"A:{dtype}[i,k];B:{dtype}[k,j];{arrays}{scalar}accum:{dtype};where(i,j){when}{{reduce(k){{{step};}}{output};}}"
    )


def config(p: Task, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration, or None if none was drawn."""
    columns = random_columns("resident_rows", rng, DRAWS)
    few = {"row_warps": rng.choice([1, 2, 4], DRAWS), "column_parts": rng.choice([1, 1, 2, 3], DRAWS)}
    columns = columns.replace(**few, tile_columns=rng.choice([8, 32, 64, 128], DRAWS), resident_k=p.k)
    rows = np.flatnonzero(legal(lower(p), columns, d) & (32 * columns.row_warps <= threads))
    bounded = rows[columns.lower_bounds[rows] == 1]
    rows = bounded if len(bounded) and rng.random() < 0.5 else rows
    return columns.row(int(rng.choice(rows))) if len(rows) else None


SOURCE = RandomCases("resident_rows", problem, config, limit=150, seeds=(61,))
