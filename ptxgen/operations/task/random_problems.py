"""Random tasks to measure: products over semirings, distances, queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ptxgen.operations.gemm import random_problems as gemm
from ptxgen.operations.gemm.problem import LAYOUTS, THIN
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.semirings import SEMIRINGS, semiring_program
from ptxgen.operations.task.suites import DISTANCES, GROUPS, KEYS, QUERIES, SUITES, distance_text, typed_text
from ptxgen.problem.operation import RandomProblems
from ptxgen.tuning.draws import Limits, log_uniform

THIN_SHARE = 0.3  #: the fraction of tasks with one small extent
LARGE_SHARE = 0.25  #: the fraction of tasks whose extents are all large, before one is made small
LARGE = 512  #: the least large extent


def semiring(rng: np.random.Generator, element_type: str) -> str:
    """The text of a product over a random semiring of floats."""
    names = [name for name in SEMIRINGS if name not in ("plus_times", "or_and")]
    return canonical(semiring_program(str(rng.choice(names)), element_type))


def distance(rng: np.random.Generator, element_type: str) -> str:
    """The text of a random distance of rows."""
    return typed_text(distance_text(str(rng.choice(list(DISTANCES)))), element_type)


def query(rng: np.random.Generator, element_type: str) -> str:
    """The text of a random query of Gamut."""
    return typed_text(QUERIES[str(rng.choice([name for name in QUERIES if name in SUITES]))], element_type)


def one_array(rng: np.random.Generator, element_type: str) -> str:
    """The text of a random distance of rows of one array, or of query 6."""
    name = str(rng.choice([*DISTANCES, "q6"]))
    return typed_text(QUERIES[name] if name in QUERIES else distance_text(name, True), element_type)


def drawn(text: Callable[..., str], rng: np.random.Generator, values: dict[str, Any], limits: Limits) -> Task:
    """A random task of any layout, with log-uniform extents; in half of the tasks, extents are multiples of 8."""
    element_type = values.get("dtype", "f32")
    multiple = gemm.MULTIPLE if rng.random() < 0.5 else 1
    extents = {name: gemm.extent(rng, limits.extent, multiple) for name in "mnk"}
    if limits.extent >= 2 * LARGE and rng.random() < LARGE_SHARE:
        extents = {
            name: multiple * int(np.exp(rng.uniform(*np.log([LARGE, limits.extent]))) / multiple) for name in "mnk"
        }
    if rng.random() < THIN_SHARE:
        extents[str(rng.choice(list("mnk")))] = log_uniform(rng, THIN)
    m, n, k = extents.values()
    program = text(rng, element_type)
    groups = GROUPS if KEYS[0] in program else ""
    return Task(m, n, k, str(rng.choice(LAYOUTS)), dtype=element_type, text=program, groups=groups)


def drawn_of_one_array(rng: np.random.Generator, values: dict[str, Any], limits: Limits) -> Task:
    """A random task with one array on both sides, otherwise as ``drawn``."""
    p = drawn(one_array, rng, values, limits)
    return Task(p.m, p.m, p.k, ("NT", "TN")[rng.integers(2)], dtype=p.dtype, text=one_array(rng, p.dtype))


def varied(rng: np.random.Generator, p: Task, limits: Limits) -> Task:
    """The problem ``p`` with other random extents."""
    products = gemm.varied(rng, p, limits)
    return replace(p, m=products.m, n=products.m if p.mirrored else products.n, k=products.k, lda=0, ldb=0, ldc=0)


#: name -> random problems; their weight is 0, so that there are no tasks among random problems by default
RANDOM_PROBLEMS = {
    f"task_{text.__name__}": RandomProblems(partial(drawn, text), 0.0, varied) for text in (semiring, distance, query)
} | {"task_one_array": RandomProblems(drawn_of_one_array, 0.0, varied)}
