"""Runs of generated kernels on the emulated device, with guards around memory that they must not touch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch
from zlib import crc32

import numpy as np

from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.emulator import Stats
from ptxgen.errors import DtypeError
from ptxgen.operations.conv import checks as conv_check
from ptxgen.operations.gemm import checks as gemm_check
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.operations.gemm.strided_arrays import elements, extent, padded
from ptxgen.operations.grouped import checks as grouped_check
from ptxgen.operations.spmm import checks as spmm_check
from ptxgen.operations.task import checks as task_check
from ptxgen.operations.task.problem import Task
from ptxgen.problem.device import Device, device
from ptxgen.problem.epilogue_ops import epilogue_rows
from ptxgen.problem.reference import Array, compare, operands, reference, wide
from ptxgen.problem.registry import Problem
from ptxgen.runtime.check import CASES, CheckResult, check
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from ptxgen.runtime.workspace import Workspace
from tests.cases.source import pairs

GUARD = 0xFF  #: fills memory outside the elements: NaN in every floating-point type


class Placed:
    """One operand in an allocation of its own: rows and items at the problem's strides, nothing after the last element.
    ``shift``: it begins ``aligned`` bytes past a multiple of 16 instead, between guards."""

    def __init__(self, driver: EmulatedDriver, p: Gemm, operand: int, array: Array, aligned: int, shift: bool) -> None:
        self.driver, self.p, self.operand, self.dtype = driver, p, operand, array.dtype
        size = array.dtype.itemsize
        span = extent(p, operand)
        self.first = 64 + aligned % 16 if shift else 0
        self.own = np.zeros(span, bool)
        self.image = np.full(self.first + span * size + (64 if shift else 0), GUARD, np.uint8)
        self.body = slice(self.first, self.first + span * size)
        if array.size:
            elements(p, operand, self.own)[...] = True
            memory = np.full(span * size, GUARD, np.uint8).view(array.dtype)
            elements(p, operand, memory)[...] = array
            self.image[self.body] = memory.view(np.uint8)
        self.array = self._elements(self.image)  # items that share memory contain the last of them
        self.start = driver.allocate(len(self.image))
        driver.machine.write(self.start, self.image)
        self.address = self.start + self.first

    def _elements(self, image: Array) -> Array:
        if not len(self.own):
            return np.zeros(self.p.stored[self.operand], self.dtype)
        return elements(self.p, self.operand, image[self.body].view(self.dtype)).copy()

    def read(self) -> Array:
        """The elements now. AssertionError: memory between or around them has changed."""
        now = np.frombuffer(self.driver.machine.read(self.start, len(self.image)), np.uint8)
        free = np.ones(len(now), bool)
        free[self.body] = np.repeat(~self.own, self.dtype.itemsize)
        assert np.array_equal(now[free], self.image[free]), "written where no element is"
        return self._elements(now)


def execute(
    p: Gemm,
    c: Config,
    arrays: tuple[Array, Array, Array],
    alpha: complex = 1.0,
    beta: complex = 0.0,
    *,
    on: str | Device = "emulated",
    shift: bool = False,
    times: int = 1,
    stats: list[Stats] | None = None,
    **options: Any,
) -> Array:
    """C after ``times`` launches of ``c`` on ``p``; A, B and all bytes outside the elements must not change. ``on``:
    the device that is generated for; ``options`` go to the emulated machine."""
    driver = EmulatedDriver(device(on) if isinstance(on, str) else on, **options)
    if stats is not None:
        launch = driver.machine.launch
        driver.machine.launch = lambda *args, **named: stats.append(launch(*args, **named)) or stats[-1]
    runner = Runner.of(driver, p, c)
    facts = zip(arrays, (p.aligned_a, p.aligned_b, p.aligned_c), strict=True)
    placed = [Placed(driver, p, i, array, aligned, shift) for i, (array, aligned) in enumerate(facts)]
    go = runner.bind({name: x.address for name, x in zip("ABC", placed, strict=True)}, alpha, beta)
    for _ in range(times):
        go()
    for x in placed[:2]:
        assert np.array_equal(x.read().view(np.uint8), x.array.view(np.uint8)), "an input has changed"
    if runner.launch.zeroed:
        flags = np.empty(runner.launch.workspace, np.uint8)
        driver.download(runner.workspace.address(runner.launch), flags)
        assert not flags.any(), "a flag is still raised"
    return placed[2].read()


def inputs(p: Gemm, distribution: str, seed: int, beta: float) -> tuple[Array, Array, Array]:
    """Operands; C is poisoned where it must not be read."""
    a, b, c = operands(p, seed, distribution).values()
    return a, b, np.full_like(c, p.output.poison) if beta == 0 else c


def verify(
    p: Gemm,
    c: Config,
    distribution: str = "normal",
    alpha: complex = 1.0,
    beta: complex = 0.0,
    data: int = 0,
    arrays: tuple[Array, Array, Array] | None = None,
    **how: Any,
) -> Array:
    """Executes, compares with the reference, and returns the result. ``data``: the seed of the operands."""
    arrays = arrays or inputs(p, distribution, data, beta)
    assert [x.shape for x in arrays] == list(p.stored)
    out = execute(p, c, arrays, alpha, beta, **how)
    if p.batch != 1:  # items may share memory
        stored = padded(p, dict(zip("ABC", arrays, strict=True)))
        a, b = elements(p, 0, stored["A"]), elements(p, 1, stored["B"])
        arrays = a, b, arrays[2]
    ref = reference(p, dict(zip("ABC", arrays, strict=True)), alpha, beta)
    deviation = compare(out, ref)
    what = f"{p.key()} | {c} | {distribution}, alpha={alpha}, beta={beta}, {how}"
    assert deviation.ok, f"{deviation}: {what}"
    if distribution == "integers":
        assert np.array_equal(wide(out), ref.rounded), f"not exact: {what}"
    return out


def some_cases(n: int) -> tuple[tuple[str, float, float, str], ...]:
    """A kind of input of ``check``: integers for every second ``n``, else one of the others in turn."""
    return (CASES[1 + n // 2 % (len(CASES) - 1)] if n % 2 else CASES[0],)


@contextmanager
def checked_with(cases: tuple[tuple[str, float, float, str], ...]) -> Iterator[None]:
    """Within the block, ``check`` has these kinds of input; not that of tasks."""
    with ExitStack() as patches:
        for module in (gemm_check, conv_check, grouped_check, spmm_check):
            patches.enter_context(patch.object(module, "CASES", cases))
        yield


def check_some(driver: EmulatedDriver, p: Problem, c: Config, seed: int = 0, row_padding: int = 0) -> list[CheckResult]:
    """``check`` with one of its kinds of input. The problem, the configuration and the seed decide which, so that the
    cases of a test have all of them together, and half of the cases have exact results."""
    n = crc32(f"{p.key()} {c} {seed}".encode())
    names = task_check.input_names(p) if isinstance(p, Task) else ()
    exact, others = names[:-2], names[-2:]  # "normal" and "special"
    with checked_with(some_cases(n)), ExitStack() as patches:
        if names:
            kinds = (exact, others)[n % 2]
            chosen = (kinds[n // 2 % len(kinds)],)
            patches.enter_context(patch.object(task_check, "input_names", lambda _: chosen))
        return check(driver, p, c, seed, row_padding)


def right(
    p: Problem,
    c: Config | str,
    seed: int = 0,
    on: str | Device = "h200",
    cases: tuple[tuple[str, float, float, str], ...] | None = None,
) -> None:
    """Asserts that ``check`` accepts a configuration, or its text. ``cases``: the kinds of input; None: one, which the
    problem, the configuration and the seed decide."""
    chosen = parse_config(c) if isinstance(c, str) else c
    target = device(on) if isinstance(on, str) else on
    driver = EmulatedDriver(target, seed=seed)
    with checked_with(cases or some_cases(crc32(f"{p.key()} {chosen} {seed}".encode()))):
        results = (check_some if isinstance(p, Task) else check)(driver, p, chosen, seed)
    assert results
    for result in results:
        assert result.ok, f"{p.key()} | {chosen} | {result.inputs}: {result.deviation}"


def random_epilogues(
    seed: int,
    count: int,
    problem: Callable[[np.random.Generator], Gemm],
    config: Callable[[Gemm, np.random.Generator], Config | None],
    on: str = "emulated",
) -> None:
    """Checks ``count`` random cases with random epilogues."""
    rng = np.random.default_rng(seed)

    def draw() -> Gemm | None:
        stages = [row[rng.integers(len(row))] for row in epilogue_rows() if rng.random() < 0.6]
        try:
            return replace(problem(rng), epilogue=",".join(stages))
        except DtypeError:  # gelu and silu of f64, anything of integers
            return None

    for n, (p, c) in enumerate(pairs(count, draw, lambda p: config(p, rng)), 1):
        right(p, c, n, on)


__all__ = [
    "GUARD",
    "Placed",
    "Workspace",
    "check_some",
    "execute",
    "inputs",
    "random_epilogues",
    "right",
    "some_cases",
    "verify",
]
