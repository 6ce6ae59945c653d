"""Kernels with resident rows: their rules, launches, and when they are chosen."""

from __future__ import annotations

import re

import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import ConfigError
from ptxgen.expr.node import variables
from ptxgen.families.common.rules import RULES
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.resident_rows.sum_bounds import bound_of
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.lower import lower
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import device
from ptxgen.tuning.selection import select
from tests.lowered import first_violation, require

H100 = device("h100")


def pairs(dtype: str = "f32", m: int = 100, n: int = 70, k: int = 3, output: str = "C[i]argmin=accum") -> Task:
    """Squared distances of ``m`` and ``n`` points, and what reduces them."""
    arrays = "".join(f"{name}:f32[{axes}];" for name, axes in (("t", "j"), ("u", "i,j")) if f"{name}[" in output)
    step = "accum+=(A[i,k]-B[k,j])*(A[i,k]-B[k,j])" if dtype != "f16" else "accum+=f32(A[i,k]-B[k,j])"
    head = f"A:{dtype}[i,k];B:{dtype}[k,j];{arrays}accum:{'f32' if dtype == 'f16' else dtype};"
    return Task(m, n, k, "NT", dtype, text=f"{head}where(i,j){{reduce(k){{{step};}}{output};}}")


def lowered(**fields: object) -> KernelProblem:
    return lower(pairs(**fields))  # type: ignore[arg-type]


CONFIG = "family=resident_rows resident_k=3"
BEST = "near[i].bottom(3,accum,j)"
#: a rule of the family -> problem, configuration that breaks it and none before it, words of the message
BREAKS = {
    "resident_rows_sink": [
        (lowered(output="C[j]argmin=accum"), CONFIG, "lists of pairs, and reductions or best values of rows")
    ],
    "resident_rows_types": [(lowered(dtype="f16"), CONFIG, "elements of type f16; registers hold")],
    "resident_rows_arrays": [(lowered(output="C[i]=max(C[i],accum+u[i,j])"), CONFIG, "read only A, B and numbers")],
    "resident_rows_k": [(lowered(k=4), CONFIG, "resident_k=3; it must be K, 4")],
    "resident_rows_copies": [
        (lowered(), f"{CONFIG} tile_columns=1024 row_warps=2", "tile_columns=1024 of 3 elements: a thread copies 48")
    ],
    "resident_rows_columns": [
        (lowered(), f"{CONFIG} tile_columns=4 columns_at_once=8", "columns_at_once=8; a tile of tile_columns=4")
    ],
    "resident_rows_lanes": [
        (
            lowered(output=BEST),
            f"{CONFIG} columns_at_once={columns} tile_columns={tile}",
            "each lane of a warp has as many",
        )
        for columns, tile in ((8, 512), (4, 64))
    ],
    "resident_rows_one_part": [
        (lowered(output=BEST, n=600), f"{CONFIG} column_parts=2", "it must be 1 for best values")
    ],
    "resident_rows_bounds": [
        (lowered(output=output), f"{CONFIG} lower_bounds=1", "sums must be those of squares of differences of f32")
        for output in (
            "C[i]argmax=accum",
            "C[i]argmin=accum*2.0",
            "accum>2.0?L.add(i,j)",
            "C[i]+=accum",
            "near[i].top(3,accum,j)",
        )
    ]
    + [(lowered(dtype="f64"), f"{CONFIG} lower_bounds=1", "lower_bounds=1; sums must be")],
    "resident_rows_extents": [(lowered(m=1 << 30), CONFIG, "less than 2147483648 elements")],
    "resident_rows_parts": [(lowered(n=300), f"{CONFIG} column_parts=3", "column_parts=3 of 300 columns")],
    "resident_rows_workspace": [
        (lowered(m=1 << 25, n=1024), f"{CONFIG} tile_columns=64 column_parts=16", "bytes of states; at most 1073741824")
    ],
}


@pytest.mark.parametrize("name", BREAKS)
def test_rules_name_what_they_refuse(name: str) -> None:
    for p, text, words in BREAKS[name]:
        broken = first_violation(p, parse_config(text), H100)
        assert broken is not None
        assert broken.name == name
        with pytest.raises(ConfigError, match=words):
            require(p, parse_config(text), H100)


def test_each_rule_is_broken() -> None:
    assert set(BREAKS) == {rule.name for rule in RULES if rule.family == "resident_rows"}


@pytest.mark.parametrize("fields", [{"n": 0}, {"m": 0}])
def test_launches_without_pairs(fields: dict[str, int]) -> None:
    """Rows without a pair have the state of no value, and no kernel runs for none."""
    p, config = lowered(), parse_config(CONFIG)
    launch = plan_for(p, config, H100).launch(lowered(**fields))
    assert [s.entry.rpartition("_")[2] for s in launch.steps] == (["join"] if fields == {"n": 0} else [])


@pytest.mark.parametrize(
    ("condition", "greatest"),
    [
        ("sqrt(accum)<s", "s"),
        ("s>=sqrt(accum) and accum>t", "s"),
        ("sqrt(accum)>s", None),
        ("accum<s", "s"),
        ("s>=accum", "s"),
        ("not (accum>s)", "s"),
        ("accum==s", "s"),
        ("accum<s or (accum==s and i<j)", "s"),
        ("accum>s and accum<t", "t"),
        ("accum<s or i<j", None),
        ("accum<f32(j)", None),
        ("accum>s", None),
    ],
)
def test_lists_have_a_greatest_sum(condition: str, greatest: str | None) -> None:
    text = "where(i,j){reduce(k){accum+=(A[i,k]-B[k,j])*(A[i,k]-B[k,j]);}%s?L.add(i,j);}" % condition  # noqa: UP031
    names = "".join(f"{x}:f32;" for x in "st" if re.search(rf"\b{x}\b", condition))
    p = lower(Task(100, 70, 3, "NT", text=f"A:f32[i,k];B:f32[k,j];{names}accum:f32;{text}"))
    bound = bound_of(p)
    assert (bound is None) == (greatest is None)
    if bound is not None:
        (name,) = variables(bound)
        assert [s.name for s in p.sink.scalars].index(name) == ("st".index(str(greatest)) if "t" in names else 0)


def test_small_k_is_computed_by_rows_in_registers() -> None:
    """Others have tiles of both, and reduce across threads."""
    for k, chosen in ((3, "resident_rows"), (256, "simt")):
        best, *_ = select(pairs(m=1 << 16, n=1 << 16, k=k), H100)
        assert f"family={chosen}" in str(best.config)
