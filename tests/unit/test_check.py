"""``ptxgen.check``: its cases, and the errors that it finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.errors import ConfigError, RaceFault
from ptxgen.operations.gemm import checks as module
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.runtime.check import CASES, check
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner

SMALL = parse_config("ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 stages=2")
P = Gemm(20, 18, 40, "NT")


class Driver(EmulatedDriver):
    """The emulated device, which can be made to write other bytes into C."""

    def __init__(self, corrupt=None) -> None:
        super().__init__()
        self.corrupt, self.held = corrupt, set()

    def allocate(self, size):
        address = super().allocate(size)
        self.held.add(address)
        return address

    def release(self, address):
        self.held.discard(address)
        super().release(address)

    def download(self, address, array):
        super().download(address, array)
        if self.corrupt is not None:
            self.corrupt(array)


def test_right_kernel_passes_every_case():
    driver = Driver()
    deviation = check(driver, P, SMALL)
    assert all(r.ok for r in deviation)
    assert [r.inputs for r in deviation] == [
        "integers",
        "normal",
        "scaled",
        "positive",
        "normal, alpha=-1.5, beta=0.75",
    ]
    assert len(deviation) == len(CASES)
    assert deviation[0].deviation.ratio == 0
    assert not driver.held
    assert all(r.ok for r in check(driver, replace(P, lda=44, ldb=42, ldc=20), SMALL, seed=3))
    assert all(r.ok for r in check(driver, P, SMALL, row_padding=3))


@pytest.mark.parametrize("where", [(0, 0), (19, 17), (7, 3)])
def test_position_of_a_wrong_element_is_reported(where):
    def corrupt(c):
        c[where] += 1.0

    deviation = check(Driver(corrupt), P, SMALL)
    assert not any(r.ok for r in deviation[:2])
    assert all(r.deviation.where == where for r in deviation[:2])


def test_small_error_fails_where_sums_are_exact():
    def corrupt(c):
        c[2, 2] = np.nextafter(c[2, 2], np.float32(np.inf))

    deviation = check(Driver(corrupt), P, SMALL)
    assert [r.ok for r in deviation] == [False, True, True, True, True]


@pytest.mark.parametrize("row_padding", [0, 2])
def test_write_between_rows_is_found(row_padding):
    """With padding that the problem has, or that the check adds."""

    def corrupt(c):
        c[4, 18] = 0.0

    p = P if row_padding else replace(P, ldc=20)
    deviation = check(Driver(corrupt), p, SMALL, row_padding=row_padding)
    assert not any(r.ok for r in deviation)
    assert deviation[0].deviation.where == (-1, -1)


def test_nan_left_in_c_is_found():
    def corrupt(c):
        c[3, 3] = np.nan

    assert not any(r.ok for r in check(Driver(corrupt), P, SMALL))


def test_illegal_configuration_is_refused():
    with pytest.raises(ConfigError):
        check(Driver(), P, replace(SMALL, lanes_m=32))
    with pytest.raises(ConfigError):  # row padding limits the width of vectors
        check(Driver(), Gemm(16, 16, 16), replace(SMALL, vec_a=4), row_padding=1)


def test_memory_is_freed_after_a_fault(monkeypatch):
    def launch(self, *args):
        raise RaceFault("two warps")

    driver = Driver()
    monkeypatch.setattr(Driver, "launch", launch)
    with pytest.raises(RaceFault):
        check(driver, P, replace(SMALL, kg=2, splitk=1))
    assert not driver.held


def test_inputs_are_those_of_the_seed(monkeypatch):
    seen = []
    real = Runner.compute

    def compute(self, arrays, *rest):
        seen.append(arrays["A"])
        return real(self, arrays, *rest)

    monkeypatch.setattr(module.Runner, "compute", compute)
    for seed in (1, 1, 2):
        check(Driver(), P, SMALL, seed)
    assert all(np.array_equal(x, y) for x, y in zip(seen[:5], seen[5:10], strict=True))
    assert not np.array_equal(seen[0], seen[10])


def test_flags_that_are_not_reset_are_found(monkeypatch):
    """The result is right, but the next launch on that workspace would not be."""
    c = replace(SMALL, kg=2, splitk=1)
    assert all(r.ok for r in check(Driver(), P, c))
    real = Driver.launch

    def launch(self, kernel, step, parameters, stream=0):
        flags = int.from_bytes(parameters[24:32], "little")
        self.machine.fill(flags, 16, 0)
        real(self, kernel, step, parameters, stream)
        self.machine.fill(flags, 1, 1)

    monkeypatch.setattr(Driver, "launch", launch)
    deviation = check(Driver(), P, c)
    assert not any(r.ok for r in deviation)
    assert deviation[0].deviation.where == (-1, -1)
