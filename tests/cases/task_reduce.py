"""Random legal tasks whose results are reduced: rows, columns, and groups that keys select."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.operations.gemm.problem import LAYOUTS
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import Device
from tests.cases import mma, simt
from tests.cases.source import RandomCases, extents

#: type of A and B -> the type of sums
TYPES = {"f32": "f32", "f64": "f64", "f16": "f32", "bf16": "f32", "s8": "s32"}
PAIRS = ("", "", "", "i<j", "j<=i", "i==j", "i+40<j", "m[i,j]>s")
VALUES = ("accum", "accum", "accum*r[i]", "accum+c[j]", "accum>s", "max(accum,t[i,j])", "s32(accum)")
GROUPS = ("g[i],h[j]", "h[j],g[i]", "i,h[j]", "g[i],j", "j,g[i]")
OPERATORS = ("+", "+", "max", "min", "*")
REDUCTIONS = (*OPERATORS, "argmin", "argmax", "mean", "logsumexp")
AXES = {"r": "i", "c": "j", "t": "i,j", "m": "i,j", "g": "i", "h": "j"}
KEYS = {"g": ("s32", "u8", "s16"), "h": ("s32", "u32")}


def statement(target: str, op: str, value: str) -> str:
    """The statement that reduces a value: products are of 1 and −1, which do not overflow."""
    value = "accum>s?1:-1" if op == "*" else value
    return f"{target}{op}={value}" if op in "+*&|^" else f"{target}={op}({target},{value})"


def problem(rng: np.random.Generator, limit: int, d: Device, kinds: Sequence[str] = tuple(TYPES)) -> Task:
    """A random reduction of rows, of columns or of groups."""
    m, n, k = extents(rng, limit)
    known = [name for name in kinds if d.sm >= (80 if name in ("bf16", "s8") else 0)]
    dtype = known[rng.integers(len(known))]
    sums = TYPES[dtype]
    step = "accum+=A[i,k]*B[k,j]"
    if dtype in ("f32", "f64") and rng.random() < 0.3:
        step = ("accum=max(accum,A[i,k]+B[k,j])", "accum+=abs(A[i,k]-B[k,j])")[rng.integers(2)]
    pairs, value, groups = PAIRS[rng.integers(len(PAIRS))], VALUES[rng.integers(len(VALUES))], ""
    if dtype == "f64" and value == "s32(accum)":
        value = "accum"
    if rng.random() < 0.5:
        keys = GROUPS[rng.integers(len(GROUPS))]
        output = statement(f"C[{keys}]", OPERATORS[rng.integers(len(OPERATORS))], value)
        shape = [{"i": m, "j": n}.get(key, int(rng.choice([1, 2, 5, 17, 40]))) for key in keys.split(",")]
        groups = f"{shape[0]},{shape[1]}"
    else:
        op = REDUCTIONS[rng.integers(len(REDUCTIONS))]
        if op in ("mean", "logsumexp"):
            value = f"f32({value})" if dtype != "f64" else "accum"
        output = statement(f"C[{'ij'[rng.integers(2)]}]", op, value)
    body = f"{pairs} {output}"
    types = {name: KEYS[name][rng.integers(len(KEYS[name]))] for name in KEYS}
    arrays = [f"{name}:{types.get(name, sums)}[{axes}];" for name, axes in AXES.items() if f"{name}[" in body]
    scalar = f"s:{sums};" if ">s" in body else ""
    when = f"when({pairs})" if pairs else ""
    text = f"A:{dtype}[i,k];B:{dtype}[k,j];{''.join(arrays)}{scalar}where(i,j){when}{{reduce(k){{{step};}}{output};}}"
    compute = (
        "tf32" if dtype == "f32" and "B[k,j]" in step and "*" in step and d.sm >= 80 and rng.random() < 0.3 else ""
    )
    layout, deterministic = LAYOUTS[rng.integers(4)], bool(rng.random() < 0.4)
    return Task(m, n, k, layout, dtype, compute, text=text, groups=groups, deterministic=deterministic)


def config(p: Task, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A case of the family mma, where it multiplies the type."""
    if p.compute == "tf32":
        return mma.config(p, d, rng, threads)
    on_tensor_cores = d.sm >= 80 and p.dtype != "f32" and "abs" not in p.text and "A[i,k]+" not in p.text
    if on_tensor_cores and (p.dtype == "s8" or rng.random() < 0.7):
        return mma.config(p, d, rng, threads)
    return simt.config(p, d, rng, threads)


SOURCE = RandomCases("task_reduce", problem, config, seeds=(47,))
