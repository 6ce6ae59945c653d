"""Suites: the paper's table, its conversion to row-major terms, files of shapes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.gemm.reference import as_matrices
from ptxgen.operations.gemm.suites import ColumnMajor
from ptxgen.problem import suites
from ptxgen.problem.operation import operation_named

#: Table 4: M, N, K, A-T, B-T
TABLE_4 = [
    (512, 512, 512, "No", "Yes"),
    (1024, 1024, 1024, "No", "Yes"),
    (2048, 2048, 2048, "No", "Yes"),
    *[(2560, n, 2560, a_t, "No") for a_t in ("No", "Yes") for n in (16, 32, 64, 128)],
    (32, 32, 60000, "No", "Yes"),
    (64, 64, 60000, "No", "Yes"),
    (256, 256, 60000, "No", "Yes"),
    (4096, 4096, 32, "No", "Yes"),
    (3456, 3456, 32, "No", "Yes"),
    (896, 896, 32, "No", "Yes"),
]


def test_isaac_is_table_4() -> None:
    rows = [c.column_major for c in suites.cases("isaac")]
    assert [(r.m, r.n, r.k, ("No", "Yes")[r.a_t], ("No", "Yes")[r.b_t]) for r in rows if r] == TABLE_4
    assert len({c.name for c in suites.cases("isaac")}) == 17


@pytest.mark.parametrize("a_t", [False, True])
@pytest.mark.parametrize("b_t", [False, True])
def test_row_major_conversion_computes_the_same_product(a_t: bool, b_t: bool) -> None:
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
    wide_a, wide_b = as_matrices(p, first, second)
    assert wide_a.shape == (p.m, p.k)
    assert wide_b.shape == (p.k, p.n)
    np.testing.assert_allclose((wide_a @ wide_b).ravel(), memory_c)


def test_fields_apply_to_every_case() -> None:
    for case in suites.cases("isaac", dtype="f16", compute="f16", deterministic=True):
        assert (case.problem.dtype, case.problem.compute, case.problem.deterministic) == ("f16", "f16", True)
    assert {c.problem.layout for c in suites.cases("square", layout="TT")} == {"TT"}
    with pytest.raises(DtypeError, match="f99"):
        suites.cases("square", dtype="f99")


def test_squares_go_from_256_to_16384() -> None:
    sizes = [c.problem.m for c in suites.cases("square")]
    assert (sizes[0], sizes[-1]) == (256, 16384)
    assert all(c.problem.m == c.problem.n == c.problem.k for c in suites.cases("square"))


def test_suite_with_fixed_layouts_refuses_a_layout() -> None:
    with pytest.raises(InputError, match="layout is 'NN'; suite isaac"):
        suites.cases("isaac", layout="NN")


def test_unknown_suite_is_refused_with_the_names() -> None:
    with pytest.raises(InputError, match=r"suite is 'linpack'.*isaac.*square"):
        suites.cases("linpack")


def test_cases_are_named_by_a_part_of_their_names() -> None:
    every = suites.cases("isaac")
    assert suites.named(every, [every[2].name, every[1].name]) == every[1:3]
    with pytest.raises(InputError, match=r"case is 'LINPACK 7'; it must be a part .* of a case: .*512"):
        suites.named(every, ["LINPACK 7"])


def test_names_of_a_suite_differ() -> None:
    for name in operation_named("gemm").suites:
        names = [c.name for c in suites.cases(name)]
        assert names
        assert len(names) == len(set(names))


def test_small_suite_is_small() -> None:
    assert all(c.problem.flops < 1e6 for c in suites.cases("small"))


def test_file_of_shapes() -> None:
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
    ("line", "message"),
    [
        ('{"m": 1, "n": 2}', "lacks k"),
        ('{"m": 1, "n": 2, "k": 3, "tile": 4}', "tile"),
        ('{"m": 1, "n": 2, "k": -3}', "k is -3"),
        ('{"m": 1, "n": 2, "k": "3"}', "k is '3'"),
        ("[1, 2, 3]", "JSON object"),
        ("1,2,3", "'1,2,3' is not JSON: Extra data, column 2"),
        ('{"m": 1, "n": 2, "k": 3, "layout": ["NN"]}', "layout"),
    ],
)
def test_invalid_line_is_named_with_its_rule(line: str, message: str) -> None:
    with pytest.raises(InputError, match=f"f.jsonl, line 2: |{message}") as caught:
        list(suites.read(['{"m": 1, "n": 2, "k": 3}', line], "f.jsonl"))
    assert "f.jsonl, line 2: " in str(caught.value)
    assert message in str(caught.value)


def test_negative_extent_of_a_column_major_case_is_refused() -> None:
    with pytest.raises(ShapeError):
        ColumnMajor(-1, 2, 3, False, False).row_major()


#: Table 5: N, P, Q, K, C, R, S; of Conv11 and Conv12 with K and P in their places
TABLE_5 = [
    (16, 79, 341, 32, 1, 5, 20),
    (16, 38, 166, 32, 32, 5, 10),
    (16, 24, 240, 32, 16, 3, 3),
    (16, 12, 120, 64, 32, 3, 3),
    (8, 54, 54, 64, 64, 3, 3),
    (8, 27, 27, 128, 128, 3, 3),
    (16, 14, 14, 48, 512, 5, 5),
    (16, 7, 7, 128, 832, 5, 5),
    (8, 112, 112, 128, 64, 3, 3),
    (8, 56, 56, 256, 128, 3, 3),
    (16, 174, 39, 128, 64, 5, 5),
    (16, 87, 19, 256, 128, 5, 5),
    (16, 7, 7, 512, 512, 3, 3),
    (16, 7, 7, 2048, 1024, 1, 1),
]


def test_isaac_of_conv_is_table_5() -> None:
    problems = [c.problem for c in suites.cases("isaac", "conv")]
    assert [(v.n, v.p, v.q, v.k, v.c, v.r, v.s) for v in problems] == TABLE_5


@pytest.mark.parametrize(("name", "count"), [("resnet50", 23), ("mobilenet", 30), ("unet", 23)])
def test_networks_have_each_distinct_layer_once(name: str, count: int) -> None:
    layers = suites.cases(name, "conv", layout="NHWC", dtype="f16")
    assert len(layers) == len({c.problem for c in layers}) == len({c.name for c in layers}) == count
    assert {c.problem.layout for c in layers} == {"NHWC"}


@pytest.mark.parametrize(("name", "mega"), [("resnet50", 4087), ("mobilenet", 299.5)])
def test_multiply_adds_of_networks_match_their_papers(name: str, mega: float) -> None:
    """Multiply-adds of an image, in millions, by all layers."""
    layers = operation_named("conv").suites[name].build.__wrapped__()  # type: ignore[attr-defined]
    assert sum(c.problem.flops for c in layers) / 2 / 32 / 1e6 == pytest.approx(mega, rel=0.002)


def test_layers_of_a_network_fit_together() -> None:
    layers = {c.name: c.problem for c in suites.cases("unet", "conv")}
    assert (layers["down 5b"].p, layers["up 4"].p, layers["last 1x1"].p) == (28, 28, 388)
    assert {v.direction for v in layers.values()} == {"forward", "input_grad"}
    assert {c.problem.direction for c in suites.cases("unet", "conv", direction="weight_grad")} == {"weight_grad"}


def test_names_of_a_conv_suite_differ() -> None:
    for name in operation_named("conv").suites:
        names = [c.name for c in suites.cases(name, "conv")]
        assert names
        assert len(names) == len(set(names)), name
    assert all(c.problem.flops < 1e6 for c in suites.cases("small", "conv"))


def test_file_has_one_operation() -> None:
    line = json.dumps({"n": 1, "c": 2, "h": 3, "w": 4, "k": 5, "r": 1, "s": 2, "stride": [1, 2]})
    [case] = suites.read([line], "f.jsonl", "conv", layout="NHWC")
    assert case.problem.key() == "conv N=1,C=2,H=3,W=4,K=5,R=1,S=2,stride=1x2 NHWC f32"
    with pytest.raises(InputError, match="operation is 'conv'; a command on gemm takes only gemm"):
        list(suites.read(['{"operation": "conv", "n": 1}'], "f.jsonl"))


def test_public_shapes_keep_their_own_type_layout_and_parts() -> None:
    gemms, convs, grouped = (suites.cases("public", of) for of in ("gemm", "conv", "grouped"))
    assert (len(gemms), len(convs), len(grouped)) == (32, 20, 4)
    assert len({c.name for c in (*gemms, *convs, *grouped)}) == 56
    assert gemms[0].problem == Gemm(3, 100, 100000, "TN", "bf16")
    assert {c.problem.layout for c in convs} == {"NCHW", "NHWC"}
    assert {c.problem.dtype for c in gemms} == {"bf16", "f16", "f32"}
    assert [sum(m for m, _, _ in c.problem.items) for c in grouped] == [128, 8192, 1536, 64]
    assert {c.problem.dtype for c in suites.cases("public", dtype="f64")} == {"f64"}


def test_resnext101_has_its_grouped_layers() -> None:
    problems = [c.problem for c in suites.cases("resnext101", "conv", dtype="f16")]
    grouped = [p for p in problems if p.groups == 32]
    assert {(p.c, p.k, p.h, p.stride[1], p.layout) for p in grouped} == {
        *((c, c, size, 1, "NHWC") for c, size in ((256, 56), (512, 28), (1024, 14), (2048, 7))),
        *((c, c, size, 2, "NHWC") for c, size in ((512, 56), (1024, 28), (2048, 14))),
    }
