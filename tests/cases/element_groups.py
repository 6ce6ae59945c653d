"""Random legal reductions of the elements of one array in groups of rows or columns, by kernels with private groups."""

from __future__ import annotations

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.families.common.rules import legal
from ptxgen.lowering.lower import lower
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import Device
from tests.cases.columns import random_columns
from tests.cases.source import RandomCases, extents
from tests.cases.task_reduce import OPERATORS, statement

DRAWS = 4000
#: type of the array -> values
VALUES = {
    "f32": ("x[i,j]", "x[i,j]", "abs(x[i,j])", "f64(x[i,j])"),
    "f64": ("x[i,j]", "-x[i,j]"),
    "f16": ("f32(x[i,j])",),
    "bf16": ("f32(x[i,j])",),
    "s8": ("s32(x[i,j])",),
    "s32": ("x[i,j]", "x[i,j]&12"),
    "u16": ("u32(x[i,j])",),
}
KEYS = ("s32", "s32", "u32", "u8", "s16")


def problem(rng: np.random.Generator, limit: int, d: Device) -> Task:
    """A random reduction of an array, of which nothing is a product."""
    m, n, _ = extents(rng, limit)
    dtype = str(rng.choice([x for x in VALUES if x != "bf16" or d.sm >= 80]))
    value, op = str(rng.choice(VALUES[dtype])), str(rng.choice(OPERATORS))
    value = value if op != "*" else {"f64": "x[i,j]>0?1.0:-1.0"}.get(dtype, "x[i,j]>0?1:-1")
    groups, by_rows = int(rng.choice([1, 2, 5, 17, 40])), rng.random() < 0.5
    target, shape = ("C[g[i],j]", f"{groups},{n}") if by_rows else ("C[i,g[j]]", f"{m},{groups}")
    key = f"g:{rng.choice(KEYS)}[{'i' if by_rows else 'j'}];"
    head = f"A:f32[i,k];B:f32[k,j];{key}x:{dtype}[i,j];"
    text = f"{head}where(i,j){{reduce(k){{accum+=A[i,k]*B[k,j];}}{statement_of(target, op, value)};}}"
    return Task(m, n, 0, text=text, groups=shape, deterministic=bool(rng.random() < 0.3))


def statement_of(target: str, op: str, value: str) -> str:
    return f"{target}*={value}" if op == "*" else statement(target, op, value)


def config(p: Task, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration, or None if none was drawn."""
    columns = random_columns("private_groups", rng, DRAWS)
    few = {"copy_warps": rng.choice([1, 2, 3, 5], DRAWS), "kg": rng.choice([1, 1, 2, 3], DRAWS)}
    columns = columns.replace(**few)
    rows = np.flatnonzero(legal(lower(p), columns, d) & (32 * columns.copy_warps <= threads))
    return columns.row(int(rng.choice(rows))) if len(rows) else None


SOURCE = RandomCases("element_groups", problem, config, limit=150, seeds=(51,))
