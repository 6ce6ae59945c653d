"""Suites of sparse products."""

from __future__ import annotations

import pytest

from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem import suites
from ptxgen.problem.operation import Case

#: suite, matrix, its N
MEASURED = [
    *[
        ("dlmc", f"dlmc-{m}x{k}-{sp}", (128,))
        for m, k in ((512, 512), (512, 2048))
        for sp in (0.9, 0.95, 0.98, 0.7, 0.5)
    ],
    *[("dlmc", f"dlmc-4096x4096-{sp}", (16, 64, 128, 256, 512)) for sp in (0.5, 0.7, 0.9, 0.95, 0.98, 0.99, 0.995)],
    *[("dlmc", f"dlmc-2048x512-{sp}", (16, 64, 128, 256, 512)) for sp in (0.5, 0.7, 0.9, 0.95, 0.98)],
    *[("dlmc", f"{name}", (128, 512)) for name in ("logn-4096x4096-0.9", "vec8-4096x4096-0.9", "vec8-4096x4096-0.98")],
    ("dlmc", "logn-2048x512-0.95", (128,)),
    ("graphs", "rmat-2^16-d16", (64, 256)),
    ("graphs", "rmat-2^16-d32", (16, 128, 512)),
    ("graphs", "rmat-2^18-d16", (16, 128)),
    ("graphs", "rmat-2^20-d16", (64, 256)),
    ("graphs", "ba-2^16-m4", (16, 128, 512)),
    ("graphs", "ba-2^18-m8", (64, 256)),
    ("graphs", "ba-2^20-m8", (64,)),
    ("graphs", "communities-2^17-d32", (64, 256)),
    ("graphs", "uniform-2^17-d8", (64, 256)),
    ("mesh", "poisson27-64", (16, 64)),
    ("mesh", "poisson7-100", (16, 64)),
    ("mesh", "banded-2^17-w32", (16, 64, 256)),
    ("skewed", "zipf-2^17-d16", (64, 256)),
    ("skewed", "zipf-4096-d128", (64, 256)),
]
#: matrix -> nonzeros; these have the expected number exactly, or are small enough to be made here
NONZEROS = {
    "poisson27-64": 6859000,
    "poisson7-100": 6940000,
    "banded-2^17-w32": 4194048,
    "dlmc-512x512-0.9": 26214,
    "uniform-2^17-d8": 1048542,
    "rmat-2^16-d16": 955487,
    "communities-2^17-d32": 4032272,
    "zipf-2^17-d16": 1819708,
    "zipf-4096-d128": 410668,
    "vec8-4096x4096-0.98": 334116,
}


def named(suite: str) -> dict[str, Case]:
    return {c.name: c for c in suites.cases(suite, "spmm", dtype="f16")}


@pytest.mark.parametrize("suite", ["dlmc", "graphs", "mesh", "skewed"])
def test_suites_have_the_measured_products(suite: str) -> None:
    cases = named(suite)
    for _, matrix, columns in (row for row in MEASURED if row[0] == suite):
        for n in columns:
            p = cases[f"{matrix} N={n}"].problem
            assert isinstance(p, Spmm)
            assert (p.n, p.dtype) == (n, "f16")
            sizes = matrix.split("-")[1].split("x")
            if sizes[0].isdigit() and suite == "dlmc":
                assert [p.m, p.k] == list(map(int, sizes))
            elif sizes[0].startswith("2^"):
                assert p.m == p.k == 1 << int(sizes[0][2:])
    assert len({c.problem for c in cases.values()}) == len(cases)
    assert {c.problem.n for c in cases.values()} == {16, 64, 128, 256, 512}  # type: ignore[attr-defined]


def test_the_suite_of_transposes() -> None:
    cases = named("backward")
    p = cases["dlmc-512x2048-0.9 transposed N=128"].problem
    assert isinstance(p, Spmm)
    assert (p.m, p.k, p.n, p.calls) == (2048, 512, 128, 1000)
    assert p.pattern.startswith("transpose:bernoulli:")
    assert len(cases) == 2 * (4 * 3 + 4)


@pytest.mark.parametrize("name", NONZEROS)
def test_matrices_have_the_size_of_those_that_were_measured(name: str) -> None:
    [problem] = [
        c.problem
        for suite in ("dlmc", "graphs", "mesh", "skewed")
        for c in named(suite).values()
        if c.name == f"{name} N=64"
    ]
    assert isinstance(problem, Spmm)
    assert problem.nnz == pytest.approx(NONZEROS[name], rel=0.02)


def test_decode_has_five_densities_of_two_layers() -> None:
    problems = [c.problem for c in suites.cases("decode", "spmm", dtype="f16")]
    assert len(set(problems)) == len(problems) == 2 * 5 * 3
    assert {(p.m, p.k) for p in problems if isinstance(p, Spmm)} == {(4096, 4096), (14336, 4096)}
    assert {p.n for p in problems if isinstance(p, Spmm)} == {1, 8, 16}
    sparsities = {1 - p.nnz / (p.m * p.k) for p in problems if isinstance(p, Spmm)}
    assert {round(x, 2) for x in sparsities} == {0.5, 0.7, 0.9, 0.95, 0.99}


def test_graph_batches_are_multiplied_in_one_launch() -> None:
    problems = [c.problem for c in suites.cases("grouped-graphs", "spmm", dtype="f32")]
    assert len(set(problems)) == len(problems) == 18
    assert all(isinstance(p, Spmm) and p.groups >= 32 and p.m == p.k for p in problems)
