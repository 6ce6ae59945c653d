"""Random legal tasks on elements of 16 bits whose steps are computed on pairs of columns, with every kind of output."""

from __future__ import annotations

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import LAYOUTS
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import Device
from tests.cases import simt
from tests.cases.source import RandomCases, extents

TYPES = ("f16", "bf16", "s16", "u16")
#: what each k adds: of elements themselves, for all types and for floats
STEPS = ("accum = max(accum, min({a}, {b}))", "accum = min(accum, max({a}, max({b}, 3)))")
OF_FLOATS = ("accum = max(accum, abs(min(-{a}, {b})))", "accum = fmin(accum, fmax({a}, {b}))")
OF_INTEGERS = ("accum |= {a} & {b}", "accum ^= {a} | {b}")
#: of floats that are rounded once, with results in 16 bits; of integers that are declared to have 16 bits
ROUNDED = (
    "accum = max(accum, {a} + {b})",
    "accum = min(accum, abs({a} - {b}))",
    "accum = max(accum, -max({a}, 2) - {b})",
)
WRAPPING = ("accum = max(accum, {a} + {b})", "accum += {a} + {b}", "accum = min(accum, min({a}, 5) + {b})")
VALUE = "C[i,j] = {dtype}(accum);"
OUTPUTS = (
    "C[i,j] = accum;",
    "C[i,j] = accum + r[i];",
    "accum > c[j] ? L.add(accum, i, j);",
    "C[i] = max(C[i], accum);",
    "C[j] = argmin(C[j], accum);",
    "C[g[i],h[j]] = max(C[g[i],h[j]], accum);",
)
PAIRS = ("", "", "when (i < j)", "when (r[i] < c[j])")


def text(rng: np.random.Generator, dtype: str) -> str:
    """The canonical text of a random program on arrays of one type."""
    floating = "f" in dtype
    one = rng.random() < 0.2
    rounds = rng.random() < 0.5
    declared = rounds and (not floating or rng.random() < 0.5)
    steps = (ROUNDED if floating else WRAPPING) if rounds else STEPS + (OF_FLOATS if floating else OF_INTEGERS)
    step = steps[rng.integers(len(steps))].format(a="A[i,k]", b="A[j,k]" if one else "B[k,j]")
    output = (
        OUTPUTS[rng.integers(len(OUTPUTS))] if not rounds or (declared and not floating) else VALUE.format(dtype=dtype)
    )
    head = f"accum: {dtype}; " if declared else ""
    when = PAIRS[rng.integers(len(PAIRS))]
    source = f"{head}where (i in [0, M], j in [0, N]) {when} {{ reduce (k in [0, K]) {{ {step}; }} {output} }}"
    kinds = {"A": dtype, "B": dtype, "r": dtype, "c": dtype, "g": "s32", "h": "s32"}
    return canonical(parse(source, {name: of for name, of in kinds.items() if f"{name}[" in source}))


def problem(rng: np.random.Generator, limit: int, d: Device) -> Task:
    """A random task: program, type, layout, extents."""
    dtype = TYPES[rng.integers(len(TYPES) if d.sm >= 90 else 2)]
    m, n, k = extents(rng, limit)
    program = text(rng, dtype)
    m = n if "B:" not in program else m
    layout = LAYOUTS[rng.integers(4)] if "B:" in program else ""
    groups = "5,6" if "g[" in program else ""
    return Task(m, n, k, layout, dtype, text=program, capacity=m * n // 2 + 1, groups=groups)


def config(p: Task, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    assert lower(p).algebra.paired is not None, p.text
    configs = (simt.config(p, d, rng, threads, {"column_pairs": 1, "cp_async_a": 0}) for _ in range(10))
    return next((c for c in configs if c is not None), None)


SOURCE = RandomCases("task_pairs", problem, config, limit=65, sms=range(80, 1000), seeds=(47,))
