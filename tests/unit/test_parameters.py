"""Kernel parameters: one row declares a parameter and gives its value."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ptxgen.codegen.parts.parameters import (
    ParameterList,
    Parameters,
    TensorMaps,
    addresses,
    given,
    on_one_line,
)
from ptxgen.codegen.source import Launch, Step
from ptxgen.lowering.kernel_problem import Operand
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.runtime.packed_step import pack

TEMPLATES = Path(__file__).parents[2] / "templates"
ROWS = ParameterList(
    [
        given("u64", "A", "W"),
        Parameters("u32", ("M", "N"), lambda x: (x, 2 * x)),
        Parameters("u32", (), lambda x: 1 / 0),
        Parameters("u64", ("far",), lambda x: (x << 40,), same_line=True),
        given("f32", "alpha"),
    ]
)


def test_lines_and_arguments_are_those_of_the_rows() -> None:
    assert ROWS.declarations == [
        ".param .u64 A, .param .u64 W,",
        ".param .u32 M, .param .u32 N, .param .u64 far,",
        ".param .f32 alpha",
    ]
    assert ROWS.arguments(3) == (
        ("u64", "A"),
        ("u64", "W"),
        ("u32", 3),
        ("u32", 6),
        ("u64", 3 << 40),
        ("f32", "alpha"),
    )
    assert ParameterList(on_one_line(ROWS)).declarations == [", ".join(line.rstrip(",") for line in ROWS.declarations)]
    assert ParameterList().declarations == []


def test_every_name_has_a_value() -> None:
    with pytest.raises(ValueError, match="zip"):
        ParameterList([Parameters("u32", ("M", "N"), lambda x: (x,))]).arguments(1)


def test_tensor_maps_may_be_arrays() -> None:
    maps = TensorMaps("map", ("map_x",), lambda x: x, count=2)
    assert ParameterList([maps]).declarations == [".param .align 64 .b8 map_x[256]"]
    assert ParameterList([maps]).arguments(("first", "second")) == (("map", "first"), ("map", "second"))


def test_a_caller_may_supply_everything() -> None:
    assert ROWS.names == ["A", "W", "M", "N", "far", "alpha"]
    assert ROWS.by_name[2:4] == (("u32", "M"), ("u32", "N"))


def test_a_problem_names_its_operands() -> None:
    """A sparse matrix has three arrays; no other code knows."""
    p = lower(Gemm(4, 4, 4, epilogue="bias_column"))
    b = p.operand("B")
    sparse = (*(Operand(name, "s32", b.access) for name in ("indptr", "indices")), Operand("values", "f32", b.access))
    p = replace(p, operands=(*sparse, b))
    rows = ParameterList(addresses(p))
    assert rows.declarations == [
        ".param .u64 indptr, .param .u64 indices, .param .u64 values, .param .u64 B, .param .u64 C, .param .u64 W,",
        ".param .u64 bias",
    ]
    launch = Launch((Step("spmm", (1, 1, 1), arguments=rows.arguments(p)),))
    names = ("values", "indices", "indptr", "B", "C", "bias")
    ((step, parameters),) = (pack(step, names, {}, lambda m, at: b"") for step in launch.steps)
    at = dict(zip(names, range(1, 7), strict=True))
    assert parameters(tuple(at.values())) == step.pack(at | {"W": 0})
    (bound,) = launch.bound_to({"values": "A"}).steps
    assert bound.arguments[2] == ("u64", "A")


def test_templates_declare_no_parameter() -> None:
    """The rows of the parts are the only declarations."""
    declared = re.compile(r"(?<!ld)\.param \.")
    declaring = [str(path) for path in TEMPLATES.rglob("*.mako") if declared.search(path.read_text())]
    assert not declaring
