"""Runs of generated kernels on the emulated device, in memory that shows what they must not touch."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.config import Config
from ptxgen.device import device
from ptxgen.drivers.emulated import EmulatedDriver
from ptxgen.emulator import Stats
from ptxgen.problem import Gemm
from ptxgen.reference import Array, compare, operands, reference
from ptxgen.runner import Runner, Workspace

GUARD = 0xFF  #: fills what is nobody's: NaN in every floating-point type


class Placed:
    """One operand in an allocation of its own: rows as far apart as ``ld`` says, nothing after the last element.

    ``shift``: it begins ``aligned`` bytes past a multiple of 16 instead, between guards.
    """

    def __init__(self, driver: EmulatedDriver, array: Array, ld: int, aligned: int, shift: bool) -> None:
        self.driver, self.array, size = driver, array, array.dtype.itemsize
        rows, columns = array.shape
        self.width, self.pitch = columns * size, ld * size
        span = (rows - 1) * self.pitch + self.width if array.size else 0
        self.first = 64 + aligned % 16 if shift else 0
        self.image = np.full(self.first + span + (64 if shift else 0), GUARD, np.uint8)
        self.own = np.zeros(len(self.image), bool)
        if array.size:
            body = array.view(np.uint8).reshape(rows, self.width)
            for r in range(rows):
                at = self.first + r * self.pitch
                self.image[at : at + self.width] = body[r]
                self.own[at : at + self.width] = True
        self.start = driver.allocate(len(self.image))
        driver.machine.write(self.start, self.image)
        self.address = self.start + self.first

    def read(self) -> Array:
        """What the elements are now. AssertionError: something between or around them has changed."""
        now = np.frombuffer(self.driver.machine.read(self.start, len(self.image)), np.uint8)
        assert np.array_equal(now[~self.own], self.image[~self.own]), "written where no element is"
        return now[self.own].view(self.array.dtype).reshape(self.array.shape)


def execute(
    p: Gemm, c: Config, arrays: tuple[Array, Array, Array], alpha: float = 1.0, beta: float = 0.0, *, on: str = "emulated",
    shift: bool = False, times: int = 1, stats: list[Stats] | None = None, **options: Any,
) -> Array:  # fmt: skip
    """C after ``times`` launches of ``c`` on ``p``; A and B must stay, and everything that is no element.

    ``on``: the device that is generated for; ``options`` go to the emulated machine.
    """
    driver = EmulatedDriver(device(on), **options)
    if stats is not None:
        launch = driver.machine.launch
        driver.machine.launch = lambda *args: stats.append(launch(*args)) or stats[-1]
    runner = Runner.of(driver, p, c)
    facts = zip(arrays, (p.lda, p.ldb, p.ldc), (p.aligned_a, p.aligned_b, p.aligned_c), strict=True)
    placed = [Placed(driver, array, ld, aligned, shift) for array, ld, aligned in facts]
    go = runner.bind(*(x.address for x in placed), alpha, beta)
    for _ in range(times):
        go()
    for x in placed[:2]:
        assert np.array_equal(x.read().view(np.uint8), x.array.view(np.uint8)), "an input has changed"
    if runner.launch.zeroed:
        flags = np.empty(runner.launch.workspace, np.uint8)
        driver.download(runner.workspace.address(runner.launch), flags)
        assert not flags.any(), "a flag is still raised"
    return placed[2].read()


def inputs(p: Gemm, kind: str, seed: int, beta: float) -> tuple[Array, Array, Array]:
    """Operands; C is NaN where it must not be read."""
    a, b, c = operands(p, seed, kind)
    return a, b, np.full_like(c, np.nan) if beta == 0 else c


def verify(p: Gemm, c: Config, kind: str = "normal", alpha: float = 1.0, beta: float = 0.0, data: int = 0,
           arrays: tuple[Array, Array, Array] | None = None, **how: Any) -> Array:  # fmt: skip
    """Executes and compares; the result. ``data``: the seed of the operands."""
    arrays = arrays or inputs(p, kind, data, beta)
    assert [x.shape for x in arrays] == list(p.stored)
    out = execute(p, c, arrays, alpha, beta, **how)
    ref = reference(p, *arrays, alpha, beta)
    found = compare(out, ref)
    what = f"{p.key()} | {c} | {kind}, alpha={alpha}, beta={beta}, {how}"
    assert found.ok, f"{found}: {what}"
    if kind == "integers":
        assert np.array_equal(out.astype(np.float64), ref.exact), f"not exact: {what}"
    return out


__all__ = ["GUARD", "Placed", "Workspace", "execute", "inputs", "verify"]
