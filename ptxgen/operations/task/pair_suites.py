"""Suites of tasks on all pairs of rows: nearest neighbours, lists of the pairs within a radius, densities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ptxgen.operations.task.fast_distances import SPLIT
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.texts import input_ranks, parse
from ptxgen.operations.task.problem import Task
from ptxgen.problem.operation import Case

#: the measured (M, N, K)
SHAPES = (*((1 << 16, 1 << 16, k) for k in (3, 16, 64, 128, 1024)), (1 << 12, 1 << 20, 96))
#: from this K on, fast tasks compute products of bf16 planes
SPLIT_K = 24
#: K -> the squared distance such that 1 of 1,000 pairs of normal vectors is nearer
NEAR = {3: 0.0486, 16: 7.88, 64: 69.3, 96: 117.6, 128: 168.4, 1024: 1779.7}
LIST_PAIRS = 256  #: lists have room for one of so many pairs

_SQUARES = "accum += (P[i,k] - R[j,k]) * (P[i,k] - R[j,k]);"
_L1 = "accum += abs(P[i,k] - R[j,k]);"
_PRODUCTS = "accum += P[i,k] * R[j,k];"
#: the squared distance from the sums of squares p[i] and r[j] of both rows, as calls with precision fast compute it
_FAST = "max(p[i] + r[j] - 2.0 * accum, 0.0)"
#: name -> (step, output) of the tasks of the suite knn
KNN = {
    "1nn": (_SQUARES, "C[i] argmin= accum;"),
    "1nn fast": (_PRODUCTS, f"C[i] argmin= {_FAST};"),
    "1nn l1": (_L1, "C[i] argmin= accum;"),
    "1nn cosine": (_PRODUCTS, "C[i] argmin= max(1.0 - accum * p[i] * r[j], 0.0);"),
}
#: name -> (step, output) of the tasks of the suite pairwise
PAIRWISE = {
    "range": (_SQUARES, "accum < near ? C.add(accum, i, j);"),
    "range fast": (_PRODUCTS, f"{_FAST} < near ? C.add({_FAST}, i, j);"),
    "density": (_SQUARES, "C[i] logsumexp= accum * (-0.5);"),
    "density fast": (_PRODUCTS, f"C[i] logsumexp= {_FAST} * (-0.5);"),
    "kernel sum": (_SQUARES, "C[i] += exp(accum * (-0.5));"),
    "kernel sum fast": (_PRODUCTS, f"C[i] += exp({_FAST} * (-0.5));"),
    "least l1": (_L1, "C[i] min= accum;"),
    "least l2": (_SQUARES, "C[i] min= accum;"),
    "least cosine": (_PRODUCTS, "C[i] min= max(1.0 - accum * p[i] * r[j], 0.0);"),
}
#: (M, N, K) for the emulated device
SMALL = ((40, 56, 3), (33, 70, 24))


def cases(
    programs: dict[str, tuple[str, str]], shapes: tuple[tuple[int, int, int], ...], dtype: str = "f32", **fields: Any
) -> Iterator[Case]:
    """A case for each shape and each of the ``programs``."""
    for m, n, k in shapes:
        for name, (step, output) in programs.items():
            near = NEAR.get(k, float(k) / 2)
            text = f"where (i, j) {{ reduce (k) {{ {step} }} {output.replace('near', str(near))} }}"
            own: dict[str, Any] = {"capacity": m * n // LIST_PAIRS} if "C.add" in output else {}
            if name.endswith(" fast") and k >= SPLIT_K and dtype == "f32":
                own["compute"] = SPLIT
            typed = canonical(parse(text, dict.fromkeys(input_ranks(text), dtype)))
            yield Case(f"{name} {m}x{n}x{k}", Task(m, n, k, dtype=dtype, text=typed, **{**own, **fields}))
