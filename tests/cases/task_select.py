"""Random legal tasks whose results are selected or masked, in the families simt and mma."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Columns, Config
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import LAYOUTS
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import Device
from tests.cases import mma, simt
from tests.cases.source import RandomCases, extents
from tests.lowered import legal

#: type of A and B -> the type of sums
TYPES = {"f32": "f32", "f64": "f64", "f16": "f32", "bf16": "f32", "s8": "s32"}
#: the pairs that are computed; an empty text: all
PAIRS = (
    "",
    "",
    "i<j",
    "j<=i",
    "i==j",
    "i!=j",
    "abs(i-j)<9",
    "i+3<j or j<i-40",
    "not(i<j)",
    "g[i]==h[j]",
    "m[i,j]>s",
    "",
)
CONDITIONS = ("accum>s", "accum<=r[i]", "not(accum>c[j])", "accum!=accum", "true", "false", "accum>s and t[i,j]<accum")
LISTS = ("accum,i,j", "i,j", "i,accum,j,accum*2", "j,i,accum>s,r[i]", "i", "accum")
AXES = {"r": "i", "c": "j", "t": "i,j", "m": "i,j", "g": "i", "h": "j"}


def text(dtype: str, step: str, pairs: str, output: str) -> str:
    """The program of a step, the pairs that are computed and an output."""
    sums = TYPES[dtype]
    body = f"{pairs} {step} {output}"
    arrays = [f"{name}:{'s32' if name in 'gh' else sums}[{axes}];" for name, axes in AXES.items() if f"{name}[" in body]
    scalar = f"s:{sums};" if ">s" in body else ""
    when = f"when({pairs})" if pairs else ""
    return f"A:{dtype}[i,k];B:{dtype}[k,j];{''.join(arrays)}{scalar}where(i,j){when}{{reduce(k){{{step};}}{output};}}"


def problem(rng: np.random.Generator, limit: int, d: Device) -> Task:
    """A random selection, or a masked store."""
    m, n, k = extents(rng, limit)
    known = [name for name in TYPES if d.sm >= (80 if name in ("bf16", "s8") else 0)]
    dtype = known[rng.integers(len(known))]
    step = "accum+=A[i,k]*B[k,j]"
    if dtype in ("f32", "f64") and rng.random() < 0.4:
        step = ("accum=max(accum,A[i,k]+B[k,j])", "accum+=abs(A[i,k]-B[k,j])")[rng.integers(2)]
    pairs = PAIRS[rng.integers(len(PAIRS))]
    output = "C[i,j]=accum"
    if not pairs or rng.random() < 0.7:
        values, condition = LISTS[rng.integers(len(LISTS))], CONDITIONS[rng.integers(len(CONDITIONS))]
        output = f"{condition}?L.add({values})"
    capacity = int(rng.choice([0, 1, 33, m * n // 3, m * n]))
    compute = "tf32" if dtype == "f32" and "*" in step and d.sm >= 80 and rng.random() < 0.5 else ""
    fields: dict[str, Any] = {"sorted_keys": pairs == "g[i]==h[j]" and m % 2 == 1}
    if output == "C[i,j]=accum" and n % 2 == 1:
        output, fields["groups"] = "C.put(accum,h[j],g[i])", f"{n},{m}"
    program = text(dtype, step, pairs, output)
    return Task(m, n, k, LAYOUTS[rng.integers(4)], dtype, compute, text=program, capacity=capacity, **fields)


def config(p: Task, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    on_tensor_cores = (
        d.sm >= 80 and (p.dtype != "f32" or p.compute == "tf32") and "abs" not in p.text and "max" not in p.text
    )
    on_tensor_cores = on_tensor_cores and (p.dtype == "s8" or p.compute == "tf32" or rng.random() < 0.7)
    c = (mma if on_tensor_cores else simt).config(p, d, rng, threads)
    if c is None or not p.sorted_keys or rng.random() < 0.5:
        return c
    paths = dict.fromkeys(("operand_path_a", "operand_path_b"), 0) if on_tensor_cores else {}
    listed = c.replace(listed_tiles=1, kg=1, splitk=0, raster_group=1, pdl=0, **paths)
    return listed if legal(lower(p), Columns.of([listed]), d).all() else c


SOURCE = RandomCases("task_select", problem, config, seeds=(43,))
