"""The loop that measures ceilings: it computes the steps that it is said to compute."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ptxgen.cli import command
from ptxgen.codegen.config.config import parse_config
from ptxgen.emulator import launch
from ptxgen.lowering import step_rate
from ptxgen.lowering.lower import lower
from ptxgen.operations.task import step_loop
from ptxgen.operations.task.language.canonical import canonical
from ptxgen.operations.task.language.parser import parse
from ptxgen.operations.task.problem import Task
from ptxgen.operations.task.semirings import semiring_program
from ptxgen.operations.task.speed import least_us
from ptxgen.problem.device import device
from ptxgen.problem.operation import Case, Ceiling, MeasuredCeiling, operation_named
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning.measure import bench as bench_module

H100 = device("h100")
REDUCE = "where (i in [0, M], j in [0, N]) {{ reduce (k in [0, K]) {{ {} }} C[i,j] = accum; }}"
OTHERS = "accum += abs(A[i,k]-B[k,j])*v[k] + t[i]*s + w[i,j]*f32(j);"


def task(step: str, dtype: str = "f32") -> Task:
    types = {"A": dtype, "B": dtype} | {name: dtype for name in "vtsw" if f"*{name}" in step or f"{name}[" in step}
    return Task(64, 64, 64, dtype=dtype, text=canonical(parse(REDUCE.format(step), types)))


def staged(p: Task, type: Any) -> tuple[Any, Any]:
    """The elements of A and B in shared memory: buffer, step, row or column."""
    size, threads = np.dtype(type).itemsize, step_loop.threads_of(p)
    words = (0x3F800000 + np.arange(threads, dtype=np.uint32) * 77).astype(np.uint32)
    each = 2 * 4 * 128
    whole = np.tile(words, -(-2 * each * size // (threads * 4))).view(type)
    return whole[:each].reshape(2, 4, 128), whole[each : 2 * each].reshape(2, 4, 128)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_every_accumulator_has_all_steps_of_its_row_and_column(dtype: str) -> None:
    p = Task(64, 64, 64, dtype=dtype, text=canonical(semiring_program("max_plus", dtype)))
    type = {"f32": np.float32, "f64": np.float64}[dtype]
    threads = step_loop.threads_of(p)
    results, clocks, count = np.zeros(threads, type), np.zeros((1, 2), np.uint64), 3
    launch(step_loop.source_of(p, H100).text, step_loop.ENTRY, 1, threads, [results, clocks, np.uint32(count)], 0)
    a, b = staged(p, type)
    expected = np.empty(threads, type)
    for thread in range(threads):
        warp, lane = divmod(thread, 32)
        rows = warp % 4 * 32 + lane // 8 * 4 + np.array([0, 1, 2, 3, 16, 17, 18, 19])
        columns = warp // 4 % 2 * 64 + lane % 8 * 4 + np.array([0, 1, 2, 3, 32, 33, 34, 35])
        expected[thread] = (a[:, :, rows, None] + b[:, :, None, columns]).max()
    np.testing.assert_array_equal(results, expected)
    assert (clocks > 0).all()


@pytest.mark.parametrize("step", ["accum += abs(A[i,k]-B[k,j]);", OTHERS])
def test_instructions_are_those_of_the_table(step: str) -> None:
    p = task(step)
    source = step_loop.source_of(p, H100)
    results, clocks = np.zeros(512, np.float64), np.zeros((1, 2), np.uint64)
    counts = []
    for count in (1, 2):
        stats = launch(source.text, source.entries[0], 1, 512, [results, clocks, np.uint32(count)], 0)
        counts.append(stats.opcodes)
    more = counts[1] - counts[0]
    if step is not OTHERS:
        # of a warp: 64 results, 4 steps; abs is a modifier of the machine
        assert more["add.rn.f32"] + more["add.f32"] == more["sub.rn.f32"] == 16 * 64 * 4
    assert sum(n for name, n in more.items() if name.startswith("ld.shared.v4")) == 16 * 4 * 4
    assert "ld.global" not in str(more)


@pytest.mark.parametrize("dtype", ["f16", "s32", "u8"])
def test_loops_of_other_types_run(dtype: str) -> None:
    p = Task(64, 64, 64, dtype=dtype, text=canonical(semiring_program("max_min", dtype)))
    source = step_loop.source_of(p, H100)
    results, clocks = np.zeros(512, np.float64), np.zeros((1, 2), np.uint64)
    launch(source.text, source.entries[0], 1, 512, [results, clocks, np.uint32(2)], 0)
    assert results.view(np.uint32).any()


class StandInDriver(EmulatedDriver):
    """A GPU of 132 multiprocessors, whose loop takes so many cycles and nanoseconds."""

    clock = "hardware"
    cycles, ns = 2.0e7, 1.0e7

    def __init__(self) -> None:
        super().__init__()
        self.device = H100
        self.counts: list[int] = []

    def load(self, source: Any) -> Any:
        return SimpleNamespace(source=source)

    def launch(self, kernel: Any, step: Any, parameters: bytes, stream: int = 0) -> None:
        *_, (_, clocks), (_, count) = step.arguments
        self.counts.append(count)
        assert step.grid == (132, 1, 1)
        self.upload(clocks, np.tile(np.array([self.cycles, self.ns], np.uint64), (132, 1)))


def test_the_measured_ceiling_has_steps_and_the_clock_of_the_run() -> None:
    p = Task(4096, 4096, 4096, text=canonical(semiring_program("max_min", "f32")))
    driver: Any = StandInDriver()
    result = step_loop.measured(driver, p)
    assert result is not None
    assert driver.counts[0] * 512 * 256 == pytest.approx(2e7 * step_rate.ceiling(lower(p), H100), rel=0.01)
    assert result.clock == 2000
    assert result.steps == pytest.approx(32.0, rel=0.01)
    assert result.least_us == pytest.approx(least_us(p, H100) * 1980 / 2000, rel=0.01)
    assert step_loop.measured(driver, Task(64, 64, 64, dtype="f16")) is None  # tensor cores
    assert step_loop.measured(driver, Task(64, 64, 64)) is not None
    assert step_loop.measured(EmulatedDriver(), p) is None


def test_bench_compares_with_the_measured_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    p = Task(24, 20, 16, text=canonical(semiring_program("max_min", "f32")))
    task_ = operation_named("task")
    measured = MeasuredCeiling(5.0, 31.0, 1900.0)
    monkeypatch.setattr(bench_module, "operation_of", lambda problem: replace_ceiling(task_, measured))
    config = parse_config("ms=4 ns=4 ml=16 nl=32")
    choose = lambda problem, device: SimpleNamespace(config=config)  # noqa: E731
    [row] = bench_module.bench([Case("x", p)], EmulatedDriver(), choose, ceiling=True)
    assert row.measured_ceiling == measured
    assert row.measured_ceiling_share == 5.0 / row.us
    [row] = bench_module.bench([Case("x", p)], EmulatedDriver(), choose)
    assert row.measured_ceiling is None


def replace_ceiling(operation: Any, measured: MeasuredCeiling) -> Any:
    return replace(operation, ceiling=Ceiling(least_us, lambda driver, problem: measured))


def test_the_option_needs_a_gpu_and_an_operation_that_has_a_ceiling(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PTXGEN_DRIVER", "emulated")
    assert command.run(["bench", "task", "--suite", "small", "--device", "emulated", "--ceiling"])
    assert "its loop needs an NVIDIA GPU" in capsys.readouterr().err
    assert command.run(["bench", "gemm", "--shape", "8,8,8", "--device", "emulated", "--ceiling"])
    assert "ceiling is given; gemm has none, so it must be left out" in capsys.readouterr().err
