"""Columns of bench for tasks, random tasks, and what the model knows of them."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from ptxgen.cli import command, report
from ptxgen.families.common.features import all_names
from ptxgen.lowering import step_rate
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.task.features import FEATURES
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.random_problems import RANDOM_PROBLEMS
from ptxgen.operations.task.semirings import semiring_program
from ptxgen.operations.task.speed import SPR, least_us
from ptxgen.operations.task.suites import DISTANCES, QUERIES, distance_text, typed_text
from ptxgen.problem.device import device
from ptxgen.problem.operation import FLOPS, operation_named
from ptxgen.problem.registry import parse
from ptxgen.tuning.collect.problem_groups import kernel_class
from ptxgen.tuning.draws import Limits
from ptxgen.tuning.problem_generator import ProblemGenerator, generators
from ptxgen.tuning.store.database import Database

H100 = device("h100")


def max_min(m: int, n: int, k: int, dtype: str = "f32") -> Task:
    return Task(m, n, k, dtype=dtype, text=canonical(semiring_program("max_min", dtype)))


def text_of(text: str) -> str:
    """The text with the names of roles."""
    return Task(8, 8, 8, text=text).text


def test_the_speed_of_tasks_is_spr_and_of_others_tflops() -> None:
    assert SPR.of(Task(1000, 1000, 1000), 1e6) == 1.0
    assert SPR.of(Task(1000, 500, 2000, batch=3), 2e6) == 1.5
    assert operation_named("task").speed is SPR
    assert operation_named("gemm").speed is FLOPS
    assert FLOPS.of(Gemm(1000, 1000, 1000), 2000.0) == 1.0
    assert FLOPS.cell(Gemm(1, 1, 1), 0.0) == FLOPS.cell(Gemm(1, 1, 1), float("inf")) == 0.0


def test_the_ceiling_is_the_time_of_the_instructions_at_the_clock_of_the_device() -> None:
    p = max_min(4096, 4096, 4096)
    steps = step_rate.ceiling(lower(p), H100)
    assert least_us(p, H100) == pytest.approx(4096**3 / (steps * 132 * 1980))
    assert least_us(Task(512, 512, 512, dtype="f16"), H100) == pytest.approx(512**3 / (2048 * 132 * 1980))


def bench_document(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> Any:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    assert command.run(["bench", *words, "--device", "emulated", "--config", "ms=4 ns=4 ml=16 nl=32", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_bench_has_spr_and_the_share_of_the_ceiling(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    p = max_min(24, 20, 16)
    document = bench_document(capsys, monkeypatch, "task", "--task", p.text, "--shape", "24,20,16")
    [row] = document["rows"]
    assert "tflops" not in row
    assert row["spr"] == pytest.approx(24 * 20 * 16 / row["us"] * 1e-3)
    assert row["ceiling_share"] == pytest.approx(least_us(p, device("emulated")) / row["us"])
    assert row["measured_ceiling_share"] is None
    table = report.bench_text(document)[0]
    assert {"SPR", "of ceiling"} <= set(table.titles)
    assert "TFLOP/s" not in table.titles
    shown = table.text().splitlines()[0]
    assert "of ceiling" in shown
    assert "of measured" not in shown


def test_bench_of_products_keeps_its_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    document = bench_document(capsys, monkeypatch, "gemm", "--shape", "24,20,16")
    [row] = document["rows"]
    assert row["tflops"] == pytest.approx(2 * 24 * 20 * 16 / row["us"] * 1e-6)
    assert row["ceiling_share"] is None
    shown = report.bench_text(document)[0].text().splitlines()[0]
    assert "TFLOP/s" in shown
    assert "ceiling" not in shown


# ---- random tasks


def test_default_mixtures_have_no_tasks() -> None:
    assert (
        set(RANDOM_PROBLEMS) == {"task_semiring", "task_distance", "task_query", "task_one_array"} <= set(generators())
    )
    assert not any(isinstance(p, Task) for p in islice(ProblemGenerator(0), 100))


@pytest.mark.parametrize("generator", RANDOM_PROBLEMS)
def test_kinds_draw_programs_types_layouts_and_extents(generator: str) -> None:
    problems: list[Any] = list(islice(ProblemGenerator(3, {generator: 1}, limits=Limits(2048)), 60))
    assert {p.dtype for p in problems} == {"f16", "bf16", "f32", "f64"}
    one = generator == "task_one_array"
    assert {p.layout for p in problems} == ({"NT", "TN"} if one else {"NN", "NT", "TN", "TT"})
    assert len({(p.m, p.n, p.k) for p in problems}) > 50
    assert not one or all(p.mirrored for p in problems)
    assert any(p.m % 8 == p.n % 8 == p.k % 8 == 0 for p in problems)
    assert all(parse(p.key()) == p for p in problems)
    programs = {p.text for p in problems if p.dtype == "f32"}
    if generator == "task_distance":
        assert programs == {text_of(typed_text(distance_text(name), "f32")) for name in DISTANCES}
    elif one:
        assert text_of(typed_text(distance_text("l1", True), "f32")) in programs
    elif generator == "task_query":
        assert text_of(typed_text(QUERIES["q1"], "f32")) in programs
    else:
        assert canonical(semiring_program("max_min", "f32")) in programs


@pytest.mark.parametrize("name", RANDOM_PROBLEMS)
def test_groups_of_tasks_share_kernels(name: str) -> None:
    generator = ProblemGenerator(2, {name: 1}, limits=Limits(512), group=6)
    group: list[Any] = [generator.problem(i) for i in range(6)]
    assert len(set(group)) == 6
    assert len({p.text for p in group}) == 1
    assert len({kernel_class(p) for p in group}) == 1


def test_collect_measures_tasks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    path = tmp_path / "tuning.sqlite"
    words = ["collect", "--database", str(path), "--problems", "4", "--mixture", ",".join(RANDOM_PROBLEMS)]
    code = command.run([*words, "--dtypes", "f16,f32", "--configurations", "2", "--jobs", "1", "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert set(json.loads(printed.out)["outcomes"]) == {"ok"}
    with Database(path, readonly=True) as database:
        rows = list(database.measurements())
    assert rows
    assert all(isinstance(m.problem, Task) and m.speed == pytest.approx(SPR.of(m.problem, m.us)) for m in rows)


# ---- features


def test_features_count_instructions_inputs_and_the_output() -> None:
    def of(p: Task) -> dict[str, float]:
        return {name: x for name, value in FEATURES.items() if (x := value(p))}

    assert set(FEATURES) <= set(all_names())
    assert of(Task(8, 8, 8)) == {"step_fma": 1}
    assert of(max_min(8, 8, 8)) == {"step_alu": 2}
    q1 = Task(8, 8, 8, text=typed_text(QUERIES["q1"], "f32"))
    assert of(q1) == {"step_fma": 3, "step_alu": 1, "step_vectors": 1, "task_inputs": 1}
    assert of(max_min(8, 8, 8, "f64"))["step_fp64"] > 1
    assert dict(lower(q1).features)["step_fma"] == 3
