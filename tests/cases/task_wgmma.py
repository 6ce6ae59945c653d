"""Random legal tasks on tensor cores by wgmma: values of sums of products, lists of those that are selected, and reductions
of rows, columns and groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import LAYOUTS
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import Device
from tests.cases import task_reduce, task_select, wgmma
from tests.cases.source import RandomCases, extents

KINDS = ("f16", "bf16", "s8")  #: types of A and B
STEP = "accum+=A[i,k]*B[k,j]"
#: of the type of sums, then of another type
VALUES = (
    "accum",
    "accum*s",
    "max(accum,t[i,j])+r[i]",
    "accum>c[j]?accum:s-accum",
    "accum+t[i,j]*c[j]",
    "accum>r[i]",
    "f32(accum)*0.5",
    "bf16(f32(accum)+f32(i-j))",
    "bf16(f32(accum)*0.5+f32(r[i]))",
    "f16(f32(max(accum,t[i,j])+c[j])*0.125)",
    "bf16(exp(f32(accum>r[i])+f32(c[j])*0.0))",
)
ARRAYS = {"r": "i", "c": "j", "t": "i,j"}


#: conditions of pairs of stored values
PAIRS = ("", "", "", "i<j", "abs(i-j)<60", "j+70<i", "t[i,j]>s and i<j")


def text(dtype: str, value: str, pairs: str = "") -> str:
    """The program of a value of a sum of products."""
    sums, body = task_select.TYPES[dtype], value + pairs
    arrays = [f"{name}:{sums}[{axes}];" for name, axes in ARRAYS.items() if f"{name}[" in body]
    scalar = f"s:{sums};" if any(x in body for x in ("*s", ":s", ">s")) else ""
    when = f"when({pairs})" if pairs else ""
    inputs = f"A:{dtype}[i,k];B:{dtype}[k,j];{''.join(arrays)}{scalar}"
    return f"{inputs}where(i,j){when}{{reduce(k){{{STEP};}}C[i,j]={value};}}"


def problem(rng: np.random.Generator, limit: int, d: Device) -> Task:
    """A value, a selection or a reduction of any extents, whose rows of A and B are whole 16 bytes or not."""
    p = task_reduce.problem(rng, limit, d, KINDS) if rng.random() < 0.4 else listed(rng, limit)
    if rng.random() < 0.3:
        return p
    unit = 16 // p.element.bytes
    return replace(p, lda=-(-p.columns_a // unit) * unit, ldb=-(-p.columns_b // unit) * unit)


def listed(rng: np.random.Generator, limit: int) -> Task:
    """A random value or selection."""
    m, n, k = extents(rng, limit)
    dtype = KINDS[rng.integers(len(KINDS))]
    body, capacity = text(dtype, VALUES[rng.integers(len(VALUES))], PAIRS[rng.integers(len(PAIRS))]), 0
    if rng.random() < 0.4:
        pairs = task_select.PAIRS[rng.integers(len(task_select.PAIRS))]
        lists, condition = (x[rng.integers(len(x))] for x in (task_select.LISTS, task_select.CONDITIONS))
        body = task_select.text(dtype, STEP, pairs, f"{condition}?L.add({lists})")
        capacity = int(rng.choice([0, 33, m * n // 3, m * n]))
    joins = "when(g[i]==h[j])" in body
    return Task(m, n, k, LAYOUTS[rng.integers(4)], dtype, text=body, capacity=capacity, sorted_keys=joins)


#: the axes of the loop over the listed tiles of a join
LISTED = {"persistent": 1, "listed_tiles": 1, "raster_group": 1} | dict.fromkeys(
    ("splitk", "pdl", "operand_path_a", "operand_path_b", "resident_b", "stream_waves"), 0
)


def config(p: Task, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    if p.sorted_keys and rng.random() < 0.7:
        c = wgmma.config(p, d, rng, threads, kg=1, cluster_k=1, **LISTED)
        if c is not None:
            return c
    sliced = rng.random() < 0.4 and not lower(p).sink.has_workspace
    slices = {"kg": int(rng.integers(2, 5)), "persistent": 0} if sliced else {}
    return wgmma.config(p, d, rng, threads, **slices)


SOURCE = RandomCases("task_wgmma", problem, config, limit=300, sms=wgmma.SMS, seeds=(53,))
