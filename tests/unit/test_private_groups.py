"""Kernels with private groups: which problems they compute, their rules, launches and predicted times."""

from __future__ import annotations

from typing import Any

import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import ConfigError
from ptxgen.families.common.rules import RULES
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.element_groups import ElementGroups
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.lower import lower
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.suites import GROUPS, QUERIES, typed_text
from ptxgen.operations.task.sum_parts import parts_of
from ptxgen.problem.device import device
from ptxgen.tuning.selection import select
from tests.lowered import first_violation, require

H100 = device("h100")


def element_groups(
    type: str = "f32", value: str = "x[i,j]", rows: bool = True, n: int = 70, count: int = 5
) -> KernelProblem:
    """Sums of elements in ``count`` groups of 100 rows, or of ``n`` columns."""
    groups = f"{count},{n}" if rows else f"100,{count}"
    return lower(Task(100, n, 0, text=text_of(rows, type, value), groups=groups))


def text_of(rows: bool, type: str = "f32", value: str = "x[i,j]") -> str:
    key, target = ("i", "g[i],j") if rows else ("j", "i,g[j]")
    head = f"A:f32[i,k];B:f32[k,j];g:s32[{key}];x:{type}[i,j];"
    return f"{head}where(i,j){{reduce(k){{accum+=A[i,k]*B[k,j];}}C[{target}]+={value};}}"


#: a rule of the family -> problem, configuration that breaks it and none before it, device, words of the message
BREAKS = {
    "private_groups_types": [
        (element_groups("bf16", "f32(bf16(x[i,j]*x[i,j]))"), "family=private_groups", "t4", "sm_75 has no instruction"),
    ],
    "private_groups_pitch": [
        (element_groups(n=1 << 30), "family=private_groups", "h200", "rows of 1073741824 elements of f32"),
    ],
    "private_groups_count": [(element_groups(count=641), "family=private_groups", "h200", "641 groups; a multi")],
    "private_groups_vec": [
        (element_groups(), "family=private_groups array_vec=8", "h200", "array_vec=8 elements of f32"),
        (
            element_groups("s8", "s32(x[i,j])"),
            "family=private_groups array_vec=8",
            "h200",
            "array_vec=8 elements of s8",
        ),
    ],
    "private_groups_wide_values": [
        (
            element_groups("f16", "f32(x[i,j])"),
            "family=private_groups array_vec=8",
            "h200",
            "array_vec=8 values of f32; a lane stores at most 16 bytes",
        ),
    ],
    "private_groups_rows": [(element_groups(), "family=private_groups warp_rows=2", "h200", "warp_rows=2: a warp")],
    "private_groups_loads": [
        (
            element_groups(rows=False),
            "family=private_groups loads=32 array_vec=4 warp_rows=2",
            "h200",
            "256 registers of elements in flight",
        ),
    ],
    "private_groups_workspace": [
        (
            element_groups(n=1 << 24),
            "family=private_groups kg=4",
            "h200",
            "kg=4 slices take 1342177312 bytes of workspace",
        ),
    ],
    "private_groups_slices": [
        (element_groups(rows=False), "family=private_groups kg=4", "h200", "kg=4 slices of 3 rows, or vectors"),
    ],
}


@pytest.mark.parametrize("name", BREAKS)
def test_rules_reject_what_they_say(name: str) -> None:
    for p, text, gpu, words in BREAKS[name]:
        broken = first_violation(p, parse_config(text), device(gpu))
        assert broken is not None
        assert broken.name == name
        with pytest.raises(ConfigError) as error:
            require(p, parse_config(text), device(gpu))
        assert words in str(error.value)


def test_every_rule_has_an_example() -> None:
    assert set(BREAKS) == {rule.name for rule in RULES if rule.family == "private_groups"}


def test_problems_of_the_family() -> None:
    """Values of one array, one key, an element of the result for each index of the other axis, no condition."""
    body = "reduce(k){accum+=A[i,k]*B[k,j];}"
    given = "A:f32[i,k];B:f32[k,j];g:s32[i];h:s32[j];x:f32[i,j];y:f32[i,j];s:f32;"

    def form(output: str, groups: str = "5,70", when: str = "") -> Any:
        heads = [
            y for y in given.split(";") if y and (y[0] in "AB" or f"{y[0]}[" in output + when or f"*{y[0]}" in output)
        ]
        text = f"{';'.join(heads)};where(i,j){when}{{{body}{output};}}"
        forms = lower(Task(100, 70, 3, text=text, groups=groups)).forms
        return forms[0].sink if forms else None

    rows, columns = form("C[g[i],j]+=x[i,j]"), form("C[i,h[j]]max=abs(x[i,j])", "100,5")
    assert isinstance(rows, ElementGroups)
    assert (rows.by_rows, rows.count, columns.by_rows, columns.count) == (True, 5, False, 5)
    for output, groups in (
        ("C[g[i],h[j]]+=x[i,j]", "5,5"),
        ("C[g[i],j]+=x[i,j]*accum", "5,70"),
        ("C[g[i],j]+=x[i,j]+y[i,j]", "5,70"),
        ("C[g[i],j]+=x[i,j]*s", "5,70"),
        ("C[g[i],j]+=accum", "5,70"),
        ("C[g[i],j]+=x[i,j]", "5,71"),
        ("C[j,g[i]]+=x[i,j]", "70,5"),
    ):
        assert form(output, groups) is None, output
    assert form("C[g[i],j]+=x[i,j]", when="when(i<j)") is None


def test_launches() -> None:
    """One kernel, without a reset, and another one if there are slices, which join them in the workspace."""
    for rows in (True, False):
        p = element_groups(rows=rows)
        plan = plan_for(p, parse_config("family=private_groups copy_warps=2 array_vec=2"), H100)
        [step] = plan.launch(p).steps
        assert step.grid == ((2, 1, 1) if rows else (50, 1, 1))
        assert step.shared == plan.shared == 2 * ((5 + 1) * 32 * 4 * (2 if rows else 1) + 8)
        plan = plan_for(p, parse_config("family=private_groups copy_warps=2 kg=2"), H100)
        launch = plan.launch(p)
        assert [x.entry for x in launch.steps] == ["task_f32_nn", "task_f32_nn_join"]
        assert launch.steps[0].grid[1] == 2
        results = 5 * 70 if rows else 100 * 5
        assert launch.workspace == -(-2 * 4 * results // 16) * 16 + 2 * 8


@pytest.mark.parametrize("count", [2, 16, 128, 512])
@pytest.mark.parametrize("rows", [True, False])
def test_large_arrays_in_few_groups_take_the_family(rows: bool, count: int) -> None:
    """The bytes of the array bound the times of all families."""
    p = element_groups(rows=rows, n=1 << 18, count=count)
    assert p.bytes > 100 * 4 << 18
    [chosen] = select(
        Task(4096, 4096, 0, text=text_of(rows), groups=f"{count},4096" if rows else f"4096,{count}"), H100
    )
    assert chosen.config.family == "private_groups"


@pytest.mark.parametrize("n", [4096, 16384])
def test_sums_of_the_queries_are_predicted_near_the_bandwidth(n: int) -> None:
    p = Task(n, n, n, text=typed_text(QUERIES["q2"], "f32"), groups=GROUPS)
    parts = parts_of(p)
    assert parts is not None
    for part in parts.steps[:2]:
        [chosen] = select(part.problem, H100)
        assert chosen.config.family == "private_groups"
        assert n * n * 4 / (H100.bandwidth * 1e3) < chosen.us < 1.25 * n * n * 4 / (H100.bandwidth * 1e3) + 3
