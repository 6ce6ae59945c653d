"""Random legal tasks of every type: operands, other arrays and results each of its own, reductions in 16 to 64 bits."""

from __future__ import annotations

import numpy as np

from ptxgen.operations.gemm.problem import LAYOUTS
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import dtype
from tests.cases import simt
from tests.cases.source import RandomCases, extents

TYPES = ("s8", "u8", "s16", "u16", "s32", "u32", "f16", "bf16", "f32", "f64")
SUMS = ("f32", "f64", "s32", "u32", "f16", "bf16")
#: what each k adds; a, b, w, r, c: elements in the type of the reduction; wider: that type
STEPS = (
    "accum = min(accum, {a} + {b})",
    "accum = max(accum, {a} * {b})",
    "accum += {a} * {b}",
    "accum += {w} * max({a}, {b})",
    "accum = max(accum, {a} * {b} + {r} - {c})",
    "accum += {sums}(A[i,k] > B[k,j])",
    "accum = min(accum, ({a} > {b} ? {w} : {r}) + {c})",
)
OF_INTEGERS = (
    "accum |= {a} & {b}",
    "accum ^= ({a} << 1) | {b}",
    "accum += {sums}(popcount(u32({a}) ^ u32({b})))",
)
VALUES = ("{out}(accum)", "{out}(max(accum, {t}) + {r})", "{out}({c} - accum)")
CONDITION = "accum > {c}"
AXES = {"A": "i,k", "B": "k,j", "w": "k", "r": "i", "c": "j", "t": "i,j"}


def text(rng: np.random.Generator, types: tuple[str, ...]) -> str:
    """The canonical text of a random program on arrays of these types."""
    sums = str(rng.choice([x for x in SUMS if dtype(x).bytes > 2 or x in types]))
    kinds = {name: str(rng.choice(types)) for name in AXES}
    if rng.random() < 0.3:
        kinds["B"] = kinds["A"]
    names = {"a": "A", "b": "B"}

    def element(name: str) -> str:
        array = names.get(name, name)
        x = f"{array}[{AXES[array]}]"
        return x if kinds[array] == sums else f"{sums}({x})"

    words = {name: element(name) for name in "abwrct"} | {"sums": sums, "out": str(rng.choice(types))}
    steps = [s for s in STEPS if "A[i,k]" not in s or _comparable(kinds["A"], kinds["B"])]
    if dtype(sums).integer:
        steps += OF_INTEGERS
    step = steps[rng.integers(len(steps))].format(**words)
    value = (CONDITION if rng.random() < 0.1 else VALUES[rng.integers(len(VALUES))]).format(**words)
    declared = f"accum: {sums}; " if dtype(sums).bytes == 2 else ""
    source = f"{declared}where (i in [0, M], j in [0, N]) {{ reduce (k in [0, K]) {{ {step}; }} C[i,j] = {value}; }}"
    return canonical(
        parse(source, {name: element_type for name, element_type in kinds.items() if f"{name}[" in source})
    )


def _comparable(a: str, b: str) -> bool:
    """True if the language compares elements of these types without a cast."""
    return a == b


def problem(rng: np.random.Generator, limit: int, d: Device) -> Task:
    """A random task: program, types, layout, extents, leading dimensions longer than rows."""
    types = tuple(name for name in TYPES if d.sm >= dtype(name).sm)
    m, n, k = extents(rng, limit)
    return Task(m, n, k, LAYOUTS[rng.integers(4)], "", text=text(rng, types))


SOURCE = RandomCases("task_types", problem, simt.config, limit=65, seeds=(43,))
