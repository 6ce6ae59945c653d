"""Suites: the paper's table, its conversion to row-major terms, files of shapes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ptxgen import suites
from ptxgen.catalog import CATALOG
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.problem import Gemm
from ptxgen.reference import plain
from ptxgen.suites import ColumnMajor

#: Table 4: M, N, K, A-T, B-T
TABLE_4 = [
    (512, 512, 512, "No", "Yes"), (1024, 1024, 1024, "No", "Yes"), (2048, 2048, 2048, "No", "Yes"),
    *[(2560, n, 2560, a_t, "No") for a_t in ("No", "Yes") for n in (16, 32, 64, 128)],
    (32, 32, 60000, "No", "Yes"), (64, 64, 60000, "No", "Yes"), (256, 256, 60000, "No", "Yes"),
    (4096, 4096, 32, "No", "Yes"), (3456, 3456, 32, "No", "Yes"), (896, 896, 32, "No", "Yes"),
]  # fmt: skip


def test_isaac_is_table_4() -> None:
    rows = [c.column_major for c in suites.cases("isaac")]
    assert [(r.m, r.n, r.k, ("No", "Yes")[r.a_t], ("No", "Yes")[r.b_t]) for r in rows if r] == TABLE_4
    assert len({c.name for c in suites.cases("isaac")}) == 17


@pytest.mark.parametrize("a_t", [False, True])
@pytest.mark.parametrize("b_t", [False, True])
def test_the_conversion_computes_the_same_product_on_the_same_memory(a_t: bool, b_t: bool) -> None:
    m, n, k = 5, 3, 7
    rng = np.random.default_rng(0)
    op_a, op_b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    memory_a = (op_a.T if a_t else op_a).flatten(order="F")  # as column-major BLAS stores it
    memory_b = (op_b.T if b_t else op_b).flatten(order="F")
    memory_c = (op_a @ op_b).flatten(order="F")

    p = ColumnMajor(m, n, k, a_t, b_t).row_major(dtype="f64")
    # the first operand is B's memory, the second A's; C's stays where it is
    first = memory_b.reshape(-1, p.columns_a)
    second = memory_a.reshape(-1, p.columns_b)
    wide_a, wide_b = plain(p, first, second)
    assert wide_a.shape == (p.m, p.k)
    assert wide_b.shape == (p.k, p.n)
    np.testing.assert_allclose((wide_a @ wide_b).ravel(), memory_c)


def test_fields_hold_for_every_case() -> None:
    for case in suites.cases("isaac", dtype="f16", compute="f16", deterministic=True):
        assert (case.problem.dtype, case.problem.compute, case.problem.deterministic) == ("f16", "f16", True)
    assert {c.problem.layout for c in suites.cases("square", layout="TT")} == {"TT"}
    with pytest.raises(DtypeError, match="f99"):
        suites.cases("square", dtype="f99")


def test_squares_go_from_256_to_16384() -> None:
    sizes = [c.problem.m for c in suites.cases("square")]
    assert (sizes[0], sizes[-1]) == (256, 16384)
    assert all(c.problem.m == c.problem.n == c.problem.k for c in suites.cases("square"))


def test_a_suite_that_sets_layouts_refuses_one() -> None:
    with pytest.raises(InputError, match="layout is 'NN'; suite isaac"):
        suites.cases("isaac", layout="NN")


def test_an_unknown_suite_is_refused_with_the_names() -> None:
    with pytest.raises(InputError, match=r"suite is 'linpack'.*isaac.*square"):
        suites.cases("linpack")


def test_names_of_a_suite_differ() -> None:
    for name in CATALOG["gemm"].suites:
        names = [c.name for c in suites.cases(name)]
        assert names
        assert len(names) == len(set(names))


def test_small_is_small() -> None:
    assert all(c.problem.flops < 1e6 for c in suites.cases("small"))


def test_a_file_of_shapes() -> None:
    lines = [
        json.dumps({"name": "first", "m": 1, "n": 2, "k": 3, "layout": "TN"}),
        "",
        json.dumps({"m": 4, "n": 5, "k": 6, "dtype": "f16"}),
    ]
    first, second = suites.read(lines, "f.jsonl", dtype="f64", layout="NT")
    assert (first.name, first.problem) == ("first", Gemm(1, 2, 3, "TN", "f64"))
    assert second.problem == Gemm(4, 5, 6, "NT", "f16")
    assert second.name == second.problem.key()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"m": 1, "n": 2}', "lacks k"),
        ('{"m": 1, "n": 2, "k": 3, "tile": 4}', "tile"),
        ('{"m": 1, "n": 2, "k": -3}', "k is -3"),
        ('{"m": 1, "n": 2, "k": "3"}', "k is '3'"),
        ("[1, 2, 3]", "JSON object"),
        ("1,2,3", "line 2"),
        ('{"m": 1, "n": 2, "k": 3, "layout": ["NN"]}', "layout"),
    ],
)
def test_a_bad_line_is_named_with_its_rule(line: str, told: str) -> None:
    with pytest.raises(InputError, match=f"f.jsonl, line 2: |{told}") as caught:
        list(suites.read(['{"m": 1, "n": 2, "k": 3}', line], "f.jsonl"))
    assert "f.jsonl, line 2: " in str(caught.value)
    assert told in str(caught.value)


def test_a_negative_extent_of_a_column_major_row_is_refused() -> None:
    with pytest.raises(ShapeError):
        ColumnMajor(-1, 2, 3, False, False).row_major()
